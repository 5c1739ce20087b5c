"""Recognising in the log what one appended oneself, when a refusal hides it.

A repeat of what is stored already is refused like a conflict. What was stored as it
expected stands first on its subject after what it expected, whatever followed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Protocol

from events import (
    AnyEvent,
    PortClaimed,
    PortReleased,
    Record,
    Revision,
    subject_of,
)


class Wish(Protocol):
    """An event that was to be appended."""

    @property
    def event(self) -> AnyEvent:
        """What was to be appended."""
        ...

    @property
    def expected(self) -> Revision | None:
        """The last revision on its subject; 0: none; None: whatever it is."""
        ...


class Reading(Protocol):
    """The log, as its leader knows it."""

    async def at(self, revision: Revision) -> Record | None:
        """The record at ``revision``."""
        ...

    async def last(self, subject: str) -> Record | None:
        """The last record on ``subject``."""
        ...

    async def on_subject(
        self, subject: str, after: Revision, until: Revision
    ) -> list[Record]:
        """The records on ``subject`` in (after, until]."""
        ...

    def read(self, after: Revision, until: Revision) -> AsyncIterator[Record]:
        """The records in (after, until]."""
        ...


class Recognition:
    """Looks in ``log`` for one's own events."""

    def __init__(self, log: Reading) -> None:
        """Read ``log``."""
        self._log = log

    async def find(self, wishes: Sequence[Wish]) -> Revision | None:
        """Where the last of ``wishes`` stands, if all of them are stored."""
        for index, wish in enumerate(wishes):
            found = await self._place(wish)
            if found is not None:
                end = found + len(wishes) - 1 - index
                return end if await self.stands(wishes, end) else None
            if wish.expected is not None:
                return None
        return None

    async def stands(self, wishes: Sequence[Wish], end: Revision) -> bool:
        """Whether ``wishes`` stand in the log, ending at ``end``, claims unreleased.

        An event of a batch that stands by itself is no proof: events of one batch
        stand beside each other. A claim that was released since is gone: who still
        believed in it would use a port that another may hold.
        """
        found = await self._until(end, len(wishes))
        if len(found) != len(wishes):
            return False
        for record, wish in zip(found, wishes, strict=True):
            if not _is_own(record, wish.event):
                return False
            if isinstance(wish.event, PortClaimed) and not await self._is_held(record):
                return False
        return True

    async def _place(self, wish: Wish) -> Revision | None:
        """Where this event is stored, whatever followed on its subject.

        Of a claim it is not enough that it stands last: it may be there in vain,
        behind the claim that it did not expect.
        """
        subject = subject_of(wish.event)
        last = await self._log.last(subject)
        if last is None:
            return None
        if _is_own(last, wish.event) and not isinstance(wish.event, PortClaimed):
            return last.revision
        after, until = wish.expected or 0, last.revision
        for record in await self._log.on_subject(subject, after, until):
            if _is_own(record, wish.event):
                return record.revision
            if wish.expected is not None:
                break
        return None

    async def _is_held(self, claim: Record) -> bool:
        """Whether nobody has released this claim."""
        last = await self._log.last(claim.subject)
        until = claim.revision if last is None else last.revision
        since = await self._log.on_subject(claim.subject, claim.revision, until)
        return not any(_releases(record, claim) for record in since)

    async def _until(self, end: Revision, count: int) -> list[Record]:
        """The last ``count`` records up to and with ``end``."""
        if count == 1:
            only = await self._log.at(end)
            return [] if only is None else [only]
        after = max(0, end - count)
        return [record async for record in self._log.read(after, end)]


def _is_own(record: Record, event: AnyEvent) -> bool:
    """Whether the record is this event, or this claim said in other words."""
    found = record.event
    if record.subject != subject_of(event):
        return False
    if isinstance(event, PortClaimed) and isinstance(found, PortClaimed):
        return found.claim_id == event.claim_id
    return found.event_id == event.event_id


def _releases(record: Record, claim: Record) -> bool:
    released, claimed = record.event, claim.event
    return (
        isinstance(released, PortReleased)
        and isinstance(claimed, PortClaimed)
        and released.claim_id == claimed.claim_id
    )
