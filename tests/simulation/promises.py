"""What clients of the log are told of their appends, held to what the log does.

- refused: what was certainly not stored is not stored, nor ever will be; claims that
  stand no longer are refused though they were stored, with all that was said in the
  same breath, so they are left out.
- granted: a claim that is acknowledged had not been released when it was last asked
  for.

A log that lost records has other answers than those that were given before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from controlplane.errors import (
    AppendConflictError,
    AppendOutcomeUnknownError,
    LogUnavailableError,
)
from controlplane.eventlog import Pending
from events import ControlPlaneError, PortClaimed, PortReleased, Record

from .outcome import Violation

if TYPE_CHECKING:
    from .world import World


class Promises:
    """See the module."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._stored: set[str] = set()
        self._refused: dict[str, str] = {}
        """What was refused for good, and how."""
        self._doubted: set[str] = set()
        """What may have been stored by an attempt whose outcome nobody knows."""
        self._released: dict[tuple[str, str, int], float] = {}
        """When a claim let a port go that it did not claim again since."""
        self._losses = 0
        """How often the log lost records."""
        self._asked: dict[str, float] = {}
        """When a claim was last asked for."""

    def began(self, pending: Sequence[Pending]) -> None:
        """Somebody appends, perhaps once more."""
        for item in pending:
            self._refused.pop(item.event.event_id, None)

    def asked(self, pending: Sequence[Pending]) -> None:
        """The log is asked to store these."""
        for item in pending:
            if isinstance(item.event, PortClaimed):
                self._asked[item.event.event_id] = self._world.loop.time()

    def refused(
        self, who: str, pending: Sequence[Pending], error: ControlPlaneError
    ) -> None:
        """They were told to ``who`` to be certainly not stored."""
        if isinstance(error, AppendOutcomeUnknownError):
            self._doubted.update(item.event.event_id for item in pending)
            return
        claims = any(isinstance(item.event, PortClaimed) for item in pending)
        for item in pending:
            event_id = item.event.event_id
            if event_id in self._doubted and isinstance(error, LogUnavailableError):
                continue  # that is said of this attempt alone
            if self._losses and isinstance(error, AppendConflictError):
                continue  # the revision may come again, and what was sent with it
            if not claims:
                self._refused[event_id] = f"{who} was told {type(error).__name__}"
                self._look(event_id)

    def granted(self, who: str, pending: Sequence[Pending]) -> None:
        """They were told to ``who`` to be stored."""
        for item in pending:
            if not isinstance(item.event, PortClaimed):
                continue
            released_at = self._released.get(_claimed_port(item.event))
            asked_at = self._asked.get(item.event.event_id)
            if None not in (released_at, asked_at) and released_at < asked_at:
                what = f"{who} has port {item.event.port}, which was released before"
                raise Violation("granted", f"{what} it asked")

    def stored(self, record: Record) -> None:
        """The log holds ``record``."""
        event = record.event
        self._stored.add(event.event_id)
        if isinstance(event, PortReleased):
            now = self._world.loop.time()
            self._released.setdefault(_claimed_port(event), now)
        elif isinstance(event, PortClaimed):
            self._released.pop(_claimed_port(event), None)
        self._look(event.event_id)

    def forget(self) -> None:
        """The log lost records: what was told before holds no longer."""
        self._losses += 1
        self._stored.clear()
        self._refused.clear()
        self._released.clear()
        self._asked.clear()

    def _look(self, event_id: str) -> None:
        said = self._refused.get(event_id)
        if said is not None and event_id in self._stored:
            raise Violation("refused", f"{said} for {event_id}, and it is stored")


def _claimed_port(event: PortClaimed | PortReleased) -> tuple[str, str, int]:
    return (event.claim_id, event.host, event.port)
