"""An event loop in virtual time, in which many processes live in one.

Time passes only when nobody has anything to do: then it jumps to the next timer. The
same callbacks come in the same order on every run; nothing depends on addresses,
hashes, threads or the machine's clock.

Every callback belongs to the `Process` whose context it was scheduled in. A process
can be frozen (its callbacks wait, as after SIGSTOP), continued, and killed (its
callbacks never run, not even ``finally`` blocks, as after SIGKILL).

If time does not pass because there is always something to do, `LivelockError` ends it.
"""

from __future__ import annotations

import asyncio
import enum
import itertools
import warnings
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from contextvars import Context, ContextVar, copy_context
from functools import partial
from heapq import heappop, heappush
from typing import Any, Final

import msgspec

PROCESS: ContextVar[Process | None] = ContextVar("process", default=None)
BUSY_MAX: Final = 200_000
INSTANT_S: Final = 0.001
"""More callbacks than that within such an instant, and nobody will ever be done."""


class LivelockError(RuntimeError):
    """Time stands still: there is always something to do."""


class State(enum.Enum):
    """What the operating system does with a process."""

    RUNNING = "running"
    FROZEN = "frozen"
    DEAD = "dead"


RUNNING: Final = State.RUNNING


class Process:
    """A group of callbacks with one fate, and clocks of its own."""

    def __init__(self, name: str, loop: SimLoop) -> None:
        self.name: Final = name
        self.state = State.RUNNING
        self.version: object = None
        """Which software it runs; see `SimLoop.switch`."""
        self.look: Callable[[], None] | None = None
        """Called after each of its callbacks."""
        self.die_in = -1
        """After so many more callbacks it is killed; below 0: none of it."""
        self.at_death: Callable[[], None] | None = None
        self._loop: Final = loop
        self._waiting: list[Handle] = []
        self._tasks: list[asyncio.Task[Any]] = []
        self.context: Final = copy_context()
        self.context.run(PROCESS.set, self)

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run ``work`` as a task of this process."""
        task = self._loop.create_task(work, context=self.context)
        self._tasks.append(task)  # a task that nobody holds may be collected
        task.add_done_callback(self._look_at_end)
        return task

    def _look_at_end(self, task: asyncio.Task[Any]) -> None:
        """What ended with an error that nobody expected is a finding."""
        error = None if task.cancelled() else task.exception()
        if error is not None and self._loop.at_failure is not None:
            self._loop.at_failure(self, error)

    def freeze(self) -> None:
        """SIGSTOP."""
        if self.state is State.RUNNING:
            self.state = State.FROZEN

    def thaw(self) -> None:
        """SIGCONT: all that waited happens now, in its order."""
        if self.state is State.FROZEN:
            self.state = State.RUNNING
            waiting, self._waiting = self._waiting, []
            self._loop.ready.extendleft(reversed(waiting))

    def kill(self) -> None:
        """SIGKILL."""
        if self.state is not State.DEAD:
            self.state = State.DEAD
            if self.at_death is not None:
                self.at_death()

    def withhold(self, handle: Handle) -> None:
        """Keep a callback that may not run now, or never.

        A task that nobody holds would be closed, with its ``finally`` blocks.
        """
        self._waiting.append(handle)


class Handle(msgspec.Struct):
    """A callback to come: what, with what, in which context, of which process.

    Looks like asyncio's, as far as anybody looks.
    """

    callback: Callable[..., object] | None
    args: tuple[Any, ...]
    context: Context
    process: Process | None

    def cancel(self) -> None:
        self.callback = None

    def cancelled(self) -> bool:
        return self.callback is None


class SimTask(asyncio.Task):  # type: ignore[type-arg]
    """A task whose place in a set does not depend on its address."""

    def __init__(self, number: int, work: Any, **options: Any) -> None:
        self._number = number
        super().__init__(work, **options)

    def __hash__(self) -> int:
        return self._number

    def __eq__(self, other: object) -> bool:
        return self is other


class SimLoop(asyncio.AbstractEventLoop):
    """The loop. See the module."""

    def __init__(self) -> None:
        self.ready: Final[deque[Handle]] = deque()
        self.callbacks = 0
        """So many have run."""
        self.switch: Callable[[object], None] | None = None
        """Called with a process's version before it runs, if another's ran last."""
        self.at_failure: Callable[[Process, BaseException], None] | None = None
        """Called when a task that a process spawned ends with an error."""
        self.failures: Final[list[dict[str, Any]]] = []
        self._now_s = 0.0
        self._timers: list[tuple[float, int, Handle]] = []
        self._numbers = itertools.count()
        self._version: object = None
        self._closed = False
        self._halted = False
        self.create_future = partial(asyncio.Future, loop=self)  # type: ignore[method-assign]

    # ---- running ---------------------------------------------------------------
    def run_to(self, end_s: float) -> None:
        """Run everything that is due up to ``end_s``, or until `halt`."""
        with self._running():
            self._run_until(end_s)
        if not self._halted:
            self._now_s = max(self._now_s, end_s)

    def _run_until(self, end_s: float) -> None:  # noqa: C901, PLR0912 - see below
        """The hot loop of everything, in one piece: calls cost a fortieth of a run."""
        ready, timers, take = self.ready, self._timers, self.ready.popleft
        now_s = since_s = self._now_s
        busy = 0
        while not self._halted:
            while timers and timers[0][0] <= now_s:
                ready.append(heappop(timers)[2])
            count = len(ready)
            if not count:
                if not timers or timers[0][0] > end_s:
                    return
                self._now_s = now_s = timers[0][0]
                if now_s - since_s >= INSTANT_S:
                    since_s, busy = now_s, 0
                continue
            busy += count
            if busy > BUSY_MAX:
                raise LivelockError(self._said(ready[0]))
            while count and not self._halted:
                count -= 1
                handle = take()
                callback, process = handle.callback, handle.process
                if callback is None:
                    continue
                if process is None:
                    self._put_on(None)
                    handle.context.run(callback, *handle.args)
                elif process.state is not RUNNING:
                    process.withhold(handle)
                else:
                    if process.version is not self._version:
                        self._put_on(process.version)
                    self.callbacks += 1
                    handle.context.run(callback, *handle.args)
                    if process.look is not None:
                        process.look()
                    if process.die_in > 0:
                        self._count_down(process)

    def _said(self, handle: Handle) -> str:
        who = "nobody" if handle.process is None else handle.process.name
        what = getattr(handle.callback, "__qualname__", "a task")
        busy = f"more than {BUSY_MAX} callbacks within {INSTANT_S} s"
        return f"{busy}; the next is of {who}: {what}"

    def _count_down(self, process: Process) -> None:
        process.die_in -= 1
        if process.die_in == 0:
            process.kill()

    def _put_on(self, version: object) -> None:
        """Be of ``version``; whoever is of no process is of none either."""
        if version is not self._version and self.switch is not None:
            self._version = version
            self.switch(version)

    def halt(self) -> None:
        """Stop running, for good: enough was seen."""
        self._halted = True

    @contextmanager
    def _running(self) -> Iterator[None]:
        before = asyncio._get_running_loop()
        asyncio._set_running_loop(self)
        try:
            with _known_at_once(self):
                yield
        finally:
            self._put_on(None)
            asyncio._set_running_loop(before)

    # ---- what asyncio asks of a loop -------------------------------------------
    def time(self) -> float:
        return self._now_s

    def call_soon(self, callback: Any, *args: Any, context: Any = None) -> Any:
        if context is None:
            context = copy_context()
        handle = Handle(callback, args, context, context.get(PROCESS))
        self.ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon

    def call_later(
        self, delay: float, callback: Any, *args: Any, context: Any = None
    ) -> Any:
        return self.call_at(self._now_s + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Any, *args: Any, context: Any = None
    ) -> Any:
        if context is None:
            context = copy_context()
        return self.schedule(when, callback, args, context)

    def schedule(
        self,
        when: float,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: Context,
    ) -> Handle:
        """As `call_at`, for those who call it most."""
        handle = Handle(callback, args, context, context.get(PROCESS))
        heappush(self._timers, (when, next(self._numbers), handle))
        return handle

    def create_task(
        self, coro: Any, *, name: Any = None, context: Any = None
    ) -> asyncio.Task[Any]:
        return SimTask(
            next(self._numbers), coro, loop=self, name=name or "task", context=context
        )

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Any, *args: Any
    ) -> asyncio.Future[Any]:
        """No threads here: it happens a moment later, in one piece."""
        del executor
        future = self.create_future()

        def run() -> None:
            if future.cancelled():
                return
            try:
                future.set_result(func(*args))
            except Exception as error:  # noqa: BLE001 - the caller's, as in a thread
                future.set_exception(error)

        self.call_soon(run)
        return future

    get_debug = staticmethod(bool)
    """False. Every future asks, so it is not written in Python."""

    def is_running(self) -> bool:
        return asyncio._get_running_loop() is self

    def is_closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        self._closed = True

    def end_tasks(self) -> None:
        """Close what was begun and will never go on, before it is garbage.

        What coroutines do when they are closed makes new references, and a collector
        that closes them lets all that these reach live until it comes again.
        """
        with warnings.catch_warnings():
            # Coroutines that a process made and did not come to start.
            warnings.simplefilter("ignore", RuntimeWarning)
            for task in asyncio.all_tasks(self):
                with suppress(BaseException):
                    task.get_coro().close()  # type: ignore[union-attr]

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Keep what nobody asked for, as an error that no task's owner looked at."""
        if not self._closed:
            self.failures.append(context)


@contextmanager
def _known_at_once(loop: SimLoop) -> Iterator[None]:
    """Answer which loop runs without asking the operating system who asks.

    The interpreter's own answer looks up the process's id each time, a system call:
    nearly a fifth of a run.
    """

    def running() -> SimLoop:
        return loop

    places = [
        (module, name, getattr(module, name))
        for module in (asyncio, asyncio.events)
        for name in ("get_running_loop", "_get_running_loop")
    ]
    for module, name, _ in places:
        setattr(module, name, running)
    try:
        yield
    finally:
        for module, name, found in places:
            setattr(module, name, found)
