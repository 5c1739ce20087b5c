"""Honest health (S40): stuck, degraded with a reason, or well however quiet it is."""

import msgspec
import pytest

from controlplane.projector.pages import Signs, group_workers, judge_health, routes
from events import Role
from projections import EMPTY, Fleet
from tests.support.fleet_builder import (
    C2,
    draining,
    fleet_after,
    registered,
    starting,
)

WELL = Signs(
    leading=True,
    revision=7,
    log_last_revision=7,
    behind_s=0.0,
    unpublished_s=0.0,
    epoch="log-1.1.1@0",
    ordinal=5,
    caught_up=True,
    connected=True,
    log_fill=0.0,
    workers=3,
    unreadable=0,
    quarantined=0,
    held=0,
    guard_engaged=False,
    trouble=None,
)


def health(**signs):
    return judge_health(msgspec.structs.replace(WELL, **signs))


@pytest.mark.parametrize(
    "signs",
    [
        {},
        {"leading": False},
        {"workers": 0},
        {"workers": 0, "revision": 0, "log_last_revision": 0},
        {"behind_s": 4.9},
        {"leading": False, "unpublished_s": 60.0},
        {"unreadable": 9},
        {"quarantined": 2},
    ],
)
def test_a_quiet_or_busy_system_is_well(signs):
    found = health(**signs)
    assert (found.status, found.reasons) == ("ok", ())
    assert found.role == ("leader" if signs.get("leading", True) else "follower")


@pytest.mark.parametrize(
    ("signs", "reason"),
    [
        ({"behind_s": 5.1}, "stuck at revision 7; the log ends at 7 for 5 s"),
        ({"unpublished_s": 6.0}, "a delta has waited 6 s to be published"),
        ({"connected": False}, "the broker is not connected"),
        ({"caught_up": False, "revision": 3}, "folding: at revision 3 of 7"),
        ({"trouble": "the log begins at revision 9"}, "the log begins at revision 9"),
    ],
)
def test_alive_but_stuck_is_said_with_its_reason(signs, reason):
    found = health(**signs)
    assert (found.status, found.reasons) == ("stuck", (reason,))


@pytest.mark.parametrize(
    ("signs", "reason"),
    [
        (
            {"workers": 0, "unreadable": 4},
            "the view is empty and 4 records could not be read",
        ),
        ({"quarantined": 3}, "every worker is quarantined"),
        ({"guard_engaged": True, "held": 8}, "the mass-expiry guard holds 8 lives"),
        ({"log_fill": 0.95}, "the log is 95% full"),
    ],
)
def test_what_an_operator_should_look_at_is_degraded(signs, reason):
    found = health(**signs)
    assert (found.status, found.reasons) == ("degraded", (reason,))


def test_stuck_outweighs_degraded_and_both_are_told():
    found = health(connected=False, log_fill=0.95)
    assert found.status == "stuck"
    assert len(found.reasons) == 2


def test_workers_are_grouped_by_their_first_blocker():
    fleet = fleet_after(
        registered("w1"), registered("w2"), draining("w2"), registered("w3", card=C2)
    )
    grouped = group_workers(fleet.state)
    assert {group.state: n for group, n in grouped.workers.items()} == {
        "routable": 1,
        "draining": 1,
        "checksum_mismatch": 1,
    }
    assert (grouped.sets, grouped.ready) == (1, 1)
    nothing = group_workers(EMPTY)
    assert (nothing.workers, nothing.models) == ({}, {})
    assert (nothing.sets, nothing.ready) == (0, 0)


def test_a_model_is_judged_in_each_namespace():
    prefill, decode = Role.PREFILL, Role.DECODE
    needy = {"role": decode, "needs": [["prefill"]]}
    fleet = fleet_after(
        registered("p1", namespace="a", role=prefill),
        registered("p2", namespace="a", role=prefill, component="other"),
        registered("d1", namespace="a", **needy),
        registered("d1", namespace="b", **needy),
        starting("d2", namespace="c", **needy),
    )
    models = group_workers(fleet.state).models
    found = {
        at: (s.serving, dict(s.sets), s.missing, s.ambiguous)
        for (at, _), s in models.items()
    }
    assert found == {
        "a": (
            True,
            {("prefill", "ready"): 2, ("decode", "ready"): 1},
            [],
            ["prefill"],
        ),
        "b": (False, {("decode", "not_ready"): 1}, ["prefill"], []),
        "c": (False, {("decode", "not_ready"): 1}, [], []),
    }, "what is only starting misses nothing yet"


@pytest.mark.parametrize(("signs", "status"), [({}, 200), ({"connected": False}, 503)])
async def test_pages_answer_as_it_is(signs, status):
    async def metrics():
        return 200, "text/plain", b""

    pages = routes(
        metrics, lambda: fleet_after(registered("w1")), lambda: health(**signs)
    )
    code, _, body = await pages["/readyz"]()
    assert code == status
    assert msgspec.json.decode(body)["revision"] == 7
    assert (await pages["/healthz"]())[0] == 200
    _, _, view = await pages["/view"]()
    assert Fleet.from_json(view).worker("prod", "w1") is not None
