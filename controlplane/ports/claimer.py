"""`Claimer`: whole blocks of a host's ports, claimed in the log or not at all.

It chooses by what it knows, holds local sockets on what it chose, and appends the
claims of all ports in one atomic batch, each expecting its port's last record. A
refusal means that somebody was faster: then it learns what happened and chooses again.
What it knows may be old, so nothing is called exhausted before a look at the leader.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from random import Random, SystemRandom
from typing import Final

import msgspec

from controlplane.broker import Broker
from controlplane.clock import Clock
from controlplane.errors import (
    AppendConflictError,
    AppendOutcomeUnknownError,
    LogUnavailableError,
    SettingsError,
)
from controlplane.eventlog import Appended, EventLog, Pending
from controlplane.settings import Settings
from controlplane.telemetry import PortMetrics
from events import (
    Host,
    PortOwner,
    Revision,
    check_lease_ttl_s,
    port_subject,
)
from projections import Lacking, PortBlock, Want, check_wants

from .busy import BusyPorts
from .choosing import Ask, Choice, await_settling
from .crowds import Crowds
from .drafts import Drafts
from .keeping import Keeper, holds
from .machine import Machine
from .owners import check_owner
from .settling import Settling
from .sockets import FAMILIES, BusyPort, hold
from .telling import claim_unknown, release_unknown
from .together import Together
from .turns import SOCKET_TURNS
from .watching import HostWatch, Watches

LOST_BEFORE_LOOK: Final = 2
"""After so many races lost since the last look another look pays…"""
RECORDS_PER_LOSS: Final = 128
RECORDS_PER_LONE_LOSS: Final = 16
"""…or later: reading so many records costs as much as losing once, a batch or one."""
OUTDATED_BEFORE_LOOK: Final = 24
"""A look pays, too, after so many blocks of one claim that turned out to be taken."""
MOVES_MAX: Final = 4
"""So many places of one claim are given up because others come towards them."""
LOST_BEFORE_ANEW: Final = 8
"""A look after so many of one claim believes nothing of what was known."""
BACKOFF_S_MIN: Final = 0.001
BACKOFF_S_MAX: Final = 0.05


class Claimed(msgspec.Struct, frozen=True, kw_only=True):
    """Blocks that a life holds now."""

    blocks: tuple[PortBlock, ...]
    """One for each want, in their order."""
    revision: Revision
    """Of the last claim."""
    log_id: str
    """The log that holds the claims."""


class Claimer:
    """Claims ports for the lives of this process. Safe to use from many tasks."""

    def __init__(
        self,
        *,
        log: EventLog,
        broker: Broker,
        clock: Clock,
        settings: Settings,
        by: str,
        pid: int | None = None,
        metrics: PortMetrics | None = None,
        chance: Random | None = None,
        machine: Machine | None = None,
    ) -> None:
        """Claim in ``log`` as ``by``; ``pid`` is told beside each claim."""
        self._log, self._broker, self._clock = log, broker, clock
        self._settings, self._metrics = settings, metrics
        self._drafts: Final = Drafts(clock=clock, by=by, pid=pid)
        self._chance: Final = chance or SystemRandom()
        self._watches: Final = Watches(log, broker, settings)
        self._keeper: Final = Keeper(
            log=log, watches=self._watches, drafts=self._drafts, settings=settings
        )
        self._machine: Final = machine or Machine()
        self._crowds: Final = Crowds(log, clock)
        self._busy: Final = BusyPorts(log, self._drafts, clock, metrics)
        self._together: Final = Together(self._sent)
        self._settling: Final = Settling(log, self.let_go, self._settled, self._chance)

    # ---- claiming --------------------------------------------------------------
    async def claim(
        self,
        wants: Sequence[Want],
        *,
        host: Host | None = None,
        owner: PortOwner,
        lease_ttl_s: float,
        bind_check: bool = True,
    ) -> Claimed:
        """Claim a block for each of ``wants`` on ``host``, all or none.

        ``host`` None: this one. Whatever means this machine is its own name, as
        `Machine.host`; with ``bind_check`` it has to, as `Machine.here`. Races that are
        lost are run again, however many. Raises `PortsExhaustedError` if there is no
        place by the log's leader, whatever becomes of this process's claims under way;
        `InvalidIdentityError`, `SettingsError` for what cannot be asked for;
        `LogUnavailableError`, `LogFullError` (nothing is held);
        `HistoryTruncatedError` if a purge took what would tell who holds what;
        `AppendOutcomeUnknownError`: what landed after all is released in time.
        """
        check_owner(owner)
        check_lease_ttl_s(lease_ttl_s)
        machine = self._machine
        host = await (machine.here(host) if bind_check else machine.host(host))
        if not wants:
            rule = "at least one block"
            raise SettingsError(field="wants", value=tuple(wants), rule=rule)
        held = self._keeper.count_of(owner.incarnation)
        count = sum(want.size for want in check_wants(wants, held))
        ask = Ask(
            watch=self.watch(host),
            wants=tuple(wants),
            owner=owner,
            lease_ttl_s=lease_ttl_s,
            bind_check=bind_check,
            began=self._clock.monotonic(),
        )
        if bind_check:
            self._machine.warn(wants)
        self._keeper.count(owner.incarnation, count)
        try:
            return await self._granted(ask)
        except BaseException:
            self._keeper.count(owner.incarnation, -count)
            raise

    async def host(self, name: Host | None) -> Host:
        """As `Machine.host`."""
        return await self._machine.host(name)

    def watch(self, host: Host) -> HostWatch:
        """What is known of ``host``."""
        return self._watches.of(host)

    async def _granted(self, ask: Ask) -> Claimed:
        watch, lost, outdated, moved, looked = ask.watch, 0, 0, 0, False
        if not watch.looked:
            await watch.look()
        while True:
            chosen = ask.choose(self._settings.port_cooldown_s, self._chance)
            if isinstance(chosen, Lacking):
                if looked:
                    await self._check_room(ask)
                else:
                    watch.try_busy(ask.began)
                await watch.look()
                looked = True
                continue
            ports = chosen.ports
            with watch.reserving(ports):
                if await self._crowds.outdated(watch, chosen):
                    watch.contest(ports, None)
                    outdated, looked = outdated + 1, False
                    if outdated % OUTDATED_BEFORE_LOOK == 0:
                        await watch.look()
                    continue
                if (
                    chosen.elsewhere
                    and moved < MOVES_MAX
                    and await self._crowds.in_the_way(watch, chosen)
                ):
                    watch.beside, moved = None, moved + 1
                    continue
                done = await self._take(ask, chosen)
                if isinstance(done, tuple):
                    await self._busy.note(watch, done, chosen.expected)
                    continue
                if isinstance(done, Appended):
                    self._landed(ask, chosen.blocks, done)
                    return Claimed(
                        blocks=chosen.blocks,
                        revision=done.revision,
                        log_id=watch.log_id,
                    )
                watch.contest(ports, done.last)
            self._crowds.note(watch.host)
            lost, looked = lost + 1, False
            await self._after_loss(ask, lost)

    async def _check_room(self, ask: Ask) -> None:
        """Wait for what is undecided here; raise if there is no room in any case."""
        cooldown_s = self._settings.port_cooldown_s
        room = ask.choose(cooldown_s, self._chance, by_the_log=True)
        if isinstance(room, Lacking):
            if self._metrics is not None:
                self._metrics.exhausted.inc()
            raise ask.exhausted(room)
        await await_settling(ask.watch, self._settings, self._broker.url)

    async def _take(
        self, ask: Ask, chosen: Choice
    ) -> Appended | tuple[BusyPort, ...] | AppendConflictError:
        """Claim ``chosen`` while sockets are held on it; or how that ended."""
        if not ask.bind_check:
            return await self._append(ask, chosen)
        ports = chosen.ports
        async with SOCKET_TURNS.taking(len(ports) * len(FAMILIES)):
            sockets = hold(ports)
            if isinstance(sockets, tuple):
                return sockets
            with sockets:
                return await self._append(ask, chosen)

    async def _append(self, ask: Ask, chosen: Choice) -> Appended | AppendConflictError:
        blocks, expected = chosen.blocks, chosen.expected
        pending = [
            msgspec.structs.replace(claim, fresh=True)
            for block, want in zip(blocks, ask.wants, strict=True)
            for claim in self._drafts.claims(
                block,
                ((port, expected[port]) for port in block),
                owner=ask.owner,
                lease_ttl_s=ask.lease_ttl_s,
                reason=want.name,
            )
        ]
        appending = self._together.append(pending)
        try:
            done = await asyncio.shield(appending)
        except AppendConflictError as conflict:
            return conflict
        except AppendOutcomeUnknownError as error:
            self._doubt(ask.watch, pending, blocks)
            raise claim_unknown(blocks, error) from error
        except asyncio.CancelledError:
            self._doubt(ask.watch, pending, blocks, appending)
            raise
        if not any(expected.values()):
            return done
        return await self._seen_to_hold(ask.watch, blocks, pending, done)

    async def _seen_to_hold(
        self,
        watch: HostWatch,
        blocks: tuple[PortBlock, ...],
        pending: Sequence[Pending],
        done: Appended,
    ) -> Appended | AppendConflictError:
        """``done``, if the log has it on top of what was known of the ports.

        What is expected is numbers. In a log that was made anew, or lost its tail,
        since it was read they may be of another's claim, which stands. Only ports that
        nobody ever wrote of cannot be mistaken so.
        """
        subject = port_subject(watch.host, blocks[0].start)
        try:
            await watch.look()
            if holds(watch.known, blocks):
                return done
            await self._keeper.let_go(blocks)  # what of it is held
        except LogUnavailableError as error:
            self._doubt(watch, pending, blocks)
            unknown = AppendOutcomeUnknownError(subject=subject, reason=error.reason)
            raise claim_unknown(blocks, unknown) from error
        except BaseException:
            self._doubt(watch, pending, blocks)
            raise
        reason = "the log is not the one that the ports were read from"
        return AppendConflictError(
            subject=subject, expected=None, last=done.revision, code=0, reason=reason
        )

    async def _sent(self, pending: Sequence[Pending]) -> Appended:
        """Append; what the broker has no room for right now it may take soon."""
        deadline = self._clock.monotonic() + self._settings.connect_timeout_s
        pause_s = BACKOFF_S_MIN
        while True:
            try:
                return await self._log.append_all(pending)
            except LogUnavailableError:
                if self._clock.monotonic() >= deadline:
                    raise
            pause_s = min(2 * pause_s, BACKOFF_S_MAX)
            await asyncio.sleep(pause_s * self._chance.random())

    def _landed(self, ask: Ask, blocks: Sequence[PortBlock], done: Appended) -> None:
        first = done.revision - sum(block.size for block in blocks) + 1
        if ask.watch.wrote(first, done.revision):
            self._crowds.note(ask.watch.host)
        for block in blocks:
            ask.watch.landed(block, first)
            first += block.size
            self._keeper.keep(block, ask.owner.incarnation)
        if self._metrics is not None:
            self._metrics.claims.inc()

    async def _after_loss(self, ask: Ask, lost: int) -> None:
        """Learn what happened, if that pays; those who lost together part ways."""
        if self._metrics is not None:
            self._metrics.races_lost.inc()
        if lost > 1:
            most_s = min(BACKOFF_S_MIN * 2**lost, BACKOFF_S_MAX)
            await asyncio.sleep(most_s * self._chance.random())
        watch, batch = ask.watch, sum(want.size for want in ask.wants) > 1
        worth = watch.unread // (RECORDS_PER_LOSS if batch else RECORDS_PER_LONE_LOSS)
        anew = lost % LOST_BEFORE_ANEW == 0
        if anew or watch.contested >= max(LOST_BEFORE_LOOK, worth):
            await watch.look(anew=anew)

    # ---- doubtful ports ----------------------------------------------------------
    def _doubt(
        self,
        watch: HostWatch,
        pending: Sequence[Pending],
        blocks: Sequence[PortBlock],
        under_way: asyncio.Future[Appended] | None = None,
    ) -> None:
        """Nobody waits for this claim any more: settle it."""
        watch.doubt(port for block in blocks for port in block)
        if self._metrics is not None:
            self._metrics.in_doubt.inc()
        again = [msgspec.structs.replace(one, fresh=False) for one in pending]
        self._settling.adopt(again, blocks, under_way)

    def _settled(self, blocks: Sequence[PortBlock]) -> None:
        for block in blocks:
            self.watch(block.host).contest(block, None)

    def let_go_later(
        self, blocks: Sequence[PortBlock], then: Callable[[], None]
    ) -> None:
        """As `let_go`, in the background, however long that takes; call ``then``."""
        self._settling.let_go(blocks, then)

    async def close(self, within_s: float) -> None:
        """Settle what is in doubt, at most so long."""
        await self._settling.close(within_s)

    # ---- claims that stand -------------------------------------------------------
    def has(self, block: PortBlock) -> bool:
        """As `Keeper.has`."""
        return self._keeper.has(block.claim_id)

    async def releases(self, blocks: Sequence[PortBlock]) -> list[Pending]:
        """As `Keeper.releases`."""
        return await self._keeper.releases(blocks)

    async def release(self, block: PortBlock) -> None:
        """As `Keeper.release`."""
        try:
            await self._keeper.release(block)
        except AppendOutcomeUnknownError as error:
            raise release_unknown(block, error) from error
        self._count_released([block])

    async def let_go(self, blocks: Sequence[PortBlock]) -> None:
        """As `Keeper.let_go`."""
        await self._keeper.let_go(blocks)
        self._count_released(blocks)

    async def reclaims(
        self,
        blocks: Sequence[PortBlock],
        *,
        owner: PortOwner,
        lease_ttl_s: float,
        reasons: Sequence[str],
    ) -> list[Pending] | None:
        """As `Keeper.reclaims`."""
        return await self._keeper.reclaims(
            blocks, owner=owner, lease_ttl_s=lease_ttl_s, reasons=reasons
        )

    def forget(self, blocks: Sequence[PortBlock]) -> None:
        """As `Keeper.forget`, for each."""
        for block in blocks:
            self._keeper.forget(block)

    def _count_released(self, blocks: Sequence[PortBlock]) -> None:
        if self._metrics is not None:
            self._metrics.released.inc(len(blocks))
