"""Every combination of what may keep traffic away, against a rule written plainly."""

from itertools import combinations, product

import pytest

from events import Role, Status
from projections import ModelUnavailableError, Wanted, candidates
from tests.support.fleet_builder import (
    C1,
    C2,
    MODEL,
    NAMESPACE,
    deregistered,
    draining,
    fleet_after,
    held,
    registered,
    starting,
    status,
    weighted,
)

PREFILL, ENCODE = Role.PREFILL, Role.ENCODE
HELP = {
    "absent": lambda _: [],
    "live": lambda role: [registered(role.value, role=role)],
    "starting": lambda role: [starting(role.value, role=role)],
    "draining": lambda role: [registered(role.value, role=role), draining(role.value)],
    "held": lambda role: [registered(role.value, role=role), held(role.value)],
    "gone": lambda role: [registered(role.value, role=role), deregistered(role.value)],
    "elsewhere": lambda role: [registered(role.value, role=role, namespace="other")],
    "other model": lambda role: [registered(role.value, role=role, model="other")],
    "quarantined": lambda role: [
        starting(f"first-{role.value}", role=role, card=C2),
        registered(role.value, role=role, card=C1),
    ],
    "one of two": lambda role: [
        registered(f"one-{role.value}", role=role),
        registered(role.value, role=role),
        draining(role.value),
    ],
}
LIVE = {"live", "one of two"}
ALTERNATIVES = [(), (PREFILL,), (ENCODE,), (PREFILL, ENCODE)]
NEEDS = [needs for count in range(3) for needs in combinations(ALTERNATIVES, count)] + [
    tuple(ALTERNATIVES)
]


def may_start(fleet):
    try:
        found = candidates(fleet, Wanted(model=MODEL)).workers(fleet)
    except ModelUnavailableError:
        return set()
    return {worker.worker_id for worker in found}


@pytest.mark.parametrize("needs", NEEDS, ids=str)
def test_needs_are_met_by_an_alternative_that_is_all_live(needs):
    for prefill, encode in product(HELP, repeat=2):
        steps = [*HELP[prefill](PREFILL), *HELP[encode](ENCODE)]
        steps.append(registered("d", role=Role.DECODE, needs=needs))
        fleet = fleet_after(*steps)
        live = {PREFILL} if prefill in LIVE else set()
        live |= {ENCODE} if encode in LIVE else set()
        lacking = [set(roles) - live for roles in needs] or [set()]
        met = not all(lacking)
        (decode,) = (
            worker_set
            for worker_set in fleet.models[MODEL].worker_sets.values()
            if worker_set.key.role is Role.DECODE
        )
        where = (prefill, encode)
        assert decode.ready == met, where
        assert decode.workers["d"].routable == met, where
        assert decode.workers["d"].blockers == (() if met else ("needs_unmet",)), where
        assert may_start(fleet) == ({"d"} if met else set()), where
        assert fleet.models[MODEL].serving == met, where
        fewest = min(map(len, lacking))
        assert set(decode.missing_roles) in lacking, where
        assert len(decode.missing_roles) == fewest, where


@pytest.mark.parametrize("value", Status)
@pytest.mark.parametrize("other", [False, True], ids=["admitted", "quarantined"])
def test_blockers_are_exactly_the_reasons_there_are(value, other):
    """S56: whoever asks why a worker gets no traffic is told of all, none twice."""
    for is_held, unmet, weight in product((False, True), (False, True), (0, 1)):
        needs = [["prefill"]] if unmet else []
        role = {"role": Role.DECODE, "needs": needs}
        # The incumbent decides what the set needs; a card more tells the other apart.
        steps = [registered("incumbent", card=C1, **role)]
        steps += [registered("w", card=C2 if other else C1, **role), status("w", value)]
        steps += [held("w")] if is_held else []
        steps += [weighted(weight)]
        worker = fleet_after(*steps).worker(NAMESPACE, "w")
        expected = {
            "starting": value is Status.STARTING,
            "draining": value is Status.DRAINING,
            "drained": value is Status.DRAINED,
            "held": is_held,
            "checksum_mismatch": other,
            "needs_unmet": unmet,
            "weight_zero": weight == 0,
        }
        assert worker.blockers == tuple(
            name for name, is_so in expected.items() if is_so
        )
        assert worker.routable == (not any(expected.values()))
