"""The pointer to the latest snapshot: forward only, to what is there, and stays there.

Until the next one is pointed to, the snapshot and the one before can be read.

What a plan spoils, and a tail that the broker loses, are no fault of who wrote it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from controlplane.topology import Names
from controlplane.viewfeed import SnapshotPointer

from .hosts import CELL
from .outcome import Violation
from .plan import SpoilSnapshot

if TYPE_CHECKING:
    from .world import World

NAMES = Names(CELL)
KEPT = 2
"""So many of the snapshots that were pointed to are kept."""


class Pointing:
    """See the module."""

    def __init__(self, world: World) -> None:
        self._is_spoilt = any(isinstance(s, SpoilSnapshot) for s in world.plan.steps)
        self._world = world
        self._last: SnapshotPointer | None = None
        self._kept: list[SnapshotPointer] = []

    def look(self, pointer: SnapshotPointer, *, whole: bool) -> None:
        """A pointer is stored; ``whole``: all that it points to is there."""
        before, self._last = self._last, pointer
        kept, self._kept = self._kept, [*self._kept[1 - KEPT :], pointer]
        if self._is_spoilt:
            return
        for one in kept:
            if not self._is_there(one):
                what = f"revision {one.revision} is gone, and {pointer.revision} new"
                raise Violation("snapshot", what)
        if not whole:
            what = f"revision {pointer.revision} is pointed to, and not all there"
            raise Violation("snapshot", what)
        if (
            before is None
            or before.position.epoch.log_id != pointer.position.epoch.log_id
        ):
            return
        old, new = before.position, pointer.position
        if (new.epoch, new.ordinal) < (old.epoch, old.ordinal):
            what = f"from {old.epoch}/{old.ordinal} to {new.epoch}/{new.ordinal}"
            raise Violation("pointer", what)

    def _is_there(self, pointer: SnapshotPointer) -> bool:
        stream = self._world.server.held(NAMES.snapshot_stream)
        return stream is not None and all(
            stream.last_on(NAMES.snapshot_chunk(pointer.snapshot_id, number))
            for number in range(pointer.chunks)
        )

    def forget(self) -> None:
        """The broker lost some of the snapshots."""
        self._last, self._is_spoilt = None, True
