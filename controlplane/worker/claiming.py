"""The ports of one worker: what claims them, and how its core's jobs are done with it.

A worker's ports keep their claim through all its lives: whichever incarnation it is
in claims the same blocks under the same claim_id, in the batch that registers it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from controlplane.errors import AppendConflictError, SettingsError
from controlplane.eventlog import EventLog, Pending
from controlplane.logs import get_logger
from events import (
    ControlPlaneError,
    Host,
    Incarnation,
    PortOwner,
    Revision,
    WorkerDeregistered,
    canonical_host,
)
from projections import PortBlock, Want, check_wants

from .addressing import check_names
from .signals import Append, ClaimPorts, PortsClaimed, PortsReturned, ReturnPorts
from .spec import ResolvedSpec

RETURN_S: Final = 2.0
"""So long giving back may take; then the lease does it."""
RETURNS_MAX: Final = 3

_log = get_logger("worker")


class Claimed(Protocol):
    """Blocks that a life holds now."""

    @property
    def blocks(self) -> Sequence[PortBlock]:
        """One for each want, in their order."""
        ...

    @property
    def revision(self) -> Revision:
        """Of the last claim."""
        ...

    @property
    def log_id(self) -> str:
        """The log that holds the claims."""
        ...


class Claiming(Protocol):
    """Claims ports of hosts in the log, and says what it takes to keep them."""

    async def claim(
        self,
        wants: Sequence[Want],
        *,
        host: Host | None,
        owner: PortOwner,
        lease_ttl_s: float,
        bind_check: bool,
    ) -> Claimed:
        """Claim a block for each of ``wants``, all or none; ``host`` None: this one.

        A lost race is tried again. What is raised is for good, and nothing is held.
        """
        ...

    async def releases(self, blocks: Sequence[PortBlock]) -> Sequence[Pending]:
        """The releases of those ports of ``blocks`` that their claim still holds."""
        ...

    async def reclaims(
        self,
        blocks: Sequence[PortBlock],
        *,
        owner: PortOwner,
        lease_ttl_s: float,
        reasons: Sequence[str],
    ) -> Sequence[Pending] | None:
        """The claims that ``owner`` lacks to hold ``blocks``, by the log's leader.

        None: some of them have to rest yet, or an earlier life of the same claim has
        to end. Raises `LeaseLostError` when another has one of them.
        """
        ...

    def forget(self, blocks: Sequence[PortBlock]) -> None:
        """Nobody in this process claims ``blocks`` again: do not count them."""
        ...


class PortHands:
    """Does the work at the ports of one worker."""

    def __init__(
        self,
        claiming: Claiming,
        log: EventLog,
        spec: ResolvedSpec,
        *,
        host: Host | None,
        bind_check: bool,
    ) -> None:
        """Claim on ``host`` (None: this one) for the worker of ``spec``.

        Raises `InvalidIdentityError` for what is no host.
        """
        self._claiming, self._log, self._spec = claiming, log, spec
        self._host = None if host is None else canonical_host(host)
        self._bind_check = bind_check
        self._reasons: tuple[str, ...] = ()
        self._blocks: tuple[PortBlock, ...] = ()

    async def claim(self, job: ClaimPorts) -> PortsClaimed:
        """Hold a block for each want. Raises what prevents it for good."""
        claimed = await self._claiming.claim(
            job.wants,
            host=self._host,
            owner=self._owner(job.incarnation),
            lease_ttl_s=self._spec.lease_ttl_s,
            bind_check=self._bind_check,
        )
        self._reasons = tuple(want.name for want in job.wants)
        self._blocks = tuple(claimed.blocks)
        _log.info(
            "ports claimed",
            namespace=self._spec.namespace,
            worker_id=self._spec.worker_id,
            incarnation=job.incarnation,
            revision=claimed.revision,
            ports={
                want.name: f"{block.start}+{block.size}"
                for want, block in zip(job.wants, claimed.blocks, strict=True)
            },
        )
        return PortsClaimed(
            blocks=self._blocks,
            revision=claimed.revision,
            log_id=claimed.log_id,
        )

    async def batch(self, job: Append, own: Pending) -> list[Pending] | None:
        """``own`` with what is said of the ports in the same breath.

        A life's ports are claimed before it registers, and released after it left.
        None: they cannot be claimed yet. Raises `LeaseLostError` if they never can.
        """
        if isinstance(job.draft, WorkerDeregistered):
            return [own, *await self._claiming.releases(job.blocks)]
        claims = await self._lacking(job)
        return None if claims is None else [*claims, own]

    async def holds(self, job: Append, batch: Sequence[Pending]) -> bool:
        """Whether the life that registered with ``batch`` certainly holds its ports.

        Those that it held before it may have lost meanwhile, with the log's tail.
        """
        claims = len(batch) - 1
        if claims == sum(block.size for block in job.blocks):
            return True
        try:
            lacking = await self._lacking(job)
        except ControlPlaneError:
            return False
        return lacking is not None and not lacking

    async def give_back(self, job: ReturnPorts) -> PortsReturned:
        """Release what is still held, if that can be said soon."""
        try:
            async with asyncio.timeout(RETURN_S):
                await self._give_back(job)
        except (ControlPlaneError, TimeoutError) as error:
            _log.warning(
                "ports left to their lease",
                namespace=self._spec.namespace,
                worker_id=self._spec.worker_id,
                reason=str(error) or "no answer in time",
            )
        finally:
            self.forget()
        return PortsReturned()

    def forget(self) -> None:
        """The worker is over; its lease says so if nothing else did. Idempotent."""
        blocks, self._blocks = self._blocks, ()
        self._claiming.forget(blocks)

    async def _give_back(self, job: ReturnPorts) -> None:
        for attempt in range(1, RETURNS_MAX + 1):
            releases = await self._claiming.releases(job.blocks)
            if not releases:
                return
            try:
                await self._log.append_all(releases)
            except AppendConflictError:
                if attempt == RETURNS_MAX:
                    raise
            else:
                return

    async def _lacking(self, job: Append) -> Sequence[Pending] | None:
        return await self._claiming.reclaims(
            job.blocks,
            owner=self._owner(job.draft.incarnation),
            lease_ttl_s=self._spec.lease_ttl_s,
            reasons=self._reasons,
        )

    def _owner(self, incarnation: Incarnation) -> PortOwner:
        return PortOwner(
            namespace=self._spec.namespace,
            worker_id=self._spec.worker_id,
            incarnation=incarnation,
        )


def wants_of(ports: Mapping[str, int | Want] | None) -> tuple[Want, ...]:
    """What a worker wants, each block by its name.

    Raises `InvalidIdentityError` for a block that can never be granted, or too many
    ports; `SettingsError` for what is no mapping of names to blocks.
    """
    if ports is None:
        return ()
    if not isinstance(ports, Mapping) or not all(isinstance(n, str) for n in ports):
        rule = "a mapping of names to sizes, as {'kv_events': 1}"
        raise SettingsError(field="ports", value=ports, rule=rule)
    wants = tuple(_want(name, wanted) for name, wanted in ports.items())
    check_wants(wants)
    return wants


def _want(name: str, wanted: int | Want) -> Want:
    if name == "":
        rule = "each block has a name, as {'kv_events': 1}"
        raise SettingsError(field="ports", value=name, rule=rule)
    if isinstance(wanted, Want):
        return Want(name, wanted.size, wanted.within)
    return Want(name, wanted)


def hands_for(
    wants: Sequence[Want],
    claiming: Claiming | None,
    log: EventLog,
    spec: ResolvedSpec,
    *,
    host: Host | None,
    bind_check: bool,
) -> PortHands | None:
    """Who does the work at the ports; nobody if none are wanted.

    Raises `SettingsError` if nobody can, `InvalidIdentityError` for what is no host,
    and for an address that names a port which is not among them.
    """
    check_names(spec.address, wants)
    if not wants:
        return None
    if claiming is None:
        rule = "there is nobody to claim them: leave ports out"
        names = [want.name for want in wants]
        raise SettingsError(field="ports", value=names, rule=rule)
    return PortHands(claiming, log, spec, host=host, bind_check=bind_check)


def ports_of(
    wants: Sequence[Want], blocks: Sequence[PortBlock]
) -> Mapping[str, PortBlock]:
    """The blocks by their names; none while nothing is held."""
    return {want.name: block for want, block in zip(wants, blocks, strict=False)}
