"""Processes that work off tasks, for a world that runs on one core at a time.

Each has an interpreter of its own (with hash randomisation as it comes), gets one
task after the other and gives one answer for each. They take no signals: they end
with their parent, or when it says so.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import multiprocessing
import signal
import tempfile
from collections.abc import Callable, Iterator
from multiprocessing import connection, resource_tracker
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Protocol, Self

import msgspec

from tests.simulation.running import World, world_named
from tests.simulation.stopping import SIGNALS

_MOMENT_S: Final = 0.25
_SPAWN: Final = multiprocessing.get_context("spawn")


class Task(Protocol):
    """Something to do in a world, in another process: it and its answer are data."""

    limit_s: float
    """What takes longer is `Lost`."""

    def do(self, world: World) -> Any:
        """The answer."""


class Lost(msgspec.Struct, frozen=True, kw_only=True):
    """No answer: the process was stuck in the task for too long, or died of it."""

    stuck: bool
    what: str
    where: tuple[str, ...]
    """What it was doing: the lines of a traceback, if there is one."""


class Crew:
    """So many processes. Each is replaced when a task was too much for it."""

    def __init__(self, world: str, jobs: int) -> None:
        self._world, self._jobs = world, jobs
        self._members: list[_Member] = []
        self._room: tempfile.TemporaryDirectory[str] | None = None

    def __enter__(self) -> Self:
        self._room = tempfile.TemporaryDirectory(prefix="simulation-")
        self._members = [self._member(number) for number in range(self._jobs)]
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for member in self._members:
            member.end()
        if self._room is not None:
            self._room.cleanup()

    def work_off(
        self, next_task: Callable[[], Task | None], *, until: Callable[[], bool]
    ) -> Iterator[tuple[Task, Any] | None]:
        """Tasks with their answers, as they come; None now and then in between.

        ``next_task`` gives None if there is nothing to do just now; when there is
        nothing to do and nobody at work, or ``until`` is true, this ends. Answers
        not yet there are then lost, and the crew should be as well.
        """
        while not until():
            for member in self._members:
                if member.task is None and (task := next_task()) is not None:
                    member.give(task)
            if not any(member.task for member in self._members):
                return
            yield from self._answers()
            yield None

    def _answers(self) -> Iterator[tuple[Task, Any]]:
        waiting = {m.pipe: m for m in self._members if m.task is not None}
        for pipe in connection.wait(list(waiting), timeout=_MOMENT_S):
            member = waiting[pipe]
            task = member.task
            answer = member.take()
            if isinstance(answer, Lost):
                number = self._members.index(member)
                self._members[number] = self._member(number)
            yield task, answer

    def _member(self, number: int) -> _Member:
        stuck = Path(self._room.name) / f"{number}.txt"
        return _Member(self._world, stuck)


class _Member:
    """One process."""

    def __init__(self, world: str, stuck: Path) -> None:
        self.task: Task | None = None
        self._stuck = stuck
        self.pipe, theirs = _SPAWN.Pipe()
        self._process = _SPAWN.Process(
            target=_serve, args=(theirs, world, stuck), daemon=True
        )
        resource_tracker.ensure_running()  # starting it would unblock the signals
        before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        try:
            self._process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        theirs.close()

    def give(self, task: Task) -> None:
        self.task = task
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.pipe.send(task)  # a process that is gone is noticed when reading

    def take(self) -> Any:
        task, self.task = self.task, None
        try:
            return self.pipe.recv()
        except (EOFError, ConnectionResetError):
            return self._lost(task)

    def _lost(self, task: Task) -> Lost:
        self._process.join()
        self.pipe.close()
        where = tuple(self._stuck.read_text().splitlines())
        if where:
            what = f"it took more than {task.limit_s:g} s"
        else:
            what = f"the process ended with code {self._process.exitcode}"
        return Lost(stuck=bool(where), what=what, where=where)

    def end(self) -> None:
        self.pipe.close()
        self._process.kill()
        self._process.join()


def _serve(pipe: connection.Connection, world_name: str, stuck_file: Path) -> None:
    """Answer tasks until the parent is gone."""
    with stuck_file.open("w") as stuck, contextlib.suppress(EOFError, OSError):
        world = world_named(world_name)
        gc.collect()
        gc.freeze()  # what was imported stays: no run's collection need look at it
        while True:
            task = pipe.recv()
            faulthandler.dump_traceback_later(task.limit_s, exit=True, file=stuck)
            answer = task.do(world)
            faulthandler.cancel_dump_traceback_later()
            pipe.send(answer)
