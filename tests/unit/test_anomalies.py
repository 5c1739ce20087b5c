"""What changed nothing or could not be read is counted for ever and listed a while."""

from projections import Anomaly
from projections.anomaly import LISTED_MAX, REASON_MAX
from tests.support.fleet_builder import (
    deregistered,
    expired,
    poison,
    registered,
    state_after,
)

SUBJECT = "log.worker.prod.w1"
STALE = expired("w1", life=7)
NO_OP = deregistered("w9")
UNKNOWN = poison(SUBJECT, b'{"type":"later.v1"}')
UNREADABLE = poison(SUBJECT, b"x")


def test_each_kind_is_counted_by_itself():
    steps = [registered("w1"), *[STALE] * 1, *[UNKNOWN] * 2, *[UNREADABLE] * 3]
    anomalies = state_after(*steps, *[NO_OP] * 4).anomalies
    assert (
        anomalies.stale,
        anomalies.unknown,
        anomalies.undecodable,
        anomalies.no_op,
    ) == (1, 2, 3, 4)


def test_each_is_listed_with_place_and_reason():
    latest = state_after(registered("w1"), UNKNOWN, UNREADABLE).anomalies.latest
    assert latest[0] == Anomaly(
        revision=2, kind="unknown", subject=SUBJECT, reason="unknown tag later.v1"
    )
    assert (latest[1].revision, latest[1].kind) == (3, "undecodable")
    assert latest[1].reason.startswith("not JSON")


def test_skipped_tags_are_remembered_once():
    others = [poison(SUBJECT, b'{"type":"other.v1"}'), UNKNOWN, UNREADABLE, NO_OP]
    anomalies = state_after(UNKNOWN, *others).anomalies
    assert anomalies.skipped_tags == {"later.v1", "other.v1"}


def test_the_list_is_bounded_and_the_counts_are_not():
    anomalies = state_after(*[NO_OP] * (LISTED_MAX + 5)).anomalies
    assert anomalies.no_op == LISTED_MAX + 5
    assert len(anomalies.latest) == LISTED_MAX
    assert [a.revision for a in anomalies.latest] == list(range(6, LISTED_MAX + 6))


def test_a_long_reason_is_cut():
    tag = b"x" * 10_000
    (listed,) = state_after(
        poison(SUBJECT, b'{"type":"' + tag + b'"}')
    ).anomalies.latest
    assert len(listed.reason) == REASON_MAX


def test_anomalies_stand_outside_the_digest():
    clean, odd = (
        state_after(registered("w1")),
        state_after(registered("w1"), UNREADABLE),
    )
    assert clean.fleet_state == odd.fleet_state
    assert clean.anomalies != odd.anomalies
