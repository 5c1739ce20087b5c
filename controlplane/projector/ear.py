"""How beats arrive, and the canaries that prove that they would."""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

from controlplane.beats import (
    Beat,
    Canary,
    decode_beat,
    decode_canary,
    encode_signal,
)
from controlplane.broker import Broker, CoreMessage, Subscription
from controlplane.clock import Clock
from controlplane.identifiers import new_uuid7
from controlplane.topology import CANARY, Names
from events import Namespace, WorkerId, decode_token
from projections import LeaseBook

BEATS_WAITING_MAX: Final = 1 << 18
PLACES_MAX: Final = 100_000
CANARIES_MAX: Final = 1000


class Listener(Protocol):
    """Who is told of a worker's beat."""

    def __call__(self, namespace: Namespace, worker_id: WorkerId, beat: Beat) -> None:
        """Take note of ``beat``."""
        ...


class Ear:
    """Hears every beat of the cell, and its own canaries among them."""

    def __init__(
        self,
        broker: Broker,
        names: Names,
        book: LeaseBook,
        clock: Clock,
        *,
        name: str,
        listener: Listener,
    ) -> None:
        """Tell ``listener`` of beats, and ``book`` of one's own canaries."""
        self._broker, self._names, self._book = broker, names, book
        self._clock, self._name, self._listener = clock, name, listener
        self._identity = new_uuid7()
        self._sent: dict[int, float] = {}
        self._places: dict[str, tuple[Namespace, WorkerId]] = {}
        self._heard = self._lost = self._lost_before = 0

    async def open(self, tasks: asyncio.TaskGroup, canary_every_s: float) -> None:
        """Subscribe, then listen and send canaries for as long as ``tasks`` run."""
        beats = await self._broker.subscribe(
            self._names.all_beats, limit=BEATS_WAITING_MAX
        )
        tasks.create_task(self._listen(beats))
        tasks.create_task(self._send_canaries(canary_every_s))

    def take_heard(self) -> int:
        """How many beats arrived since this was asked last."""
        heard, self._heard = self._heard, 0
        return heard

    def take_lost(self) -> int:
        """How many beats were dropped since this was asked last."""
        lost, self._lost = self._lost, 0
        return lost

    async def _listen(self, beats: Subscription) -> None:
        async for message in beats:
            self._take(message)
            if beats.lost > self._lost_before:
                self._lost += beats.lost - self._lost_before
                self._lost_before = beats.lost
                self._book.start_over(self._clock.monotonic())

    async def _send_canaries(self, every_s: float) -> None:
        subject, number = self._names.canary(self._name), 0
        while True:
            number += 1
            self._sent[number] = now = self._clock.monotonic()
            self._sent.pop(number - CANARIES_MAX, None)
            self._book.canary_sent(now)
            canary = Canary(projector=self._identity, number=number)
            await self._broker.publish(subject, encode_signal(canary))
            await asyncio.sleep(every_s)

    def _take(self, message: CoreMessage) -> None:
        place = self._places.get(message.subject) or self._place(message.subject)
        if place is None:
            return
        if place[0] == CANARY:
            self._take_canary(message.payload)
            return
        beat = decode_beat(message.payload)
        if beat is not None:
            self._heard += 1
            self._listener(*place, beat)

    def _take_canary(self, payload: bytes) -> None:
        canary = decode_canary(payload)
        if canary is None or canary.projector != self._identity:
            return
        sent_at = self._sent.pop(canary.number, None)
        if sent_at is not None:
            self._book.canary_returned(sent_at, self._clock.monotonic())

    def _place(self, subject: str) -> tuple[Namespace, WorkerId] | None:
        """Whose beat comes on ``subject``."""
        match self._names.relative(subject).split("."):
            case ["beat", namespace, token]:
                worker_id = decode_token(token)
                if worker_id is None:
                    return None
                if len(self._places) > PLACES_MAX:
                    self._places.clear()
                self._places[subject] = (namespace, worker_id)
                return self._places[subject]
        return None
