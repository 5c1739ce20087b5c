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
from .port import PortKey, PortState, PortTable
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
        total = digest.total_of(part.ports)
        if digest.digest_text(total) != part.ports_digest:
            raise SnapshotUnusableError(reason="the digest of its ports differs")
        return _table(part, total) if host is None else _table_of(part, host)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise SnapshotUnusableError(reason=f"damaged: {error}") from error


def _table_of(part: _PortsPart, host: Host) -> PortTable:
    """States and revisions stand in the same order. Raises ``ValueError`` if not."""
    both = zip(part.ports, part.port_revisions, strict=True)
    chosen = [one for one in both if one[1][0] == host]
    ports = tuple(packed for packed, _ in chosen)
    revisions = tuple(revision for _, revision in chosen)
    own = _PortsPart(ports=ports, port_revisions=revisions, ports_digest="")
    return _table(own, digest.total_of(ports))


def _table(part: _PortsPart, total: int) -> PortTable:
    """The table of exactly these ports. Raises ``ValueError`` as `_table_of`."""
    ports: dict[PortKey, PortState] = {}
    revisions: dict[PortKey, Revision] = {}
    decode = _STATE.decode
    for packed, (host, port, revision) in zip(
        part.ports, part.port_revisions, strict=True
    ):
        key, state = (host, port), decode(packed)
        if state.port != port or state.host != host:
            message = f"{state.host} {state.port} stands where {host} {port} should"
            raise ValueError(message)
        ports[key], revisions[key] = state, revision
    return PortTable(ports=Map(ports), revisions=Map(revisions), total=total)
