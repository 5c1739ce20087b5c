"""Logs, view streams and snapshots of the past still read, and mean the same."""

import json

import msgspec
import pytest

from events import (
    EVENT_TYPES,
    Undecodable,
    UnknownEvent,
    decode,
    encode,
    parse_subject,
    subject_of,
)
from events.codec import CHAIN
from projections import (
    EMPTY,
    FOLD_VERSION,
    Fleet,
    FoldState,
    apply_delta,
    decode_snapshot,
    decode_view,
    encode_snapshot,
    encode_view,
    fold_all,
    replay,
    restore,
)
from tests.golden.files import (
    GOLDEN,
    delta_lines,
    meaning,
    read_log,
    snapshot_bytes,
)
from tests.golden.stories import STORIES

EVENTS = sorted((GOLDEN / "events").glob("*.json"))
LOGS = sorted((GOLDEN / "logs").glob("*.jsonl"))
STATES = GOLDEN / "states"
SNAPSHOTS = sorted(STATES.glob(f"*.v{FOLD_VERSION}.snapshot"))
STREAMS = sorted(STATES.glob(f"*.v{FOLD_VERSION}.deltas.jsonl"))


def log_of(path):
    return GOLDEN / "logs" / f"{path.name.split('.')[0]}.jsonl"


def named(paths):
    return {"argvalues": paths, "ids": [path.name for path in paths]}


def test_every_event_type_has_a_golden_payload():
    tags = {path.name.removesuffix(".json") for path in EVENTS}
    assert tags >= set(EVENT_TYPES)
    assert all(tag in EVENT_TYPES or tag in CHAIN for tag in tags)


@pytest.mark.parametrize("path", **named(EVENTS))
def test_every_stored_event_still_reads(path):
    payload = path.read_bytes()
    tag = json.loads(payload)["type"]
    assert path.name == f"{tag}.json"
    subject = subject_of(msgspec.json.decode(payload, type=EVENT_TYPES[tag]))
    found = decode(subject, payload)
    assert type(found) is EVENT_TYPES[tag]
    assert encode(found) == payload
    assert parse_subject(subject) is not None


@pytest.mark.parametrize("path", **named(LOGS))
def test_every_stored_log_still_means_the_same(path):
    records = read_log(path.read_bytes())
    pinned = path.with_suffix(".json").read_bytes()
    assert meaning(records) == pinned
    document = json.loads(pinned)
    for place in document["digests"]:
        assert replay(records, until=place["at"]).digest == place["fleet"]
    text = json.dumps(document["view"])
    assert Fleet.from_json(text).to_json() == replay(records).to_json()


def test_the_poison_is_read_as_what_it_is():
    records = read_log((GOLDEN / "logs" / "poison.jsonl").read_bytes())
    opaque = [r for r in records if isinstance(r.event, UnknownEvent | Undecodable)]
    assert [record.revision for record in opaque] == list(range(3, 15))


@pytest.mark.parametrize("path", **named(STREAMS))
def test_every_stored_view_stream_still_applies(path):
    records = read_log(log_of(path).read_bytes())
    assert delta_lines(records) == path.read_bytes()
    lines = path.read_bytes().splitlines()
    started, *deltas = [decode_view(line) for line in lines]
    assert [encode_view(m) for m in (started, *deltas)] == lines
    assert started.digest == EMPTY.digest
    fleet = EMPTY
    for ordinal, delta in enumerate(deltas, start=1):
        fleet = apply_delta(fleet, delta)
        assert delta.ordinal == ordinal
        assert fleet.digest == replay(records, until=delta.revision).digest
    assert fleet == fold_all(FoldState(), records).fleet_state


@pytest.mark.parametrize("path", **named(SNAPSHOTS))
def test_every_stored_snapshot_restores(path):
    records = read_log(log_of(path).read_bytes())
    payload = path.read_bytes()
    assert snapshot_bytes(records) == payload
    snapshot = decode_snapshot(payload)
    assert encode_snapshot(snapshot) == payload
    state = restore(snapshot, frozenset(EVENT_TYPES))
    assert state == fold_all(FoldState(), records)


@pytest.mark.parametrize("name", STORIES)
def test_every_story_has_its_files(name):
    assert (GOLDEN / "logs" / f"{name}.jsonl") in LOGS
    assert any(path.name.startswith(name) for path in SNAPSHOTS)
    assert any(path.name.startswith(name) for path in STREAMS)
