"""The ports in a snapshot, without building the fleet beside them.

Who claims ports needs one host's part of the table. The digest is of all of it, so all
of it is hashed; but only what is asked for is decoded.
"""

from __future__ import annotations

from typing import Final

import msgspec
from immutables import Map

from events import Host, Revision

from . import digest
from .errors import SnapshotUnusableError
from .fold import FOLD_VERSION
from .port import PortState, PortTable
from .snapshot import Snapshot


class _PortsPart(msgspec.Struct, frozen=True, kw_only=True):
    """What of a `Rest` is about ports; their states in the very bytes of the digest."""

    ports: tuple[msgspec.Raw, ...]
    port_revisions: tuple[tuple[str, int, Revision], ...]
    ports_digest: str


_PART: Final = msgspec.msgpack.Decoder(_PortsPart)
_STATE: Final = msgspec.msgpack.Decoder(PortState)


def restore_ports(
    snapshot: Snapshot, known_tags: frozenset[str], host: Host | None = None
) -> PortTable:
    """The port table in the snapshot, or the part of ``host``; its digest verified.

    The same ports as `restore` gives. Raises `SnapshotUnusableError` as that does, but
    looks at nothing of the fleet and the lives.
    """
    if snapshot.fold_version != FOLD_VERSION:
        reason = f"fold version {snapshot.fold_version}, not {FOLD_VERSION}"
        raise SnapshotUnusableError(reason=reason)
    skipped = snapshot.anomalies.skipped_tags & known_tags
    if skipped:
        reason = f"its maker did not know {', '.join(sorted(skipped))}"
        raise SnapshotUnusableError(reason=reason)
    try:
        part = _PART.decode(snapshot.rest)
        if digest.digest_text(digest.total_of(part.ports)) != part.ports_digest:
            raise SnapshotUnusableError(reason="the digest of its ports differs")
        return _table(part, host)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise SnapshotUnusableError(reason=f"damaged: {error}") from error


def _table(part: _PortsPart, host: Host | None) -> PortTable:
    """States and revisions stand in the same order. Raises ``ValueError`` if not."""
    chosen = [
        (_STATE.decode(packed), key, revision, packed)
        for packed, (*key, revision) in zip(
            part.ports, part.port_revisions, strict=True
        )
        if host is None or key[0] == host
    ]
    for state, key, _, _ in chosen:
        if [state.host, state.port] != key:
            message = f"{key} stands where {state.host} {state.port} does"
            raise ValueError(message)
    return PortTable(
        ports=Map({(state.host, state.port): state for state, _, _, _ in chosen}),
        revisions=Map({(state.host, state.port): r for state, _, r, _ in chosen}),
        total=digest.total_of(packed for _, _, _, packed in chosen),
    )
