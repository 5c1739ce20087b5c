"""Claims that stand: what it takes to let them go, or to hold them in a next life."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

import msgspec

from controlplane.errors import AppendConflictError, LeaseLostError
from controlplane.eventlog import EventLog, Pending
from controlplane.settings import Settings
from events import (
    Host,
    Incarnation,
    InvalidIdentityError,
    PortClaimed,
    PortOwner,
    WorkerDeregistered,
    WorkerExpired,
    check_host,
    port_subject,
    worker_subject,
)
from projections import PORTS_MAX, Held, HostPorts, PortBlock, Resting, reclaim

from .drafts import Drafts
from .telling import refused, what_became
from .watching import HostWatch, Watches

PAUSE_S_MIN: Final = 0.05
PAUSE_S_MAX: Final = 1.0
"""Between releases that the log refused."""
RELEASED_MAX: Final = 4096
"""So many claims that were let go are remembered, to let go again without a word."""


class _Holding(msgspec.Struct):
    """A claim of this process."""

    incarnation: Incarnation
    block: PortBlock


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
        self._released: Final[dict[str, None]] = {}

    # ---- counting --------------------------------------------------------------
    def count_of(self, incarnation: Incarnation) -> int:
        """How many ports a life has, or is about to have, from this process."""
        return self._counts.get(incarnation, 0)

    def has(self, claim_id: str) -> bool:
        """Whether a claim of this process stands, as far as is known here."""
        return claim_id in self._holdings

    def count(self, incarnation: Incarnation, ports: int) -> None:
        """So many ports more, or less."""
        total = self._counts.get(incarnation, 0) + ports
        if total:
            self._counts[incarnation] = total
        else:
            self._counts.pop(incarnation, None)

    def keep(self, block: PortBlock, incarnation: Incarnation) -> None:
        """A claim stands whose ports are counted."""
        self._holdings[block.claim_id] = _Holding(incarnation, block)
        self._released.pop(block.claim_id, None)

    def forget(self, block: PortBlock) -> None:
        """A claim of this process stands no more."""
        holding = self._holdings.pop(block.claim_id, None)
        if holding is not None:
            self.count(holding.incarnation, -holding.block.size)

    # ---- releasing -------------------------------------------------------------
    async def releases(self, blocks: Sequence[PortBlock]) -> list[Pending]:
        """The releases of those ports of ``blocks`` that their claims hold.

        By the fold of what the log's leader has now. Of claims of this process it is
        asked only whether they are still the last records of their ports: that costs
        nothing more when many leave the host at once, each with all the others' claims
        to read.
        """
        return await self._read_releases(blocks, anew=False)

    async def _read_releases(
        self, blocks: Sequence[PortBlock], *, anew: bool
    ) -> list[Pending]:
        if not anew and (own := await self._own_releases(blocks)) is not None:
            return own
        for watch in self._watches_of(blocks):
            await watch.look(anew=anew)
        return [release for block in blocks for release in self._releases(block)]

    async def _own_releases(self, blocks: Sequence[PortBlock]) -> list[Pending] | None:
        """The releases of claims of this process that are the last word on each port.

        None if any is not: what became of it only the fold tells.
        """
        if not all(map(self._is_own, blocks)):
            return None
        last = self._log.last
        ports = [(block, port) for block in blocks for port in block]
        records = await asyncio.gather(
            *(last(port_subject(b.host, p)) for b, p in ports)
        )
        own = [
            self._drafts.release(
                block.host, port, record.revision, claim_id=block.claim_id
            )
            for (block, port), record in zip(ports, records, strict=True)
            if record is not None
            and isinstance(record.event, PortClaimed)
            and record.event.claim_id == block.claim_id
        ]
        return own if len(own) == len(ports) else None

    def _is_own(self, block: PortBlock) -> bool:
        holding = self._holdings.get(block.claim_id)
        return holding is not None and holding.block == block

    def _releases(self, block: PortBlock) -> list[Pending]:
        known = self._watches.of(block.host).known
        return [
            self._drafts.release(
                block.host, port, known.expected(port), claim_id=block.claim_id
            )
            for port in _held(known, block)
        ]

    async def release(self, block: PortBlock) -> None:
        """Let ``block`` go; it rests from now on. Letting it go again is fine.

        Raises `AppendConflictError` if somebody else ended the claim, or if it is of
        a worker that is registered and not of this process, and
        `InvalidIdentityError` for what is not a whole claim.
        """
        check_block(block)
        if block.claim_id in self._released:
            return
        holding = self._holdings.get(block.claim_id)
        if holding is not None:
            _check_whole(block, holding.block)
        ended_here = await self._end([block], whole=True)
        if block.claim_id in self._released:
            return  # by another call meanwhile
        if not ended_here and not self._was_released(block):
            self.forget(block)
            raise self._not_held(block)
        self._remember([block])

    async def let_go(self, blocks: Sequence[PortBlock]) -> None:
        """Release what of ``blocks`` their claims still hold, in one batch."""
        if await self._end(blocks):
            self._remember(blocks)
        for block in blocks:
            self.forget(block)

    async def _end(self, blocks: Sequence[PortBlock], *, whole: bool = False) -> bool:
        """Release what is held, by the log's leader; whether there was anything.

        What this process remembers of revisions is not asked: in a log that lost its
        tail they may be another's. Raises `AppendConflictError` if others are faster
        for as long as a broker may be away.
        """
        loop, pause_s, refusals = asyncio.get_running_loop(), PAUSE_S_MIN, 0
        deadline = loop.time() + self._settings.connect_timeout_s
        while pending := await self._read_releases(blocks, anew=refusals > 1):
            if whole:
                await self._check_held(blocks)
            try:
                await self._log.append_all(pending)
            except AppendConflictError as error:
                refusals += 1  # twice: it may be that records were removed
                if loop.time() >= deadline:
                    known = self._watches.of(blocks[0].host).known
                    reason = "others wrote of its ports each time that it was tried"
                    raise refused(known, blocks[0], reason, "try again") from error
            else:
                return True
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_S_MAX)
        return False

    async def _check_held(self, blocks: Sequence[PortBlock]) -> None:
        """Refuse a part of what a claim holds, and what another's worker stands on."""
        for block in blocks:
            known = self._watches.of(block.host).known
            states = _held(known, block).values()
            for state in states:
                start, size = state.block_start, state.block_size
                there = PortBlock(block.host, start, size, block.claim_id)
                _check_whole(block, there)
            if block.claim_id in self._holdings:
                continue
            for owner in {state.owner for state in states}:
                if await self._is_registered(owner):
                    worker = f"{owner.namespace}/{owner.worker_id}"
                    reason = f"worker {worker} holds the block, and is registered"
                    next_step = "its ports go when it leaves"
                    raise refused(known, block, reason, next_step)

    async def _is_registered(self, owner: PortOwner) -> bool:
        """Whether a worker lives as ``owner``: its process knows of no release."""
        subject = worker_subject(owner.namespace, owner.worker_id)
        last = await self._log.last(subject)
        event = None if last is None else last.event
        if isinstance(event, WorkerDeregistered | WorkerExpired):
            return False
        return getattr(event, "incarnation", None) == owner.incarnation

    def _remember(self, blocks: Sequence[PortBlock]) -> None:
        """These claims were let go here, whoever has their ports next."""
        for block in blocks:
            self.forget(block)
            self._released[block.claim_id] = None
        while len(self._released) > RELEASED_MAX:
            del self._released[next(iter(self._released))]

    def _was_released(self, block: PortBlock) -> bool:
        ports = self._watches.of(block.host).known.ports
        return all(
            isinstance(state := ports.get(port), Resting)
            and (state.claim_id, state.cause) == (block.claim_id, "released")
            for port in block
        )

    def _not_held(self, block: PortBlock) -> AppendConflictError:
        known = self._watches.of(block.host).known
        became = what_became(known, block)
        reason = f"claim {block.claim_id} does not hold the block: {became}"
        return refused(known, block, reason, "do not use it; claim another block")

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


def holds(known: HostPorts, blocks: Sequence[PortBlock]) -> bool:
    """Whether each port of ``blocks`` is held by its claim."""
    return all(len(_held(known, block)) == block.size for block in blocks)


def check_block(block: PortBlock) -> PortBlock:
    """Return ``block`` if a claim could hold it, else raise `InvalidIdentityError`."""
    check_host(block.host)
    for field, most in (("start", 0xFFFF), ("size", PORTS_MAX)):
        value = getattr(block, field)
        if type(value) is not int or not 1 <= value <= most:
            rule = f"a whole number from 1 to {most}, as in the block that was granted"
            raise InvalidIdentityError(field=field, value=value, rule=rule)
    if not isinstance(block.claim_id, str) or not block.claim_id:
        rule = "the claim's id, as in the block that was granted"
        raise InvalidIdentityError(field="claim_id", value=block.claim_id, rule=rule)
    return block


def _check_whole(block: PortBlock, granted: PortBlock) -> None:
    if block != granted:
        rule = f"the whole block that was granted: {granted}"
        raise InvalidIdentityError(field="block", value=block, rule=rule)


def _held(known: HostPorts, block: PortBlock) -> dict[int, Held]:
    """The ports of ``block`` that its claim holds."""
    return {
        port: state
        for port in block
        if isinstance(state := known.ports.get(port), Held)
        and state.claim_id == block.claim_id
    }


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
