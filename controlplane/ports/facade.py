"""`Ports`: what a plane lets its user do with ports, worker or none."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from datetime import datetime, timedelta
from typing import Any, Final, Literal

import msgspec

from controlplane.beats import decode_notice
from controlplane.broker import Broker
from controlplane.errors import AppendConflictError, SettingsError
from controlplane.logs import get_logger
from controlplane.namespaces import worker_namespace
from controlplane.runtime import StoppedError
from controlplane.topology import Names
from controlplane.worker import BeatThread
from events import ControlPlaneError, Host, PortOwner
from projections import (
    DEFAULT_RANGE,
    PORTS_MAX,
    Held,
    PortBlock,
    PortRange,
    PortState,
    Resting,
    Want,
)

from .claimer import Claimed, Claimer
from .lives import Lives

CLOSE_S: Final = 4.0
"""So long leaving may take; then the leases clean up."""
FINISH_S: Final = 1.5
"""Of that, so long for calls that are under way."""

_log = get_logger("ports")


class PortHolding(msgspec.Struct, frozen=True):
    """One port of a host that is not free."""

    port: int
    claim_id: str
    """The claim that holds it, or held it last; empty if that cannot be read."""
    owner: PortOwner | None
    """Who holds it."""
    reason: str
    """What it is held for, or why it rests."""
    since: datetime
    state: Literal["held", "resting", "unreadable"]


class Ports:
    """Claims of this plane. Those without an owner beat until they are released.

    Leaving the plane releases them; what cannot be said then their leases say later.
    """

    def __init__(
        self,
        *,
        claimer: Claimer,
        broker: Broker,
        beats: BeatThread,
        names: Names,
        cooldown_s: float,
        environ: Mapping[str, str],
        spawn: Callable[[Coroutine[Any, Any, None]], bool],
    ) -> None:
        """Claim by ``claimer``; ``spawn`` runs what goes on beside, if it can."""
        self.claimer: Final = claimer
        self._broker, self._beats, self._names = broker, beats, names
        self._cooldown: Final = timedelta(seconds=cooldown_s)
        self._environ, self._spawn = environ, spawn
        self._own: Lives | None = None
        self._hearing = False
        self._under_way: Final[dict[asyncio.Future[None], None]] = {}
        self._granted: Final[dict[str, None]] = {}
        """The claims that were granted here, and were not let go here."""
        self._closed = False

    # ---- claims ----------------------------------------------------------------
    async def claim(
        self,
        size: int,
        within: PortRange = DEFAULT_RANGE,
        reason: str = "",
        *,
        host: Host | None = None,
        owner: PortOwner | None = None,
        lease_ttl_s: float = 30.0,
        bind_check: bool = True,
    ) -> PortBlock:
        """Claim ``size`` consecutive ports of ``host`` (None: this one).

        Without an ``owner`` the claim lives until it is released, or this process
        dies and ``lease_ttl_s`` is over; else it lives as its owner does. With
        ``bind_check`` what is in use outside the log is passed over. Raises
        `PortsExhaustedError` when there is no room, and as `Claimer.claim`.
        """
        want = Want(reason, size, within)

        async def claim_for(owner: PortOwner) -> Claimed:
            return await self.claimer.claim(
                [want],
                host=host,
                owner=owner,
                lease_ttl_s=lease_ttl_s,
                bind_check=bind_check,
            )

        while True:
            if self._closed:
                raise StoppedError(name="Ports", reason="the plane was left")
            with self._busy():
                if owner is not None:
                    block = self._unless_left((await claim_for(owner)).blocks[0])
                else:
                    block = await self._claim_here(claim_for, lease_ttl_s, size)
            if block is not None:
                return block

    async def _claim_here(
        self,
        claim_for: Callable[[PortOwner], Awaitable[Claimed]],
        lease_ttl_s: float,
        size: int,
    ) -> PortBlock | None:
        """Claim for a life of this plane; None: it ended while the claim was made."""
        life = self._lives.expect(lease_ttl_s, size)
        try:
            claimed = await claim_for(life.owner)
        except BaseException:
            self._lives.missed(life, size)
            raise
        block = self._unless_left(claimed.blocks[0])
        if block is not None and self._lives.granted(
            life, block, claimed.revision, claimed.log_id
        ):
            return block
        self._lives.missed(life, size)
        if block is not None:
            self._release_later(block)
        return None

    def _unless_left(self, block: PortBlock) -> PortBlock | None:
        """The block that was just claimed; None: nobody here may have it any more."""
        if not self._closed:
            self._granted[block.claim_id] = None
            return block
        self._release_later(block)
        return None

    async def release(self, block: PortBlock) -> None:
        """Let ``block`` go; it rests for the cool-down. Idempotent.

        Goes on when cancelled. Raises `AppendConflictError` if somebody else ended
        the claim, because its life had expired: its ports may be another's now; or if
        a worker of another process stands on it. `SettingsError` for a worker's of
        this plane: its ports go when it leaves.
        """
        if not isinstance(block, PortBlock):
            raise SettingsError(field="block", value=block, rule="a PortBlock")
        if block.claim_id not in self._granted and self.claimer.has(block):
            rule = "claimed by this plane's ports: a worker's go when it leaves"
            raise SettingsError(field="block", value=block, rule=rule)
        releasing = asyncio.ensure_future(self._release(block))
        try:
            await asyncio.shield(releasing)
        except asyncio.CancelledError:
            releasing.add_done_callback(lambda done: self._judge_release(done, block))
            raise

    async def _release(self, block: PortBlock) -> None:
        with self._busy():
            try:
                await self.claimer.release(block)
            except AppendConflictError:
                self._forget(block)
                raise
            self._forget(block)

    def _forget(self, block: PortBlock) -> None:
        self._granted.pop(block.claim_id, None)
        if self._own is not None:
            self._own.released(block)

    def _judge_release(self, done: asyncio.Future[None], block: PortBlock) -> None:
        """Nobody waits for this release any more: go on if it failed."""
        if done.cancelled():
            return
        error = done.exception()
        if error is not None and not isinstance(error, AppendConflictError):
            self._release_later(block)

    def _release_later(self, block: PortBlock) -> None:
        self.claimer.let_go_later([block], lambda: self._forget(block))

    @asynccontextmanager
    async def hold(
        self,
        size: int,
        within: PortRange = DEFAULT_RANGE,
        reason: str = "",
        *,
        host: Host | None = None,
        owner: PortOwner | None = None,
        lease_ttl_s: float = 30.0,
        bind_check: bool = True,
    ) -> AsyncIterator[PortBlock]:
        """A block as long as one is inside; see `claim`.

        A release that fails does not raise: it is tried again beside.
        """
        block = await self.claim(
            size,
            within,
            reason,
            host=host,
            owner=owner,
            lease_ttl_s=lease_ttl_s,
            bind_check=bind_check,
        )
        try:
            yield block
        finally:
            try:
                await self.release(block)
            except AppendConflictError as error:
                _log.warning("a claim had ended before its release", reason=str(error))
            except ControlPlaneError:
                self._release_later(block)

    async def table(self, host: Host | None = None) -> dict[int, PortHolding]:
        """The ports of ``host`` (None: this one) that are not free, by the leader.

        Any name of this machine is this one; see `Machine.host`.
        """
        watch = self.claimer.watch(await self.claimer.host(host))
        await watch.look()
        holdings = (
            self._holding(port, state, watch.now)
            for port, state in sorted(watch.known.ports.items())
        )
        return {holding.port: holding for holding in holdings if holding is not None}

    def _holding(
        self, port: int, state: PortState, now: datetime | None
    ) -> PortHolding | None:
        match state:
            case Held(claim_id=claim_id, owner=owner, reason=reason, since=since):
                return PortHolding(port, claim_id, owner, reason, since, "held")
            case Resting(claim_id=claim_id, cause=cause, since=since):
                if now is not None and now - since >= self._cooldown:
                    return None
                return PortHolding(port, claim_id, None, cause, since, "resting")
        why = "its last record cannot be read"
        return PortHolding(port, "", None, why, state.since, "unreadable")

    # ---- its own lives -----------------------------------------------------------
    @property
    def _lives(self) -> Lives:
        if self._own is None:
            namespace = worker_namespace(None, self._environ)
            self._own = Lives(self._beats, self._names, namespace)
        if not self._hearing:  # before the plane's start nothing can be spawned
            self._hearing = self._spawn(self._listen(self._own))
        return self._own

    async def _listen(self, lives: Lives) -> None:
        """Hear what the leader says to the lives of claims without a worker."""
        subject = self._names.notice(lives.namespace, lives.worker_id)
        try:
            subscription = await self._broker.subscribe(subject)
        except ControlPlaneError as error:
            _log.warning("no notices for port claims", reason=str(error))
            return
        try:
            async for message in subscription:
                notice = decode_notice(message.payload)
                if notice is not None:
                    lives.told(notice)
        finally:
            with suppress(ControlPlaneError):
                await subscription.close()

    # ---- leaving -----------------------------------------------------------------
    def _busy(self) -> _UnderWay:
        return _UnderWay(self._under_way)

    async def close(self) -> None:
        """Release every claim without an owner, within `CLOSE_S`; claim no more."""
        self._closed = True
        ends_at = asyncio.get_running_loop().time() + CLOSE_S
        try:
            async with asyncio.timeout_at(ends_at):
                if self._under_way:
                    await asyncio.wait(tuple(self._under_way), timeout=FINISH_S)
                await self._let_go()
                if self._under_way:  # what they still get is let go at once
                    await asyncio.wait(tuple(self._under_way))
        except (ControlPlaneError, TimeoutError) as error:
            reason = str(error) or "no answer in time"
            _log.warning("ports left to their leases", reason=reason)
        finally:
            if self._own is not None:
                self._own.silence()
            left_s = ends_at - asyncio.get_running_loop().time()
            await self.claimer.close(max(0.0, left_s))

    async def _let_go(self) -> None:
        """Release what is held, as much in one batch as fits."""
        if self._own is None:
            return
        batch: list[PortBlock] = []
        ports = 0
        for block in self._own.blocks:
            if ports + block.size > PORTS_MAX:
                await self.claimer.let_go(batch)
                batch, ports = [], 0
            batch.append(block)
            ports += block.size
        if batch:
            await self.claimer.let_go(batch)


class _UnderWay:
    """A call, while it is under way, in a list of those that are."""

    def __init__(self, calls: dict[asyncio.Future[None], None]) -> None:
        self._calls = calls
        self._end: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def __enter__(self) -> None:
        self._calls[self._end] = None

    def __exit__(self, *_: object) -> None:
        self._calls.pop(self._end)
        self._end.set_result(None)
