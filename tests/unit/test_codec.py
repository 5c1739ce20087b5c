"""Reading never fails: bytes are an event, an unknown event, or undecodable."""

import json
from datetime import UTC, datetime

import msgspec
import pytest

from events import (
    InvalidIdentityError,
    Record,
    Undecodable,
    UndecodableRecordError,
    UnknownEvent,
    WorkerRegistered,
    decode,
    decode_event,
    decode_record,
    encode,
)
from events.codec import EVENT_TYPES, _second_look
from events.upcast import Upcaster, UpcasterChain
from tests.support.fleet_builder import claimed, given, held, registered, released

SUBJECT = "log.worker.prod.w1"
STORY = given(registered("w1"), claimed("w1", 20000), released(20000), held("w1"))
DOCUMENT = json.loads(STORY.payloads[0])


def payload(**changes) -> bytes:
    return json.dumps({**DOCUMENT, **changes}).encode()


def without(*names) -> bytes:
    return json.dumps({k: v for k, v in DOCUMENT.items() if k not in names}).encode()


def test_an_event_reads_back_the_same():
    for record, stored in zip(STORY, STORY.payloads, strict=True):
        assert decode(record.subject, stored) == record.event
        assert encode(record.event) == stored


def test_equal_events_are_equal_bytes_whatever_the_order_of_labels():
    labels = {"zone": "b", "arch": "sm90"}
    one = given(registered("w1", labels=labels))
    two = given(registered("w1", labels=dict(reversed(labels.items()))))
    assert one.payloads == two.payloads


def test_optional_fields_may_be_missing():
    bare = without(
        "by", "needs", "card", "capabilities", "adapters", "capacity", "labels"
    )
    event = decode(SUBJECT, bare)
    assert isinstance(event, WorkerRegistered)
    assert (event.by, event.needs, event.adapters, event.labels) == ("", (), (), {})


def test_fields_of_later_versions_are_passed_over():
    assert decode(SUBJECT, payload(colour="blue")) == STORY[0].event


@pytest.mark.parametrize(
    ("stored", "reason"),
    [
        (b"", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"{", "not JSON"),
        (b'{"type":"x', "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"null", "not an object with a type"),
        (b"[]", "not an object with a type"),
        (b"{}", "not an object with a type"),
        (b'{"type":7}', "not an object with a type"),
        (without("address"), "missing required field `address`"),
        (payload(status="asleep"), "Invalid enum value 'asleep'"),
        (payload(role=None), "Expected `str`, got `null`"),
        (payload(lease_ttl_s="ten"), "Expected `float`, got `str`"),
        (payload(at="yesterday"), "RFC3339"),
        (payload(namespace="a.b"), "namespace 'a.b' is not valid"),
        (payload(worker_id=""), "must not be empty"),
        (payload(labels={"a": 1}), "Expected `str`, got `int`"),
    ],
)
def test_what_cannot_be_read_is_undecodable_with_a_reason(stored, reason):
    event = decode(SUBJECT, stored)
    assert isinstance(event, Undecodable)
    assert reason in event.reason
    assert event.payload == stored


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1, 10**30])
def test_a_number_that_no_state_could_carry_is_undecodable(number):
    event = decode(SUBJECT, payload(capacity={"total_kv_blocks": number}))
    assert isinstance(event, Undecodable)
    assert "total_kv_blocks" in event.reason


def test_an_event_that_no_delta_could_carry_is_undecodable_and_is_not_written():
    (fits,) = given(registered("w1", labels={"x": "y" * 250_000}))
    assert isinstance(fits.event, WorkerRegistered)
    stored = payload(labels={"x": "y" * 900_000})
    event = decode(SUBJECT, stored)
    assert isinstance(event, Undecodable)
    assert event.reason == f"{len(stored)} bytes, more than 262144"
    giant = msgspec.structs.replace(fits.event, labels={"x": "y" * 262_144})
    with pytest.raises(InvalidIdentityError) as caught:
        encode(giant)
    assert caught.value.field == "event"
    assert caught.value.rule == "at most 262144 bytes as JSON"
    assert len(str(caught.value)) < 200


def test_a_payload_of_another_identity_is_undecodable_and_keeps_its_event_id():
    event = decode("log.worker.prod.w2", STORY.payloads[0])
    assert event == Undecodable(
        reason="the payload belongs on log.worker.prod.w1, not on log.worker.prod.w2",
        payload=STORY.payloads[0],
        event_id=DOCUMENT["event_id"],
    )


def test_an_undecodable_payload_keeps_the_event_id_that_it_has():
    assert decode(SUBJECT, without("address")).event_id == DOCUMENT["event_id"]
    assert decode(SUBJECT, without("address", "event_id")).event_id == ""
    assert decode(SUBJECT, payload(event_id=7)).event_id == ""


def test_a_tag_of_another_version_is_an_unknown_event():
    stored = payload(type="worker_registered.v9")
    event = decode(SUBJECT, stored)
    assert event == UnknownEvent(
        tag="worker_registered.v9", payload=stored, event_id=DOCUMENT["event_id"]
    )


def test_who_needs_an_event_gets_one_or_an_error_that_says_why():
    assert decode_event(SUBJECT, STORY.payloads[0]) == STORY[0].event
    with pytest.raises(UndecodableRecordError, match="unknown tag x"):
        decode_event(SUBJECT, payload(type="x"))
    with pytest.raises(UndecodableRecordError) as caught:
        decode_event(SUBJECT, b"null")
    assert caught.value.subject == SUBJECT
    assert caught.value.reason == "not an object with a type"
    assert str(caught.value) == (
        f"the record on {SUBJECT} cannot be read: not an object with a type"
    )


RECORDED_AT = datetime(2026, 1, 1, tzinfo=UTC)


def test_a_record_is_an_event_in_its_place():
    record = decode_record(7, RECORDED_AT, SUBJECT, STORY.payloads[0])
    assert record == Record(7, RECORDED_AT, SUBJECT, STORY[0].event)


def test_the_fingerprint_tells_records_apart():
    stored = [
        STORY.payloads[0],
        payload(event_id=""),
        payload(event_id="", address="http://elsewhere"),
        b"poison",
        b"other poison",
        payload(type="x", event_id="e-1"),
    ]
    records = [decode_record(1, RECORDED_AT, SUBJECT, p) for p in stored]
    fingerprints = [record.fingerprint for record in records]
    assert len(set(fingerprints)) == len(stored)
    assert fingerprints[0] == DOCUMENT["event_id"]
    assert fingerprints[3].startswith("blake2b:")
    assert fingerprints[5] == "e-1"


def renamed(document):
    return {k if k != "url" else "address": v for k, v in document.items()}


OLD_CHAIN = UpcasterChain(
    [
        Upcaster(old="worker_joined.v0", new="worker_joined.v1", read_as=renamed),
        Upcaster(
            old="worker_joined.v1",
            new="worker_registered.v1",
            read_as=lambda document: {**document, "lease_ttl_s": 10.0},
        ),
    ],
    EVENT_TYPES,
)


def old_payload(**changes) -> bytes:
    document = {
        k: v for k, v in DOCUMENT.items() if k not in {"address", "lease_ttl_s"}
    }
    old = {"type": "worker_joined.v0", "url": DOCUMENT["address"], **changes}
    return json.dumps({**document, **old}).encode()


def test_an_old_tag_reads_as_the_current_one_through_every_step():
    assert _second_look(SUBJECT, old_payload(), OLD_CHAIN) == STORY[0].event


def test_an_old_event_must_stand_on_its_own_subject_too():
    event = _second_look("log.worker.prod.w2", old_payload(), OLD_CHAIN)
    assert isinstance(event, Undecodable)
    assert "belongs on" in event.reason


def test_an_old_event_that_does_not_fit_is_undecodable():
    event = _second_look(SUBJECT, old_payload(url=7), OLD_CHAIN)
    assert isinstance(event, Undecodable)
    assert event.reason.startswith("worker_joined.v0: ")


@pytest.mark.parametrize(
    "trip",
    [
        lambda document: document["nowhere"],
        lambda document: document.nowhere,
        lambda _: 1 // 0,
        lambda _: None,
    ],
)
def test_an_upcaster_that_trips_makes_the_record_undecodable(trip):
    step = Upcaster(old="worker_joined.v0", new="worker_registered.v1", read_as=trip)
    event = _second_look(SUBJECT, old_payload(), UpcasterChain([step], EVENT_TYPES))
    assert isinstance(event, Undecodable)
    assert event.event_id == DOCUMENT["event_id"]


def test_events_are_frozen():
    with pytest.raises(AttributeError):
        STORY[0].event.address = "http://elsewhere"
    assert all(kind.__struct_config__.frozen for kind in EVENT_TYPES.values())


def test_every_tag_ends_in_its_version():
    assert all(tag.endswith(".v1") for tag in EVENT_TYPES)
    assert msgspec.json.decode(STORY.payloads[0])["type"] in EVENT_TYPES
