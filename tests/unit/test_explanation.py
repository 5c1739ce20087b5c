"""What an explanation tells beside its state: ports, oddities, and the document."""

from datetime import timedelta

import msgspec
import pytest

from projections import explain
from tests.support.fleet_builder import (
    START,
    address_of,
    claimed,
    deregistered,
    expired,
    given,
    held,
    incarnation,
    poison,
    registered,
    released,
    silent_for,
)


def test_ports_are_told_by_blocks():
    story = given(
        claimed("w1", 20000, 8),
        registered("w1"),
        claimed("w2", 20010),
        claimed("w1", 20010, claim="mine"),
        released(20000, 3),
        released(20003, claim="other"),
        released(20010),
        deregistered("w1"),
        released(20003, 5, cause="expired"),
    )
    found = explain(story, "prod/w1")
    ports = [link for link in found.chain if "port" in link.rule]
    assert [(link.revision, link.through, link.rule) for link in ports] == [
        (1, 8, "claims ports 20000-20007 of 10.0.0.1 for kv_events"),
        (
            11,
            None,
            (
                "claims port 20010 of 10.0.0.1 for kv_events, no effect: an earlier "
                "record stands on this port"
            ),
        ),
        (12, 14, "ports 20000-20002 of 10.0.0.1 released"),
        (
            16,
            None,
            "port 20010 of 10.0.0.1 released, no effect: another claim holds this port",
        ),
        (18, 22, "ports 20003-20007 of 10.0.0.1 expired"),
    ]
    assert [link.state for link in ports] == [
        "never_registered",
        "routable",
        "routable",
        "routable",
        "gone",
    ]
    assert found.ports == ()
    (left,) = explain(story, "prod/w1", 16).ports
    assert (left.start, left.end, left.state) == (20003, 20007, "held")


def test_an_address_of_two_is_a_warning():
    story = given(registered("w1"), registered("w2", address=address_of("w1")))
    assert explain(story, "prod/w1").warnings == (
        "address http://w1.example:8000 is also that of prod/w2",
    )
    assert explain(story, "prod/w1", 1).warnings == ()


@pytest.mark.parametrize(("seconds", "side"), [(3600, "ahead of"), (-3600, "behind")])
def test_a_clock_that_is_off_is_a_warning(seconds, side):
    (record,) = given(registered("w1"))
    at = record.recorded_at + timedelta(seconds=seconds)
    event = msgspec.structs.replace(record.event, at=at)
    (said,) = explain(
        [msgspec.structs.replace(record, event=event)], "prod/w1"
    ).warnings
    assert f"its clock was 3600 s {side} the broker's" in said
    naive = msgspec.structs.replace(record.event, at=at.replace(tzinfo=None))
    found = explain([msgspec.structs.replace(record, event=naive)], "prod/w1")
    assert found.warnings == ()


def test_the_expiry_is_of_another_clock():
    story = given(registered("w1"), silent_for(s=60), expired("w1"))
    event = msgspec.structs.replace(story[1].event, at=START)
    late = [story[0], msgspec.structs.replace(story[1], event=event)]
    assert explain(late, "prod/w1").warnings == ()


def test_a_document_has_every_key():
    story = given(
        held("w1", reason="noisy"),
        registered("w1"),
        poison("log.worker.prod.w1", b"[]"),
        poison("log.worker.prod.w1", b'{"type":"later.v1","event_id":"e"}'),
        claimed("w1", 20000, 2),
    )
    document = msgspec.json.decode(
        msgspec.json.encode(explain(story, "prod/w1").document())
    )
    assert document["worker"] == "prod/w1"
    assert (document["state"], document["routable"]) == ("blocked", False)
    assert document["registration"]["worker_id"] == "w1"
    (reason,) = document["blockers"]
    assert reason == {
        "blocker": "held",
        "why": "held by builder since revision 1: noisy",
        "since": 2,
        "revision": 1,
        "recorded_at": "2026-01-01T00:00:00Z",
        "by": "builder",
    }
    assert [link["type"] for link in document["chain"]] == [
        "worker_held.v1",
        "worker_registered.v1",
        None,
        "later.v1",
        "port_claimed.v1",
    ]
    lives = [link["incarnation"] for link in document["chain"]]
    assert lives == [None, incarnation("w1"), None, None, incarnation("w1")]
    assert document["chain"][-1]["through"] == 6
    assert document["ports"][0]["size"] == 2
    empty = explain([], "prod/w1").document()
    assert empty.keys() == document.keys()
    assert empty["registration"] is None
