"""What the golden files of a story hold, and how their lines read."""

import base64
import json
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from events import Record, decode_record
from projections import (
    FOLD_VERSION,
    Delta,
    Epoch,
    EpochStarted,
    FoldState,
    PlaneState,
    Position,
    encode_snapshot,
    encode_view,
    step,
    take,
)
from tests.golden.stories import STORIES, every_event
from tests.support.fleet_builder import Story

GOLDEN = Path(__file__).parent
EPOCH = Epoch(count=1, fold_version=FOLD_VERSION, log_id="0190-golden-log", revision=0)


def log_lines(story: Story) -> bytes:
    """The story as an archive of records."""
    return b"".join(
        _line(record, payload)
        for record, payload in zip(story, story.payloads, strict=True)
    )


def _line(record: Record, payload: bytes) -> bytes:
    document: dict[str, Any] = {
        "revision": record.revision,
        "recorded_at": record.recorded_at.isoformat(),
        "subject": record.subject,
    }
    try:
        document["payload"] = payload.decode()
    except UnicodeDecodeError:
        document["base64"] = base64.b64encode(payload).decode()
    return json.dumps(document, ensure_ascii=False).encode() + b"\n"


def read_log(lines: bytes) -> list[Record]:
    """The records of an archive."""
    records = []
    for line in lines.splitlines():
        document = json.loads(line)
        payload = (
            base64.b64decode(document["base64"])
            if "base64" in document
            else document["payload"].encode()
        )
        at = datetime.fromisoformat(document["recorded_at"])
        place = (document["revision"], at, document["subject"])
        records.append(decode_record(*place, payload))
    return records


def meaning(records: list[Record]) -> bytes:
    """Everything that the records mean, after each one and at the end."""
    state, digests = FoldState(), []
    for record in records:
        state = step(state, record).state
        fleet, ports = state.fleet_state.digest, state.ports.digest
        digests.append({"at": record.revision, "fleet": fleet, "ports": ports})
    document = {
        "fold_version": FOLD_VERSION,
        "digests": digests,
        "anomalies": _plain(state.anomalies),
        "lives": [_plain(life) for _, life in sorted(state.lives.items())],
        "view": PlaneState(state).fleet.document(),
    }
    return json.dumps(document, indent=1, sort_keys=True, default=sorted).encode()


def _plain(value: Any) -> Any:
    """As plain data; sets in order, whatever the hash seed."""
    return msgspec.to_builtins(value, order="deterministic")


def snapshot_bytes(records: list[Record]) -> bytes:
    """The snapshot after the records."""
    state, ordinal, previous = FoldState(), 0, 0
    for record in records:
        folded = step(state, record)
        state = folded.state
        if folded.changes:
            ordinal, previous = ordinal + 1, record.revision
    position = Position(epoch=EPOCH, base=1, ordinal=ordinal, delta_revision=previous)
    return encode_snapshot(take(state, position))


def delta_lines(records: list[Record]) -> bytes:
    """The view stream of the records."""
    state, ordinal, previous = FoldState(), 0, 0
    lines = [_started(state)]
    for record in records:
        folded = step(state, record)
        state = folded.state
        if folded.changes:
            ordinal += 1
            delta = Delta(
                epoch=EPOCH,
                ordinal=ordinal,
                revision=record.revision,
                fingerprint=record.fingerprint,
                previous_revision=previous,
                changes=folded.changes,
                anomalies=state.anomalies.counts,
                digest=state.fleet_state.digest,
            )
            lines.append(encode_view(delta))
            previous = record.revision
    return b"".join(line + b"\n" for line in lines)


def _started(state: FoldState) -> bytes:
    return encode_view(
        EpochStarted(
            epoch=EPOCH,
            fingerprint="",
            anomalies=state.anomalies.counts,
            digest=state.fleet_state.digest,
            reason="first start",
        )
    )


def wanted() -> dict[Path, bytes]:
    """Every golden file and what this version would write into it."""
    events = every_event()
    files = {
        GOLDEN / "events" / f"{record.event.__struct_config__.tag}.json": payload
        for record, payload in zip(events, events.payloads, strict=True)
    }
    for name, tell in STORIES.items():
        story = tell()
        records = list(story)
        state = GOLDEN / "states" / f"{name}.v{FOLD_VERSION}"
        files |= {
            GOLDEN / "logs" / f"{name}.jsonl": log_lines(story),
            GOLDEN / "logs" / f"{name}.json": meaning(records),
            state.with_name(state.name + ".snapshot"): snapshot_bytes(records),
            state.with_name(state.name + ".deltas.jsonl"): delta_lines(records),
        }
    return files
