"""What a worker can say of itself, checked before it is wanted."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from controlplane.loads import checked_load
from events import (
    Capacity,
    Incarnation,
    ModelName,
    Revision,
    Status,
    check_address,
    check_reason,
    check_status,
)

from .reporting import LoadReporter
from .signals import Command, LoadAdapter, SetStatus, UnloadAdapter, Update
from .spec import (
    ResolvedSpec,
    check_adapter,
    check_adapter_of,
    checked_capacity,
    checked_labels,
)


class Speaking:
    """The commands of a worker's handle, which carries them out."""

    _loads: LoadReporter
    _spec: ResolvedSpec
    drain_requested: asyncio.Event
    """Set when an operator asked this worker to drain, until it did and is ready again.

    An order that comes while it starts is not lost by its getting ready.
    """

    async def _command(self, given: Command) -> Revision:
        raise NotImplementedError

    @property
    def incarnation(self) -> Incarnation:
        """The life it is in."""
        raise NotImplementedError

    @property
    def status(self) -> Status:
        """The status that is wanted."""
        raise NotImplementedError

    async def ready(self) -> Revision:
        """Say that it may get requests: as ``set_status(Status.READY)``."""
        return await self.set_status(Status.READY)

    async def set_status(self, status: Status | str, reason: str = "") -> Revision:
        """Say another status; returns the revision as of which the log has it.

        This and all that follow raise `LogUnavailableError` after
        ``settings.connect_timeout_s`` without a broker, and in doubt (sent, but no
        answer) `AppendOutcomeUnknownError` after ``settings.append_timeout_s``. What
        was wanted is kept and said when the log is back. The error that ended the
        worker ends them too. Ready again after draining, it has done what it was asked:
        `drain_requested` is cleared, and the next order sets it.
        """
        given = SetStatus(check_status(status), check_reason(reason))
        was_draining = self.status in (Status.DRAINING, Status.DRAINED)
        if was_draining and given.status in (Status.STARTING, Status.READY):
            self.drain_requested.clear()
        return await self._command(given)

    async def update(
        self,
        capacity: Capacity | None = None,
        labels: Mapping[str, str] | None = None,
        address: str | None = None,
    ) -> Revision:
        """Say other facts; what is None stays, what is given is replaced whole."""
        given = Update(
            capacity=None if capacity is None else checked_capacity(capacity),
            labels=None if labels is None else checked_labels(labels),
            address=None if address is None else check_address(address),
        )
        return await self._command(given)

    async def load_adapter(self, adapter: ModelName) -> Revision:
        """Say that it serves an adapter; nothing if it does already.

        Raises `InvalidIdentityError` also for the name of its own model.
        """
        given = LoadAdapter(check_adapter_of(self._spec.model, adapter))
        return await self._command(given)

    async def unload_adapter(self, adapter: ModelName) -> Revision:
        """Say that it serves an adapter no more; nothing if it does not."""
        return await self._command(UnloadAdapter(check_adapter(adapter)))

    def report_load(
        self,
        *,
        kv_usage: float | None = None,
        running: int | None = None,
        waiting: int | None = None,
    ) -> None:
        """Say how busy it is; None: not known, and all None takes it back.

        ``kv_usage`` is the share of its KV cache in use (0 to 1), the others are
        counts of requests. It never waits, may be called from any thread, and is at
        most sent, never stored: the latest one in ``settings.load_every_s`` seconds,
        none without a broker, or while the worker is not entered.
        Raises `SettingsError` for what can be no load.
        """
        load = checked_load(
            self.incarnation, kv_usage=kv_usage, running=running, waiting=waiting
        )
        self._loads.report(load)

    async def drain(self, reason: str = "") -> Revision:
        """Say that it gets no new requests and finishes those it has."""
        return await self.set_status(Status.DRAINING, reason)

    async def drained(self, reason: str = "") -> Revision:
        """Say that it has finished and may be deleted."""
        return await self.set_status(Status.DRAINED, reason)
