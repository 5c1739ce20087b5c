"""Claims that stand: what it takes to let them go, or to hold them in a next life."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from controlplane.errors import AppendConflictError, LeaseLostError
from controlplane.eventlog import EventLog, Pending
from controlplane.settings import Settings
from events import Host, Incarnation, PortOwner, port_subject
from projections import Held, PortBlock, Resting, reclaim

from .drafts import Drafts
from .watching import HostWatch, Watches


class _Holding(msgspec.Struct):
    """A claim of this process."""

    incarnation: Incarnation
    size: int


class Keeper:
    """Knows the claims of this process that stand, and how many ports a life has."""

    def __init__(
        self, *, log: EventLog, watches: Watches, drafts: Drafts, settings: Settings
    ) -> None:
        """Append to ``log`` what ``drafts`` says, by what ``watches`` know."""
        self._log, self._watches, self._drafts = log, watches, drafts
        self._settings = settings
        self._holdings: Final[dict[str, _Holding]] = {}
        self._counts: Final[dict[Incarnation, int]] = {}

    # ---- counting --------------------------------------------------------------
    def count_of(self, incarnation: Incarnation) -> int:
        """How many ports a life has, or is about to have, from this process."""
        return self._counts.get(incarnation, 0)

    def count(self, incarnation: Incarnation, ports: int) -> None:
        """So many ports more, or less."""
        total = self._counts.get(incarnation, 0) + ports
        if total:
            self._counts[incarnation] = total
        else:
            self._counts.pop(incarnation, None)

    def keep(self, block: PortBlock, incarnation: Incarnation) -> None:
        """A claim stands whose ports are counted."""
        self._holdings[block.claim_id] = _Holding(incarnation, block.size)

    def forget(self, block: PortBlock) -> None:
        """A claim of this process stands no more."""
        holding = self._holdings.pop(block.claim_id, None)
        if holding is not None:
            self.count(holding.incarnation, -holding.size)

    # ---- releasing -------------------------------------------------------------
    async def releases(self, blocks: Sequence[PortBlock]) -> list[Pending]:
        """The releases of those ports of ``blocks`` that their claims hold.

        By the fold of what the log's leader has now.
        """
        for watch in self._watches_of(blocks):
            await watch.look()
        return [release for block in blocks for release in self._releases(block)]

    def _releases(self, block: PortBlock) -> list[Pending]:
        watch = self._watches.of(block.host)
        return [
            self._drafts.release(block.host, port, revision, claim_id=block.claim_id)
            for port in block
            if (revision := watch.standing(port, block.claim_id)) is not None
        ]

    async def release(self, block: PortBlock) -> None:
        """Let ``block`` go; it rests from now on. Letting it go again is fine.

        Raises `AppendConflictError` if somebody else ended the claim.
        """
        pending = self._releases(block)
        if len(pending) != block.size or not await self._released(pending):
            pending = await self.releases([block])
            if pending:
                await self._log.append_all(pending)
            elif not self._was_released(block):
                self.forget(block)
                raise self._not_held(block)
        self.forget(block)

    async def let_go(self, blocks: Sequence[PortBlock]) -> None:
        """Release what of ``blocks`` their claims still hold, in one batch."""
        known = [release for block in blocks for release in self._releases(block)]
        whole = len(known) == sum(block.size for block in blocks)
        if not (whole and await self._released(known)):
            while pending := await self.releases(blocks):
                if await self._released(pending):
                    break
        for block in blocks:
            self.forget(block)

    async def _released(self, pending: Sequence[Pending]) -> bool:
        try:
            await self._log.append_all(pending)
        except AppendConflictError:
            return False
        return True

    def _was_released(self, block: PortBlock) -> bool:
        ports = self._watches.of(block.host).known.ports
        return all(
            isinstance(state := ports.get(port), Resting)
            and (state.claim_id, state.cause) == (block.claim_id, "released")
            for port in block
        )

    def _not_held(self, block: PortBlock) -> AppendConflictError:
        known = self._watches.of(block.host).known
        return AppendConflictError(
            subject=port_subject(block.host, block.start),
            expected=None,
            last=known.expected(block.start),
            code=0,
        )

    # ---- claiming again --------------------------------------------------------
    async def reclaims(
        self,
        blocks: Sequence[PortBlock],
        *,
        owner: PortOwner,
        lease_ttl_s: float,
        reasons: Sequence[str],
    ) -> list[Pending] | None:
        """The claims that ``owner`` lacks to hold ``blocks``, by the log's leader.

        None: some of them have to rest yet, or an earlier life of the same claim has
        to end. Raises `LeaseLostError` when another has one of them.
        """
        for watch in self._watches_of(blocks):
            await watch.look()
        pending: list[Pending] = []
        ready = True
        for block, reason in zip(blocks, reasons, strict=True):
            watch = self._watches.of(block.host)
            there = reclaim(
                watch.known,
                [block],
                incarnation=owner.incarnation,
                earlier=_owners(watch, block),
                now=watch.now,
                cooldown_s=self._settings.port_cooldown_s,
            )
            if there.taken:
                raise LeaseLostError(
                    namespace=owner.namespace,
                    worker_id=owner.worker_id,
                    reason=_taken(watch, there.taken[0]),
                )
            ready = ready and not (there.waiting or there.resting)
            pending += self._drafts.claims(
                block,
                there.claims,
                owner=owner,
                lease_ttl_s=lease_ttl_s,
                reason=reason,
            )
        if not ready:
            return None
        for block in blocks:
            self._keep_again(block, owner.incarnation)
        return pending

    def _keep_again(self, block: PortBlock, incarnation: Incarnation) -> None:
        holding = self._holdings.get(block.claim_id)
        if holding is None or holding.incarnation != incarnation:
            self.forget(block)
            self.count(incarnation, block.size)
            self.keep(block, incarnation)

    def _watches_of(self, blocks: Sequence[PortBlock]) -> list[HostWatch]:
        hosts: dict[Host, None] = dict.fromkeys(block.host for block in blocks)
        return [self._watches.of(host) for host in hosts]


def _owners(watch: HostWatch, block: PortBlock) -> list[Incarnation]:
    """Who holds ports by this very claim: lives of one worker, one after another."""
    states = (watch.known.ports.get(port) for port in block)
    return [
        state.owner.incarnation
        for state in states
        if isinstance(state, Held) and state.claim_id == block.claim_id
    ]


def _taken(watch: HostWatch, port: int) -> str:
    match watch.known.ports.get(port):
        case Held(owner=owner, claim_id=claim_id):
            holder = f"{owner.namespace}/{owner.worker_id} holds it by {claim_id}"
        case _:
            holder = "its last record cannot be read"
    return f"port {port} of {watch.host} is taken: {holder}"
