"""A record as a line of an archive: exact, readable, and decided as it is live."""

import json
from datetime import UTC, datetime

import pytest

from events import (
    UNREADABLE,
    StoredRecord,
    Undecodable,
    UnknownEvent,
    encode_line,
    records_of,
    stored_of,
)
from events.line import BRACKETS_MAX
from tests.golden.stories import every_event
from tests.support.fleet_builder import given, registered

AT = datetime(2026, 1, 31, 12, 30, 1, 20, tzinfo=UTC)
STORY = given(registered("w1"))
GOOD, SUBJECT = STORY.payloads[0], STORY[0].subject
DEEP = b'{"a":' + b"[" * BRACKETS_MAX + b"]" * BRACKETS_MAX + b","
PAYLOADS = {
    "event": GOOD,
    "event with a field of tomorrow": GOOD[:-1] + b',"tomorrow":[1, 2 ,{"a":null}]}',
    "event over several lines": json.dumps(json.loads(GOOD), indent=1).encode(),
    "event with space around it": b" " + GOOD + b" ",
    "event with much in it": DEEP + GOOD[1:],
    "event with two of a name": b'{"by":"a",' + GOOD[1:],
    "unknown": b'{"type":"later.v1","event_id":"e"}',
    "another's": GOOD.replace(b'"w1"', b'"w2"'),
    "no JSON": b"{",
    "nothing": b"",
    "null": b"null",
    "text": "naïve\u2028\n\0".encode(),
    "no text": b"\xff\xfe\x00",
    "half a character": b'{"a":"\xed\xa0\x80"}',
    "too large": b'"' + b"x" * 300_000 + b'"',
    "too large an event": GOOD[:-1] + b',"x":"' + b"x" * 300_000 + b'"}',
}


def stored(payload, subject=SUBJECT, revision=7):
    return StoredRecord(revision, AT, subject, payload)


@pytest.mark.parametrize("payload", PAYLOADS.values(), ids=PAYLOADS.keys())
def test_every_payload_comes_back_byte_for_byte(payload):
    line = encode_line(stored(payload))
    assert b"\n" not in line
    assert stored_of(line) == [stored(payload)]
    assert records_of(line) == [stored(payload).record]
    assert json.loads(line)["recorded_at"] == "2026-01-31T12:30:01.000020Z"


def test_many_lines_are_read_at_once():
    many = [stored(p, revision=n) for n, p in enumerate(PAYLOADS.values(), 1)]
    lines = b"\n".join(map(encode_line, many)) + b"\n"
    assert stored_of(lines) == many
    assert records_of(lines) == [one.record for one in many]
    kinds = {type(record.event) for record in records_of(lines)}
    assert {UnknownEvent, Undecodable} < kinds
    assert records_of(b"") == stored_of(b"") == []


def test_every_event_stands_in_its_line_as_it_is():
    story = every_event()
    for record, payload in zip(story, story.payloads, strict=True):
        line = encode_line(
            StoredRecord(record.revision, record.recorded_at, record.subject, payload)
        )
        assert line.endswith(b',"event":' + payload + b"}")
        assert records_of(line) == [record]


def test_whoever_wrote_the_line_an_event_belongs_on_its_subject():
    line = encode_line(stored(GOOD))
    moved = line.replace(b"log.worker.prod.w1", b"log.worker.prod.w9")
    assert isinstance(records_of(moved)[0].event, Undecodable)
    nameless = line.replace(b'"worker_id":"w1"', b'"worker_id":""')
    assert isinstance(records_of(nameless)[0].event, Undecodable)
    large = line.replace(b'"by":"builder"', b'"by":"%b"' % (b"x" * 300_000))
    assert isinstance(records_of(large)[0].event, Undecodable)


PLACE = b'{"revision":1,"recorded_at":"2026-01-01T00:00:00Z","subject":"s"'


@pytest.mark.parametrize(
    "line",
    [
        b"null",
        b"{",
        PLACE.replace(b":1,", b":0,") + b',"payload":""}',
        PLACE.replace(b"0Z", b"0") + b',"payload":""}',
        PLACE + b"}",
        PLACE + b',"payload_base64":"?"}',
        PLACE + b',"payload":"\\ud800"}',
    ],
)
def test_what_is_no_line_is_said(line):
    for read in (records_of, stored_of):
        with pytest.raises(UNREADABLE):
            read(line)
