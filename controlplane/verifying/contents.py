"""What deltas and snapshots hold, in few bytes: equal contents, equal checksums.

Contents are compared as this version writes them. What a digest covers and what it does
not are alike here: a router applies the changes, and a replay goes on from the lives.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from typing import Any, Final

import msgspec

from projections import FleetChange, Rest, Snapshot, SnapshotUnusableError

_ENCODER: Final = msgspec.msgpack.Encoder(order="deterministic")
_REST: Final = msgspec.msgpack.Decoder(Rest)
CHECKSUM_BYTES: Final = 16
DIGESTED: Final = frozenset({"entities", "ports"})
"""The parts of a snapshot that are equal wherever the digests are."""


def checksum_of(changes: tuple[FleetChange, ...]) -> bytes:
    """The checksum of a delta's changes, in their order."""
    return _checksum(changes)


def said_of(count: int, checksum: bytes) -> str:
    """What a delta holds, for people, who cannot be shown all of it."""
    if not count:
        return "no change"
    return f"{count} change{'' if count == 1 else 's'} with checksum {checksum.hex()}"


def parts_of(snapshot: Snapshot) -> dict[str, str]:
    """What a snapshot holds, each part by its name for people.

    Not its place and its record, which are compared by themselves; nor the wording of
    its latest anomalies, which differs from one version to the next. Raises
    `SnapshotUnusableError`.
    """
    try:
        return dict(_parts_of(snapshot))
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise SnapshotUnusableError(reason=f"damaged: {error}") from error


def _parts_of(snapshot: Snapshot) -> Iterator[tuple[str, str]]:
    rest = _REST.decode(snapshot.rest)
    anomalies, at = snapshot.anomalies, snapshot.recorded_at
    yield "entities", _listed(snapshot.fleet)
    for name in Rest.__struct_fields__:
        if name != "ports_digest":
            yield name.replace("_", " "), _listed(getattr(rest, name))
    counts = msgspec.structs.asdict(anomalies.counts)
    yield "anomalies", ", ".join(f"{kind} {count}" for kind, count in counts.items())
    latest = [(one.revision, one.kind, one.subject) for one in anomalies.latest]
    yield "latest anomalies", _listed(latest)
    yield "skipped tags", ", ".join(sorted(anomalies.skipped_tags)) or "none"
    yield "recorded time", "none" if at is None else at.isoformat()


def _listed(things: Any) -> str:  # noqa: ANN401 - any structs have canonical bytes
    return f"{len(things)} with checksum {_checksum(things).hex()}"


def _checksum(things: Any) -> bytes:  # noqa: ANN401
    return blake2b(_ENCODER.encode(things), digest_size=CHECKSUM_BYTES).digest()
