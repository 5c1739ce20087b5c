"""A host whose ports many lives want: a log, its dumb reading, and the claimants.

The log is the real one as far as bytes go: every record is made by the events' codec
and folded by `projections.step`. `DumbTable` hears of the same appends in plain words
and keeps a dictionary; it shares nothing with the fold.
"""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from events import (
    PortClaimed,
    PortOwner,
    PortReleased,
    Role,
    Status,
    WorkerDeregistered,
    WorkerExpired,
    WorkerRegistered,
    decode_record,
    encode,
    subject_of,
)
from projections import FoldState, HostPorts, PortBlock, PortRange, step
from tests.support.fleet_builder import C1, START, uuid7

HOST = "10.0.0.1"
WITHIN = PortRange(20000, 20023)
PORTS = range(WITHIN.first, WITHIN.last + 1)
COOLDOWN_S = 5.0


@dataclass(frozen=True)
class Message:
    """Bytes for the log; ``told`` is what they say in plain words, None: nothing."""

    subject: str
    payload: bytes
    expected: int | None = None
    told: tuple[str, int, str] | None = None


Batch = list[Message]


class DumbTable:
    """Who holds what: the first claim stands, its own release ends it."""

    def __init__(self) -> None:
        self.holder: dict[int, str] = {}
        self.released_at: dict[int, datetime] = {}
        self.released_by: dict[int, str] = {}
        self.unreadable: set[int] = set()

    def hear(self, told: tuple[str, int, str], at: datetime) -> None:
        what, port, claim_id = told
        held, blocked = port in self.holder, port in self.unreadable
        if what == "claimed" and not held and not blocked:
            self.holder[port] = claim_id
            self.let_sleep_no_more(port)
        elif what == "garbage" and not held and not blocked:
            self.unreadable.add(port)
            self.let_sleep_no_more(port)
        elif what == "released" and self.holder.get(port, claim_id) == claim_id:
            if port in self.released_at:
                return
            self.holder.pop(port, None)
            self.unreadable.discard(port)
            self.released_at[port] = at
            self.released_by[port] = claim_id

    def let_sleep_no_more(self, port: int) -> None:
        self.released_at.pop(port, None)
        self.released_by.pop(port, None)

    def free(self, now: datetime) -> set[int]:
        """The ports that may be granted at ``now``."""
        rest = timedelta(seconds=COOLDOWN_S)
        asleep = {p for p, at in self.released_at.items() if now - at < rest}
        return set(PORTS) - set(self.holder) - self.unreadable - asleep


class Log:
    """Appends all of a batch or none, each message on the record that it expects."""

    def __init__(self) -> None:
        self.now = START
        self.records: list[Any] = []
        self.stored: list[tuple[datetime, str, bytes]] = []
        self.last: dict[str, int] = {}
        self.state = FoldState()
        self.table = DumbTable()

    def pass_time(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    def append(self, batch: Batch) -> bool:
        for one in batch:
            if one.expected not in (None, self.last.get(one.subject, 0)):
                return False
        for one in batch:
            revision = len(self.records) + 1
            record = decode_record(revision, self.now, one.subject, one.payload)
            self.records.append(record)
            self.stored.append((self.now, one.subject, one.payload))
            self.last[one.subject] = revision
            self.state = step(self.state, record).state
            if one.told is not None:
                self.table.hear(one.told, self.now)
        return True


@dataclass
class Doubt:
    """A batch without an answer: to be repeated, the same bytes, until there is one."""

    batch: Batch
    blocks: list[PortBlock]
    claiming: bool


@dataclass
class Life:
    """One life of a worker, and what it believes to hold."""

    worker: str
    number: int
    known: HostPorts = field(default_factory=lambda: HostPorts(host=HOST))
    read: int = 0
    now: datetime | None = None
    up: bool = True
    blocks: list[PortBlock] = field(default_factory=list)
    doubts: list[Doubt] = field(default_factory=list)

    @property
    def incarnation(self) -> str:
        return uuid7("life", self.worker, self.number)

    @property
    def owner(self) -> PortOwner:
        return PortOwner(
            namespace="n", worker_id=self.worker, incarnation=self.incarnation
        )

    def follow(self, log: Log, count: int | None = None) -> None:
        """Read on, ``count`` records or all; a record's time is the broker's."""
        end = len(log.records) if count is None else self.read + count
        for record in log.records[self.read : end]:
            self.known = self.known.after(record)
            self.now = max(self.now or record.recorded_at, record.recorded_at)
        self.read = min(end, len(log.records))

    def look(self, log: Log) -> None:
        """Read all there is, and the broker's clock."""
        self.follow(log)
        self.now = log.now

    def reserved(self) -> set[int]:
        """Ports of claims that have no answer yet."""
        return {
            port for doubt in self.doubts for block in doubt.blocks for port in block
        }


class Writer:
    """Makes messages; every event has its own id."""

    def __init__(self) -> None:
        self.count = 0

    def id(self, what: str) -> str:
        self.count += 1
        return uuid7(what, self.count)

    def _envelope(self) -> dict[str, Any]:
        # A producer's clock may say anything: nothing may depend on it.
        at = START + timedelta(hours=self.count * 7919 % 48 - 24)
        return {"event_id": self.id("event"), "at": at, "by": "machine"}

    def message(self, event: Any, expected: int | None, told: Any = None) -> Message:
        return Message(subject_of(event), encode(event), expected, told)

    def claim(
        self, block: PortBlock, port: int, owner: PortOwner, expected: int | None
    ) -> Message:
        event = PortClaimed(
            **self._envelope(),
            host=HOST,
            port=port,
            claim_id=block.claim_id,
            block_start=block.start,
            block_size=block.size,
            owner=owner,
            reason="kv_events",
            lease_ttl_s=10.0,
        )
        return self.message(event, expected, ("claimed", port, block.claim_id))

    def release(
        self, port: int, claim_id: str, expected: int | None, cause: Any = "released"
    ) -> Message:
        event = PortReleased(
            **self._envelope(), host=HOST, port=port, claim_id=claim_id, cause=cause
        )
        return self.message(event, expected, ("released", port, claim_id))

    def registered(self, life: Life) -> Message:
        event = WorkerRegistered(
            **self._envelope(),
            **_who(life.owner),
            component="backend",
            endpoint="generate",
            role=Role.AGGREGATED,
            needs=(),
            model="llama",
            card=C1,
            address="http://w:1",
            lease_ttl_s=10.0,
            status=Status.READY,
            labels={},
        )
        return self.message(event, None)

    def deregistered(self, life: Life) -> Message:
        who = _who(life.owner)
        return self.message(
            WorkerDeregistered(**self._envelope(), **who, reason=""), None
        )

    def expired(self, owner: PortOwner) -> Message:
        event = WorkerExpired(
            **self._envelope(), **_who(owner), silent_for_s=12.0, observed_by="p"
        )
        return self.message(event, None)


def _who(owner: PortOwner) -> dict[str, Any]:
    return {
        "namespace": owner.namespace,
        "worker_id": owner.worker_id,
        "incarnation": owner.incarnation,
    }
