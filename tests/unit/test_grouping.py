"""Groups: one worker of each role that a request needs, all of one namespace."""

import pytest

from controlplane.namespaces import NamespaceFilter
from events import Role
from projections import (
    ModelNotFoundError,
    ModelUnavailableError,
    Wanted,
    candidates,
    groups,
)
from tests.support.fleet_builder import (
    MODEL,
    fleet_after,
    held,
    loaded,
    registered,
    weighted,
)

DECODE, PREFILL, ENCODE = Role.DECODE, Role.PREFILL, Role.ENCODE
NEED_PREFILL, NEED_BOTH = [[PREFILL]], [[ENCODE, PREFILL]]


def pair(namespace, **fields):
    """A decode worker that needs prefill, and a prefill worker."""
    return [
        registered(
            f"{namespace}-d",
            namespace=namespace,
            role=DECODE,
            needs=NEED_PREFILL,
            **fields,
        ),
        registered(f"{namespace}-p", namespace=namespace, role=PREFILL, **fields),
    ]


def grouped(fleet, exclude=(), visible=None, **wanted):
    """The entry workers, and the roles and namespace of the partners of each set."""
    whole = groups(fleet, Wanted(**{"model": MODEL, **wanted}), exclude, visible)
    entries = [w.worker_id for _, workers in whole.entries.sets for w in workers]
    return entries, [
        sorted((role.value, partner.namespace) for role, partner in partners.items())
        for partners in whole.partners.values()
    ]


def refused(fleet, exclude=(), **wanted):
    with pytest.raises(ModelUnavailableError) as caught:
        grouped(fleet, exclude, **wanted)
    return caught.value.reasons


def test_a_fleet_without_needs_has_groups_of_one():
    fleet = fleet_after(registered("w1"), registered("w2"))
    assert grouped(fleet) == (["w1", "w2"], [[]])


def test_partners_are_of_the_entry_workers_own_namespace():
    fleet = fleet_after(*pair("a"), *pair("b"))
    entries, partners = grouped(fleet)
    assert entries == ["a-d", "b-d"]
    assert partners == [[("prefill", "a")], [("prefill", "b")]]


def test_the_first_alternative_counts_whose_every_role_has_somebody():
    needs = [[ENCODE, PREFILL], [PREFILL]]
    steps = [
        registered("d", role=DECODE, needs=needs),
        registered("p", role=PREFILL),
    ]
    assert grouped(fleet_after(*steps))[1] == [[("prefill", "prod")]]
    with_encoder = fleet_after(*steps, registered("e", role=ENCODE))
    assert [role for role, _ in grouped(with_encoder)[1][0]] == ["encode", "prefill"]


def test_what_partners_need_belongs_to_the_group():
    """Decode needs prefill, prefill needs an encoder, and decode in turn."""
    fleet = fleet_after(
        registered("d", role=DECODE, needs=NEED_PREFILL),
        registered("p", role=PREFILL, needs=[[ENCODE, DECODE]]),
        registered("e", role=ENCODE),
    )
    assert [role for role, _ in grouped(fleet)[1][0]] == ["encode", "prefill"]


def test_a_namespace_without_partners_to_pick_gives_no_entry():
    fleet = fleet_after(*pair("a"), *pair("b"))
    assert grouped(fleet, exclude=[("a", "a-p")])[0] == ["b-d"]
    assert refused(fleet, [("a", "a-p"), ("b", "b-p")]) == {"needs_unmet": 2}


def test_partners_whose_own_needs_lack_somebody_are_no_partners():
    fleet = fleet_after(
        registered("d", role=DECODE, needs=NEED_PREFILL),
        registered("p", role=PREFILL, needs=[[ENCODE]]),
    )
    assert refused(fleet) == {"needs_unmet": 1}
    # A pick asks for live roles only: what is live here may be picked by itself.
    assert candidates(fleet, Wanted(model=MODEL)).ends == (1,)


def test_nobody_at_all_is_said_as_by_a_pick():
    fleet = fleet_after(*pair("a"), held("a-p", namespace="a"))
    assert refused(fleet) == {"needs_unmet": 1, "held": 1}
    with pytest.raises(ModelNotFoundError):
        grouped(fleet, model="never")


def test_a_cordoned_namespace_gives_no_groups():
    fleet = fleet_after(*pair("a"), *pair("b"), weighted(0, namespace="a"))
    assert grouped(fleet)[0] == ["b-d"]


def test_an_adapter_is_asked_of_all_but_encoders():
    steps = [
        registered("d", role=DECODE, needs=NEED_BOTH, adapters=("sql",)),
        registered("p", role=PREFILL),
        registered("e", role=ENCODE),
    ]
    without = fleet_after(*steps)
    assert grouped(without)[0] == ["d"]
    for wanted in ({"adapter": "sql"}, {"model": "sql"}):
        assert refused(without, **wanted) == {"needs_unmet": 1}
        partners = groups(
            fleet_after(*steps, loaded("p", "sql")),
            Wanted(**{"model": MODEL, **wanted}),
        ).partners
        asked = {
            role: want.adapter for of in partners.values() for role, want in of.items()
        }
        assert asked == {ENCODE: None, PREFILL: "sql"}


def test_a_capability_is_asked_of_the_entry_worker_only():
    fleet = fleet_after(
        registered("d", role=DECODE, needs=NEED_PREFILL, capabilities=("tools",)),
        registered("p", role=PREFILL),
    )
    assert grouped(fleet, capability="tools")[0] == ["d"]


def test_the_lens_holds_for_groups_too():
    fleet = fleet_after(*pair("prod"), *pair("prod-v2"), *pair("prod2"))
    lens = NamespaceFilter.generations("prod")
    assert grouped(fleet, visible=lens)[0] == ["prod-d", "prod-v2-d"]
    assert grouped(fleet, visible=NamespaceFilter.exact("prod"))[0] == ["prod-d"]


def test_groups_are_worked_out_once_per_fleet_and_wish():
    fleet = fleet_after(*pair("a"))
    wanted = Wanted(model=MODEL)
    assert groups(fleet, wanted) is groups(fleet, wanted)
    assert groups(fleet, wanted, [("x", "y")]) is not groups(fleet, wanted)
