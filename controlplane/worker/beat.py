"""Beats: sent from a thread of their own, on a connection of their own.

So a worker whose event loop is blocked, loading a model, goes on living, and a process
that is stopped falls silent. Code that holds the interpreter's lock for longer than
the lease silences the thread too: then let ``controlplane run`` beat from outside.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import suppress
from typing import Final

import msgspec

from controlplane.beats import Beat, encode_signal
from controlplane.broker import Broker
from controlplane.logs import get_logger
from controlplane.settings import Settings
from controlplane.telemetry import WorkerMetrics

STOP_S: Final = 3.0
"""So long the thread has to close its connection."""
AGAIN_S: Final = 1.0
"""So long after an unforeseen failure the thread connects anew."""
IDLE_S: Final = 60.0

_log = get_logger("worker")


class Kept(msgspec.Struct):
    """A life that is kept alive, and when its next beat is due."""

    subject: str
    beat: Beat
    every_s: float
    due_at: float = 0.0
    heard_at: float | None = None
    """When it was last said to live."""
    longest_s: float = 0.0
    """Its longest silence so far."""


class BeatSchedule:
    """Which life beats when. Safe from any thread; tells no time itself."""

    def __init__(self) -> None:
        """Start without lives."""
        self._kept: Final[dict[Hashable, Kept]] = {}
        self._lock: Final = threading.Lock()

    def keep(self, key: Hashable, kept: Kept) -> None:
        """Have a life beat, first at once."""
        with self._lock:
            self._kept[key] = kept

    def change(self, key: Hashable, beat: Beat) -> bool:
        """Have a kept life send another beat, at once; False: it is not kept."""
        with self._lock:
            kept = self._kept.get(key)
            if kept is None:
                return False
            kept.beat, kept.due_at = beat, 0.0
            return True

    def drop(self, key: Hashable) -> None:
        """Let a life fall silent."""
        with self._lock:
            self._kept.pop(key, None)

    def silence_s(self, key: Hashable, at: float) -> float:
        """A life's longest silence, up to ``at``; 0 for one that is not kept."""
        with self._lock:
            kept = self._kept.get(key)
            if kept is None or kept.heard_at is None:
                return 0.0
            return max(kept.longest_s, at - kept.heard_at)

    def hurry(self) -> None:
        """Make every beat due."""
        with self._lock:
            for kept in self._kept.values():
                kept.due_at = 0.0

    def due(self, at: float) -> list[tuple[str, Beat]]:
        """The beats that are due; each is due again after its interval."""
        with self._lock:
            return list(self._due(at))

    def _due(self, at: float) -> Iterator[tuple[str, Beat]]:
        for kept in self._kept.values():
            if kept.due_at <= at:
                kept.due_at = at + kept.every_s
                if kept.heard_at is not None:
                    kept.longest_s = max(kept.longest_s, at - kept.heard_at)
                kept.heard_at = at
                yield kept.subject, kept.beat

    def next_at(self) -> float | None:
        """When the next beat is due; None: there is no life."""
        with self._lock:
            return min((kept.due_at for kept in self._kept.values()), default=None)


class Beater:
    """Sends the beats of a schedule through a broker, in the loop it is run in."""

    def __init__(self, schedule: BeatSchedule, metrics: WorkerMetrics | None) -> None:
        """Send what ``schedule`` says; count it in ``metrics``."""
        self._schedule, self._metrics = schedule, metrics
        self._wake: Final = asyncio.Event()

    def wake(self) -> None:
        """Look at the schedule again; from the loop's own thread."""
        self._wake.set()

    async def run(self, broker: Broker) -> None:
        """Beat until cancelled. While the broker is away nothing is sent, or kept."""
        loop = asyncio.get_running_loop()
        unlisten = broker.on_connection(self._on_connection)
        try:
            while True:
                self._wake.clear()
                if broker.connected:
                    await self._send(broker, loop.time())
                await self._rest(loop, connected=broker.connected)
        finally:
            unlisten()

    def _on_connection(self, connected: bool) -> None:  # noqa: FBT001 - the broker's listener
        if connected:
            self._schedule.hurry()
            self._wake.set()

    async def _send(self, broker: Broker, at: float) -> None:
        for subject, beat in self._schedule.due(at):
            sent = msgspec.structs.replace(beat, server_id=broker.server_id or "")
            await broker.publish(subject, encode_signal(sent))
            if self._metrics is not None:
                self._metrics.beats_sent.inc()

    async def _rest(self, loop: asyncio.AbstractEventLoop, *, connected: bool) -> None:
        due_at = self._schedule.next_at()
        rest_s = IDLE_S
        if connected and due_at is not None:
            rest_s = max(0.0, due_at - loop.time())
        timer = loop.call_later(rest_s, self._wake.set)
        try:
            await self._wake.wait()
        finally:
            timer.cancel()


class BeatThread:
    """All beats of a plane. The thread starts with the first life, and once.

    ``connect`` makes the thread's own broker connection; it is called in the thread,
    as often as a connection is needed. The thread does not keep the process alive.
    """

    def __init__(
        self,
        connect: Callable[[], Broker],
        settings: Settings,
        metrics: WorkerMetrics | None = None,
    ) -> None:
        """Prepare; nothing runs yet."""
        self._connect, self._settings, self._metrics = connect, settings, metrics
        self._schedule: Final = BeatSchedule()
        self._lock: Final = threading.Lock()
        self._thread: _Thread | None = None
        self._stopped = False

    @property
    def running(self) -> bool:
        """Whether the thread runs."""
        thread = self._thread
        return thread is not None and thread.is_alive()

    def keep(self, key: Hashable, subject: str, beat: Beat, ttl_s: float) -> None:
        """Beat for a life, at once and then ``settings.beats_per_ttl`` times a lease.

        A life of the same key is replaced. After `stop` nothing is kept: nobody is
        left who would end it.
        """
        every_s = ttl_s / self._settings.beats_per_ttl
        kept = Kept(subject, beat, every_s, heard_at=time.monotonic())
        with self._lock:
            if self._stopped:
                return
            self._schedule.keep(key, kept)
            if self._thread is None:
                beater = Beater(self._schedule, self._metrics)
                self._thread = _Thread(self._connect, beater)
                self._thread.start()
            self._thread.wake()

    def change(self, key: Hashable, beat: Beat) -> None:
        """Say something else in a life's beats, from now on; unknown: nothing."""
        with self._lock:
            if self._schedule.change(key, beat) and self._thread is not None:
                self._thread.wake()

    def drop(self, key: Hashable) -> None:
        """Beat no more for this life. Idempotent."""
        self._schedule.drop(key)

    def silence_s(self, key: Hashable) -> float:
        """How long a life was silent at the longest, until now; unknown: 0.

        The clock goes on while the process is stopped.
        """
        return self._schedule.silence_s(key, time.monotonic())

    async def stop(self) -> None:
        """End the thread and close its connection, within `STOP_S`, for good."""
        with self._lock:
            self._stopped = True
            thread, self._thread = self._thread, None
        if thread is not None:
            thread.end()
            await asyncio.to_thread(thread.join, STOP_S)


class _Thread(threading.Thread):
    """A thread with an event loop in which a beater runs, whatever happens."""

    def __init__(self, connect: Callable[[], Broker], beater: Beater) -> None:
        super().__init__(name="controlplane beats", daemon=True)
        self._connect, self._beater = connect, beater
        self._lock: Final = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._main: asyncio.Task[None] | None = None
        self._ending = False

    def wake(self) -> None:
        """Have the beater look at its schedule; from any thread."""
        with self._lock:
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._beater.wake)

    def end(self) -> None:
        """Have the thread end; from any thread."""
        with self._lock:
            self._ending = True
            if self._loop is not None and self._main is not None:
                self._loop.call_soon_threadsafe(self._main.cancel)

    def run(self) -> None:
        """Beat until told to end."""
        with suppress(asyncio.CancelledError):
            asyncio.run(self._live())

    async def _live(self) -> None:
        with self._lock:
            if self._ending:
                return
            self._loop, self._main = asyncio.get_running_loop(), asyncio.current_task()
        try:
            while True:
                await self._beat()
                await asyncio.sleep(AGAIN_S)
        finally:
            with self._lock:
                self._loop = None

    async def _beat(self) -> None:
        """Beat over one connection, which comes back by itself as long as it can."""
        broker = None
        try:
            broker = self._connect()
            await broker.start()
            await self._beater.run(broker)
        except Exception as error:  # noqa: BLE001 - a silent thread kills every life
            _log.exception("beats failed", reason=str(error))
        finally:
            if broker is not None:
                await broker.stop()
