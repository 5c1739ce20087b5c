"""Snapshots: a state in bytes, with all that says whether it may be used.

A snapshot names its log, its fold version, its place in the epoch and the record that
it ends with. It is used only if all of that fits and its digests come out right; a
smaller, older or missing snapshot never means a smaller fleet.
"""

from __future__ import annotations

from datetime import datetime
from hashlib import blake2b
from typing import Final

import msgspec
from immutables import Map

from events import Revision

from . import digest
from .anomaly import Anomalies
from .delta import Epoch, entity_key
from .draining import DrainOrder
from .entities import Put
from .errors import SnapshotUnusableError
from .fleet import FleetState, build
from .fold import FOLD_VERSION, FoldState
from .life import Life
from .port import PortState, PortTable

FORMAT: Final = 1
SEAL_BYTES: Final = 16


class Position(msgspec.Struct, frozen=True, kw_only=True):
    """A place in an epoch: the delta ``ordinal`` at the view stream's sequence."""

    epoch: Epoch
    base: int
    """The view stream's sequence of the epoch's start."""
    ordinal: int
    delta_revision: Revision
    """The revision of that delta; of the epoch's start at ordinal 0."""

    @property
    def view_seq(self) -> int:
        """The view stream's sequence of the delta with this ordinal."""
        return self.base + self.ordinal


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A state at a place."""

    format: int
    fold_version: int
    log_id: str
    position: Position
    revision: Revision
    fingerprint: str
    recorded_at: datetime | None
    anomalies: Anomalies
    fleet: tuple[Put, ...]
    fleet_digest: str
    rest: msgspec.Raw
    """A packed `Rest`, which routers need not read."""


class Rest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What projectors and replay need beyond the fleet. Additions have defaults."""

    ports: tuple[PortState, ...]
    port_revisions: tuple[tuple[str, int, Revision], ...]
    ports_digest: str
    lives: tuple[Life, ...]
    drains: tuple[DrainOrder, ...] = ()


_ENCODER: Final = msgspec.msgpack.Encoder(order="deterministic")
_DECODER: Final = msgspec.msgpack.Decoder(Snapshot)
_REST: Final = msgspec.msgpack.Decoder(Rest)


class _Format(msgspec.Struct):
    format: int


_FORMAT: Final = msgspec.msgpack.Decoder(_Format)


def take(state: FoldState, position: Position) -> Snapshot:
    """The snapshot of ``state``, which stands at ``position``. Equal in, equal out."""
    ports = state.ports
    rest = Rest(
        ports=tuple(port for _, port in sorted(ports.ports.items())),
        port_revisions=tuple((*k, r) for k, r in sorted(ports.revisions.items())),
        ports_digest=ports.digest,
        lives=tuple(life for _, life in sorted(state.lives.items())),
        drains=tuple(order for _, order in sorted(state.drains.items())),
    )
    return Snapshot(
        format=FORMAT,
        fold_version=FOLD_VERSION,
        log_id=position.epoch.log_id,
        position=position,
        revision=state.revision,
        fingerprint=state.fingerprint,
        recorded_at=state.recorded_at,
        anomalies=state.anomalies,
        fleet=tuple(sorted(state.fleet_state.entities(), key=entity_key)),
        fleet_digest=state.fleet_state.digest,
        rest=msgspec.Raw(_ENCODER.encode(rest)),
    )


def encode_snapshot(snapshot: Snapshot) -> bytes:
    """The snapshot as msgpack and a digest of it; equal snapshots are equal bytes."""
    packed = _ENCODER.encode(snapshot)
    return packed + _seal(packed)


def decode_snapshot(payload: bytes) -> Snapshot:
    """The snapshot in ``payload``, whole. Raises `SnapshotUnusableError`."""
    packed, seal = payload[:-SEAL_BYTES], payload[-SEAL_BYTES:]
    if _seal(packed) != seal:
        raise SnapshotUnusableError(reason="damaged: its bytes are not all its own")
    try:
        found = _FORMAT.decode(packed)
        if found.format != FORMAT:
            reason = f"format {found.format}, this version reads {FORMAT}"
            raise SnapshotUnusableError(reason=reason)
        return _DECODER.decode(packed)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise SnapshotUnusableError(reason=f"damaged: {error}") from error


def _seal(packed: bytes) -> bytes:
    """What shows that no byte was lost or changed, of what no digest covers either."""
    return blake2b(packed, digest_size=SEAL_BYTES).digest()


def fleet_of(snapshot: Snapshot) -> FleetState:
    """The fleet in the snapshot, its digest verified.

    Raises `SnapshotUnusableError`.
    """
    if snapshot.fold_version != FOLD_VERSION:
        reason = f"fold version {snapshot.fold_version}, not {FOLD_VERSION}"
        raise SnapshotUnusableError(reason=reason)
    fleet = build(snapshot.fleet)
    if fleet.digest != snapshot.fleet_digest:
        reason = f"its digest is {fleet.digest}, it says {snapshot.fleet_digest}"
        raise SnapshotUnusableError(reason=reason)
    return fleet


def restore(snapshot: Snapshot, known_tags: frozenset[str]) -> FoldState:
    """The whole state in the snapshot, its digests verified.

    Raises `SnapshotUnusableError`, also when it was made by a version that skipped
    tags which this one knows.
    """
    skipped = snapshot.anomalies.skipped_tags & known_tags
    if skipped:
        reason = f"its maker did not know {', '.join(sorted(skipped))}"
        raise SnapshotUnusableError(reason=reason)
    try:
        rest = _REST.decode(snapshot.rest)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise SnapshotUnusableError(reason=f"damaged: {error}") from error
    return FoldState(
        fleet_state=fleet_of(snapshot),
        ports=_ports_of(rest),
        lives=Map({life.key: life for life in rest.lives}),
        drains=Map({order.key: order for order in rest.drains}),
        anomalies=snapshot.anomalies,
        revision=snapshot.revision,
        fingerprint=snapshot.fingerprint,
        recorded_at=snapshot.recorded_at,
    )


def _ports_of(rest: Rest) -> PortTable:
    table = PortTable(
        ports=Map({(port.host, port.port): port for port in rest.ports}),
        revisions=Map({(h, n): r for h, n, r in rest.port_revisions}),
        total=digest.total_of(rest.ports),
    )
    if table.digest != rest.ports_digest:
        raise SnapshotUnusableError(reason="the digest of its ports differs")
    return table
