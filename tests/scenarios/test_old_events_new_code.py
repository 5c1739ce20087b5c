"""S49. Old events, new code: what older producers wrote means what it meant.

The stored logs are told once more by producers of whom every second one is a version
behind: its registrations have another tag and name a field otherwise. Read through
upcasters, every place has the digests that are pinned. (That a chain with a cycle, a
gap or a duplicate is refused when it is made is in ``tests/unit/test_upcast.py``, that
every payload of today stays readable in ``tests/unit/test_golden.py``.)
"""

from __future__ import annotations

import json

import pytest

from events import EVENT_TYPES, Upcaster, UpcasterChain, WorkerRegistered, codec
from projections import FoldState, evolve
from tests.golden.files import GOLDEN, read_log

TAG, OLD, OLDER = "worker_registered.v1", "worker_joined.v2", "worker_joined.v1"
CHAIN = UpcasterChain(
    [
        Upcaster(old=OLDER, new=OLD, read_as=lambda d: renamed(d, "uri", "url")),
        Upcaster(old=OLD, new=TAG, read_as=lambda d: renamed(d, "url", "address")),
    ],
    EVENT_TYPES,
)


def renamed(document, old, new):
    return {new if name == old else name: value for name, value in document.items()}


def by_mixed_producers(lines: bytes) -> bytes:
    """The log with its registrations in turn as today, a version and two behind."""
    told, count = [], 0
    for line in map(json.loads, lines.splitlines()):
        if f'"{TAG}"' in line.get("payload", "")[:40]:
            event = json.loads(line["payload"])
            tag, field = ((TAG, "address"), (OLD, "url"), (OLDER, "uri"))[count % 3]
            event = renamed({**event, "type": tag}, "address", field)
            line["payload"] = json.dumps(event)
            count += 1
        told.append(json.dumps(line).encode())
    assert count > 1
    return b"\n".join(told)


@pytest.mark.parametrize("log", ["rolling_update", "mass_expiry", "prefill_loss"])
def test_a_log_of_mixed_producers_means_what_it_meant(log, monkeypatch):
    lines = by_mixed_producers((GOLDEN / "logs" / f"{log}.jsonl").read_bytes())
    monkeypatch.setattr(codec, "CHAIN", CHAIN)
    pinned = json.loads((GOLDEN / "logs" / f"{log}.json").read_bytes())["digests"]
    state = FoldState()
    for record, place in zip(read_log(lines), pinned, strict=True):
        state = evolve(state, record)
        assert state.fleet_state.digest == place["fleet"]
        assert state.ports.digest == place["ports"]


def test_who_does_not_know_the_old_tags_counts_them_and_guesses_nothing():
    path = GOLDEN / "logs" / "rolling_update.jsonl"
    records = read_log(by_mixed_producers(path.read_bytes()))
    state = FoldState()
    for record in records:
        state = evolve(state, record)
    known = [r for r in records if isinstance(r.event, WorkerRegistered)]
    assert state.anomalies.counts.unknown == sum(
        getattr(r.event, "tag", None) in {OLD, OLDER} for r in records
    )
    assert known
    assert state.anomalies.skipped_tags == {OLD, OLDER}
