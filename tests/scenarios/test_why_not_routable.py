"""S56. Why is this worker not routable? The records that led to it, in order.

Of any worker the explanation lists them with revision, time, incarnation, who said it
and the rule that was applied; asked for an earlier revision, it shows that past. A
record that was passed over is in its place, with the reason.

The command of the scenario is ``controlplane explain``, and it has ``--at``.
"""

from datetime import timedelta

import pytest

from events import Role, Status
from projections import explain, replay
from tests.support.fleet_builder import (
    C1,
    C2,
    START,
    deregistered,
    draining,
    expired,
    given,
    held,
    incarnation,
    ready,
    registered,
    resumed,
    starting,
    weighted,
)

DECODE = {"role": Role.DECODE, "needs": [["prefill"]]}
STORY = given(
    registered("p1", role=Role.PREFILL),
    registered("gpu1", card=C1, **DECODE),
    registered("gpu7", card=C1, status=Status.STARTING, **DECODE),
    ready("gpu7"),
    expired("gpu7"),
    registered("gpu7", card=C2, **DECODE),
    draining("gpu7", life=1),
    held("gpu7", reason="noisy"),
    expired("p1"),
    weighted(0, reason="cordon"),
    starting("other", model="qwen"),
)


def test_every_reason_is_named_with_what_it_goes_back_to():
    found = explain(STORY, "prod/gpu7")
    reasons = [(r.blocker, r.cause.revision, r.since) for r in found.reasons]
    assert reasons == [
        ("held", 8, 8),
        ("checksum_mismatch", 2, 6),
        ("needs_unmet", 9, 9),
        ("weight_zero", 10, 10),
    ]


def test_the_records_are_in_order_with_time_life_author_and_rule():
    chain = explain(STORY, "prod/gpu7").chain
    assert [link.revision for link in chain] == [2, 3, 4, 5, 6, 7, 8, 9, 10]
    for link in chain:
        document = link.document()
        record = STORY[link.revision - 1]
        assert document["recorded_at"] == record.recorded_at
        assert document["recorded_at"] == START + timedelta(seconds=link.revision - 1)
        assert document["by"] == "builder"
        assert document["rule"]
    lives = [link.document()["incarnation"] for link in chain]
    first, second = incarnation("gpu7", 1), incarnation("gpu7", 2)
    assert lives[1:6] == [first, first, first, second, first]


def test_a_late_record_of_an_ended_life_is_in_its_place():
    (late,) = (link for link in explain(STORY, "prod/gpu7").chain if link.anomaly)
    assert (late.revision, late.anomaly) == (7, "stale")
    assert late.rule == f"stale incarnation: current is {incarnation('gpu7', 2)}"


@pytest.mark.parametrize("revision", range(len(STORY) + 1))
def test_the_past_is_shown_as_it_was(revision):
    found = explain(STORY, "prod/gpu7", revision)
    worker = replay(STORY, until=revision).worker("prod", "gpu7")
    assert found.worker == worker
    blockers = () if worker is None else worker.blockers
    assert tuple(reason.blocker for reason in found.reasons) == blockers
    assert all(link.revision <= revision for link in found.chain)


def test_when_all_of_it_is_undone_it_is_routable():
    story = STORY.then(
        registered("p2", role=Role.PREFILL),
        weighted(1),
        deregistered("gpu1"),
        resumed("gpu7"),
    )
    found = explain(story, "prod/gpu7")
    assert (found.state, found.since, found.reasons) == ("routable", len(story), ())
    states = [link.blockers for link in found.chain[-4:]]
    assert states == [
        ("held", "checksum_mismatch", "weight_zero"),
        ("held", "checksum_mismatch"),
        ("held",),
        (),
    ]
