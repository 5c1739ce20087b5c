"""Logs told as stories: ``given(registered("w1"), silent_for(s=20), expired("w1"))``.

A story is a sequence of records. Ids, times and revisions are a function of the steps
alone, so equal stories are equal logs. Every event goes through its bytes, as in a
real log. A worker's lives are numbered from 1; a step without ``life`` speaks for the
latest one, and ``registered`` without ``life`` begins the next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import Any
from uuid import UUID

from events import (
    AdapterLoaded,
    AdapterUnloaded,
    AnyEvent,
    LoadThresholdsSet,
    ModelCard,
    ModelForgotten,
    PortClaimed,
    PortOwner,
    PortReleased,
    Record,
    Role,
    Status,
    TrafficWeightSet,
    WorkerDeregistered,
    WorkerExpired,
    WorkerHeld,
    WorkerRegistered,
    WorkerResumed,
    WorkerStatusChanged,
    WorkerUpdated,
    check_needs,
    decode_record,
    encode,
    subject_of,
)
from projections import Fleet, FoldState, PlaneState, fold_all

NAMESPACE = "prod"
MODEL = "llama"
HOST = "10.0.0.1"
START = datetime(2026, 1, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)
C1 = ModelCard(kv_block_size=16, context_length=8192)
C2 = ModelCard(kv_block_size=32, context_length=8192)


class Story(Sequence[Record]):
    """Records, and what the next step goes on from. `then` returns a longer story."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.payloads: list[bytes] = []
        self.now = START
        self.branch = ""
        self.lives: dict[tuple[str, str], int] = {}
        self.claims: dict[tuple[str, int], str] = {}

    def then(self, *steps: Step) -> Story:
        story = Story()
        story.records, story.payloads = [*self.records], [*self.payloads]
        story.now, story.branch = self.now, self.branch
        story.lives, story.claims = dict(self.lives), dict(self.claims)
        for step in steps:
            step(story)
        return story

    def append(self, event: AnyEvent) -> None:
        """Add an event as the broker would store it; it must read back the same."""
        payload = encode(event)
        self.store(subject_of(event), payload)
        assert self.records[-1].event == event, self.records[-1].event

    def store(self, subject: str, payload: bytes) -> None:
        """Add any bytes on any subject; a second passes."""
        revision = len(self.records) + 1
        self.records.append(decode_record(revision, self.now, subject, payload))
        self.payloads.append(payload)
        self.now += SECOND

    def envelope(self) -> dict[str, Any]:
        """The fields that every event has, for the next one."""
        event_id = uuid7("event", self.branch, len(self.records) + 1)
        return {"event_id": event_id, "at": self.now, "by": "builder"}

    def life_of(self, namespace: str, worker: str, life: int | None) -> dict[str, Any]:
        """The fields that name a life of a worker, and the envelope."""
        number = life or self.lives.get((namespace, worker), 1)
        return {
            **self.envelope(),
            "namespace": namespace,
            "worker_id": worker,
            "incarnation": incarnation(worker, number, namespace=namespace),
        }

    def __getitem__(self, index: Any) -> Any:
        return self.records[index]

    def __len__(self) -> int:
        return len(self.records)

    def __iter__(self) -> Iterator[Record]:
        return iter(self.records)


Step = Callable[[Story], None]


def given(*steps: Step) -> Story:
    """The log in which all this happened, a second after another."""
    return Story().then(*steps)


def state_after(*steps: Step) -> FoldState:
    """The fold of ``given(*steps)``."""
    return fold_all(FoldState(), given(*steps))


def fleet_after(*steps: Step) -> Fleet:
    """The fleet that routers have after ``given(*steps)``."""
    return fleet_of_story(given(*steps))


def fleet_of_story(story: Sequence[Record]) -> Fleet:
    """The fleet that routers have after the story."""
    return PlaneState(fold_all(FoldState(), story)).fleet


def uuid7(*what: object) -> str:
    """A UUIDv7 that is a function of ``what``: same question, same answer."""
    raw = blake2b(repr(what).encode(), digest_size=16).digest()
    value = int.from_bytes(raw, "big")
    value = value & ~(0xF << 76) | 7 << 76
    return str(UUID(int=value & ~(0x3 << 62) | 2 << 62))


def incarnation(worker: str, life: int = 1, *, namespace: str = NAMESPACE) -> str:
    """The incarnation of that life."""
    return uuid7("life", namespace, worker, life)


def address_of(worker: str) -> str:
    """The address that a worker has unless the step says another."""
    return f"http://{worker}.example:8000"


def registered(
    worker: str,
    *,
    life: int | None = None,
    namespace: str = NAMESPACE,
    **fields: Any,
) -> Step:
    """A life begins, or an old one (``life``) says again all that it is.

    It is ready at once unless ``status`` says otherwise; ``fields`` are those of
    `WorkerRegistered`.
    """

    def step(story: Story) -> None:
        key = (namespace, worker)
        number = life or story.lives.get(key, 0) + 1
        story.lives[key] = max(number, story.lives.get(key, 0))
        defaults = {
            "component": "backend",
            "endpoint": "generate",
            "role": Role.AGGREGATED,
            "model": MODEL,
            "card": C1,
            "address": address_of(worker),
            "lease_ttl_s": 10.0,
            "status": Status.READY,
            "labels": {},
        }
        needs = {"needs": check_needs(fields.get("needs", ()))}
        who = story.life_of(namespace, worker, number)
        story.append(WorkerRegistered(**who, **{**defaults, **fields, **needs}))

    return step


def starting(worker: str, **fields: Any) -> Step:
    """As `registered`, but not ready yet."""
    return registered(worker, status=Status.STARTING, **fields)


def _worker_step(
    kind: type[AnyEvent], worker: str, namespace: str, life: int | None, **fields: Any
) -> Step:
    def step(story: Story) -> None:
        story.append(kind(**story.life_of(namespace, worker, life), **fields))

    return step


def status(
    worker: str,
    value: Status,
    *,
    namespace: str = NAMESPACE,
    life: int | None = None,
    reason: str = "",
) -> Step:
    """The worker says what it is doing now."""
    fields = {"status": value, "reason": reason}
    return _worker_step(WorkerStatusChanged, worker, namespace, life, **fields)


def ready(worker: str, **where: Any) -> Step:
    return status(worker, Status.READY, **where)


def draining(worker: str, **where: Any) -> Step:
    return status(worker, Status.DRAINING, **where)


def drained(worker: str, **where: Any) -> Step:
    return status(worker, Status.DRAINED, **where)


def updated(
    worker: str,
    *,
    namespace: str = NAMESPACE,
    life: int | None = None,
    **fields: Any,
) -> Step:
    """The worker changes what it said of itself: address, capacity or labels."""
    return _worker_step(WorkerUpdated, worker, namespace, life, **fields)


def loaded(
    worker: str, adapter: str, *, namespace: str = NAMESPACE, life: int | None = None
) -> Step:
    """The worker serves one more adapter."""
    return _worker_step(AdapterLoaded, worker, namespace, life, adapter=adapter)


def unloaded(
    worker: str, adapter: str, *, namespace: str = NAMESPACE, life: int | None = None
) -> Step:
    """The worker serves one adapter less."""
    return _worker_step(AdapterUnloaded, worker, namespace, life, adapter=adapter)


def deregistered(
    worker: str,
    *,
    namespace: str = NAMESPACE,
    life: int | None = None,
    reason: str = "",
) -> Step:
    """The worker leaves by itself."""
    return _worker_step(WorkerDeregistered, worker, namespace, life, reason=reason)


def expired(
    worker: str,
    *,
    namespace: str = NAMESPACE,
    life: int | None = None,
    silent_for_s: float = 12.0,
) -> Step:
    """The leader saw no beat for too long."""
    fields = {"silent_for_s": silent_for_s, "observed_by": "projector-a"}
    return _worker_step(WorkerExpired, worker, namespace, life, **fields)


def forked(branch: str) -> Step:
    """From here on another history: what follows has other event ids."""

    def step(story: Story) -> None:
        story.branch = branch

    return step


def silent_for(*, s: float) -> Step:
    """Time passes; nothing is appended."""

    def step(story: Story) -> None:
        story.now += timedelta(seconds=s)

    return step


def claimed(
    worker: str,
    start: int,
    size: int = 1,
    *,
    host: str = HOST,
    namespace: str = NAMESPACE,
    life: int | None = None,
    claim: str | None = None,
    lease_ttl_s: float = 10.0,
    reason: str = "kv_events",
) -> Step:
    """The worker takes ``size`` ports of its host from ``start`` on."""

    def step(story: Story) -> None:
        who = story.life_of(namespace, worker, life)
        names = ("namespace", "worker_id", "incarnation")
        owner = PortOwner(**{name: who[name] for name in names})
        claim_id = claim or uuid7("claim", host, start, len(story) + 1)
        for port in range(start, start + size):
            story.claims[host, port] = claim_id
            event = PortClaimed(
                **story.envelope(),
                host=host,
                port=port,
                claim_id=claim_id,
                block_start=start,
                block_size=size,
                owner=owner,
                reason=reason,
                lease_ttl_s=lease_ttl_s,
                pid=4711,
            )
            story.append(event)

    return step


def released(
    start: int,
    size: int = 1,
    *,
    host: str = HOST,
    claim: str | None = None,
    cause: str = "released",
) -> Step:
    """The latest claim on these ports, or ``claim``, ends."""

    def step(story: Story) -> None:
        for port in range(start, start + size):
            named = claim or story.claims.get((host, port)) or uuid7("nobody", port)
            where = {"host": host, "port": port, "claim_id": named}
            story.append(PortReleased(**story.envelope(), **where, cause=cause))

    return step


def _setting_step(kind: type[AnyEvent], **fields: Any) -> Step:
    def step(story: Story) -> None:
        story.append(kind(**story.envelope(), **fields))

    return step


def held(
    worker: str, *, namespace: str = NAMESPACE, reason: str = "", drain: bool = False
) -> Step:
    """An operator keeps traffic away from the worker; ``drain``: and has it drain."""
    who = {"namespace": namespace, "worker_id": worker, "drain": drain}
    return _setting_step(WorkerHeld, **who, reason=reason)


def resumed(worker: str, *, namespace: str = NAMESPACE, reason: str = "") -> Step:
    """The hold is lifted."""
    who = {"namespace": namespace, "worker_id": worker}
    return _setting_step(WorkerResumed, **who, reason=reason)


def weighted(
    weight: float, *, namespace: str = NAMESPACE, model: str = MODEL, reason: str = ""
) -> Step:
    """An operator gives a namespace its share of a model's traffic."""
    fields = {"namespace": namespace, "model": model, "weight": weight}
    return _setting_step(TrafficWeightSet, **fields, reason=reason)


def thresholds(model: str = MODEL, **limits: Any) -> Step:
    """An operator says from where on a worker is busy."""
    return _setting_step(LoadThresholdsSet, model=model, **limits)


def forgotten(model: str = MODEL, *, reason: str = "") -> Step:
    """An operator has a name forgotten."""
    return _setting_step(ModelForgotten, model=model, reason=reason)


def poison(subject: str, payload: bytes) -> Step:
    """Bytes that are no event of this version."""

    def step(story: Story) -> None:
        story.store(subject, payload)

    return step
