"""The pointer to the latest snapshot: forward only, and to what is there.

What a plan spoils, and a tail that the broker loses, are no fault of who wrote it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from controlplane.viewfeed import SnapshotPointer

from .outcome import Violation
from .plan import SpoilSnapshot

if TYPE_CHECKING:
    from .world import World


class Pointing:
    """See the module."""

    def __init__(self, world: World) -> None:
        self._is_spoilt = any(isinstance(s, SpoilSnapshot) for s in world.plan.steps)
        self._last: SnapshotPointer | None = None

    def look(self, pointer: SnapshotPointer, *, whole: bool) -> None:
        """A pointer is stored; ``whole``: all that it points to is there."""
        before, self._last = self._last, pointer
        if self._is_spoilt:
            return
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

    def forget(self) -> None:
        """The broker lost some of the snapshots."""
        self._last, self._is_spoilt = None, True
