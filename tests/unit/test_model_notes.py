"""What stands below the table of models: only what somebody should look at."""

import pytest

from controlplane.cli.model_notes import NOTES_MAX, model_notes
from events import ModelCard, Role
from tests.support.fleet_builder import (
    C1,
    C2,
    deregistered,
    draining,
    fleet_after,
    registered,
    starting,
    weighted,
)

PREFILL = {"role": Role.PREFILL}
NEEDY = {"role": Role.DECODE, "needs": [["prefill"]]}
C3 = ModelCard(kv_block_size=64)


def notes(*steps):
    return [line.plain for line in model_notes(fleet_after(*steps), 80)]


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([], []),
        ([registered("w", adapters=("sql",))], []),
        ([registered("w"), draining("w")], []),
        ([registered("d", **NEEDY), registered("p", **PREFILL)], []),
        ([starting("d", **NEEDY)], []),
        ([registered("d", **NEEDY)], ["decode waits for live prefill"]),
        (
            [registered("d", role=Role.DECODE, needs=[["prefill", "encode"]])],
            ["decode waits for live encode, prefill"],
        ),
        (
            [registered("p", **PREFILL), registered("q", component="x", **PREFILL)],
            ["prefill has several sets: ambiguous, all serve"],
        ),
        ([registered("w"), weighted(0)], ["has weight 0"]),
        ([registered("w"), weighted(0.25)], ["has weight 0.25"]),
        ([registered("w"), weighted(1)], []),
        (
            [registered("w", card=C1), registered("x", card=C2), deregistered("w")],
            [],
        ),
    ],
)
def test_each_thing_is_said_once_and_the_usual_is_not(steps, expected):
    assert notes(*steps) == [f"prod/llama {said}" for said in expected]


def test_a_quarantine_is_told_with_both_checksums():
    steps = [registered("w", card=C1)]
    steps += [registered(f"x{n}", card=C2) for n in range(2)]
    fleet = fleet_after(*steps, registered("y", card=C3))
    ours, x0, y = (fleet.worker("prod", w).checksum[:8] for w in ("w", "x0", "y"))
    said = [line.plain for line in model_notes(fleet, 80)]
    expected = {f"2: {x0}, not {ours}", f"1: {y}, not {ours}"}
    assert set(said) == {f"prod/llama aggregated quarantines {e}" for e in expected}


def test_a_fleet_in_trouble_does_not_scroll_its_table_away():
    decoders = [registered("d", namespace=f"job-{n}", **NEEDY) for n in range(50)]
    said = notes(*decoders)
    assert len(said) == NOTES_MAX
    assert said[-1] == "… and 31 more: controlplane models -o json"


def test_names_cannot_push_what_is_said_off_a_terminal():
    name = "meta-llama/Llama-3.1-70B-Instruct"
    where = {"namespace": "team-a-production-europe-v2", "model": name}
    (said,) = notes(registered("d", **where, **NEEDY))
    assert said.endswith("decode waits for live prefill")
