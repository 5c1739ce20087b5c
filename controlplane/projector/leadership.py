"""The projector's lease: which of several tries to publish and expire.

An entry in a bucket whose time to live is the lease. It is won by creating it, kept by
updating it with one's own last sequence expected, and given back by emptying it. It is
an optimisation: what a stalled former leader still sends is fenced elsewhere.
"""

from __future__ import annotations

from typing import Final

import msgspec

from controlplane.broker import Broker, Outgoing
from controlplane.errors import (
    AppendConflictError,
    AppendOutcomeUnknownError,
    LogUnavailableError,
)
from controlplane.identifiers import new_uuid7
from controlplane.topology import Names
from events import read_or_none
from projections import FOLD_VERSION

KEY: Final = "projector"


class LeaseEntry(msgspec.Struct, frozen=True, kw_only=True):
    """Who holds the lease."""

    holder: str
    instance: str
    """Tells two projectors of one name apart."""
    fold_version: int


_ENTRY: Final = msgspec.json.Decoder(LeaseEntry)


class Leadership:
    """One projector's hold on the lease, on its own monotonic clock."""

    def __init__(
        self, broker: Broker, names: Names, *, name: str, ttl_s: float
    ) -> None:
        """Try for the lease of the cell as ``name``; it lasts ``ttl_s`` unrenewed."""
        self._broker = broker
        self._stream = f"KV_{names.lease_bucket}"
        self._subject = names.entry(names.lease_bucket, KEY)
        entry = LeaseEntry(holder=name, instance=new_uuid7(), fold_version=FOLD_VERSION)
        self._payload = msgspec.json.encode(entry)
        self._ttl_s = ttl_s
        self._sequence: int | None = None
        self._until = 0.0

    def holds(self, now: float) -> bool:
        """Whether it is held now, as far as this clock can tell."""
        return self._sequence is not None and now < self._until

    @property
    def until(self) -> float:
        """When it lapses, or did, unless it is renewed."""
        return self._until

    async def acquire(self, now: float) -> bool:
        """Try to win it; whether it was won. Raises `LogUnavailableError`."""
        last = await self._broker.last(self._stream, self._subject)
        if last is not None and last.payload not in (b"", self._payload):
            return False
        return await self._store(self._payload, last.sequence if last else 0, now)

    async def renew(self, now: float) -> bool:
        """Keep it; whether it is still held. Silence of the broker is no loss yet."""
        if self._sequence is None or now >= self._until:
            self._sequence = None
            return False
        try:
            kept = await self._store(self._payload, self._sequence, now)
            # It may have been one's own update, unanswered, that refused this one.
            return kept or await self.acquire(now)
        except LogUnavailableError:
            return True

    async def release(self) -> None:
        """Give it back, so that another need not wait until it lapses."""
        sequence, self._sequence = self._sequence, None
        if sequence is not None:
            try:
                await self._store(b"", sequence, 0.0)
            except LogUnavailableError:
                return
            finally:
                self._sequence = None

    async def _store(self, payload: bytes, expected: int, now: float) -> bool:
        message = Outgoing(
            subject=self._subject, payload=payload, expect_subject_sequence=expected
        )
        try:
            stored = await self._broker.store(
                self._stream, message, timeout_s=self._ttl_s / 2
            )
        except AppendConflictError:
            self._sequence = None
            return False
        except AppendOutcomeUnknownError:
            # An update that landed unseen is found out by the next one's refusal.
            return self._sequence is not None
        self._sequence, self._until = stored.sequence, now + self._ttl_s
        return True


async def holder(broker: Broker, names: Names) -> str | None:
    """Who holds the lease now."""
    stream = f"KV_{names.lease_bucket}"
    last = await broker.last(stream, names.entry(names.lease_bucket, KEY))
    if last is None or not last.payload:
        return None
    entry = read_or_none(_ENTRY, last.payload)
    return None if entry is None else entry.holder
