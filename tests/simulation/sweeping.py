"""Running seed after seed: until the first fails, or for hours and gathering them."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator

import msgspec

from tests.simulation.crew import Crew, Lost, Task
from tests.simulation.failures import Failure, Shrink, Try
from tests.simulation.outcome import Broken, Outcome
from tests.simulation.progress import Tally

SHRINKS_MAX = 10
"""Of one invariant. Then its seeds are only counted: there is enough to mend."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How long things may take, in real time."""

    seconds: float
    """No seed is begun afterwards; one is run in any case."""
    shrink_s: float
    stuck_s: float
    """A run that takes longer is a failure: nothing simulated is that slow."""


class Sweep:
    """Seeds, one after the other, tried by a crew. What fails is kept."""

    def __init__(self, crew: Crew, seeds: range, limits: Limits) -> None:
        self.tally = Tally()
        self.failed: list[Failure] = []
        """All that failed, in the order seen: not shrunk."""
        self._seen: dict[int, Outcome] = {}
        self._crew, self._limits = crew, limits
        self._seeds = iter(seeds)
        self._handed_out = 0

    def until_one_fails(self, *, until: Callable[[], bool]) -> Iterator[None]:
        """Try seeds until one fails or the time is up; now and then a moment."""
        for answered in self._crew.work_off(self._next_seed, until=until):
            if answered is not None:
                self._note(*answered)
            if self.failed:
                return
            yield

    def gather(self, *, until: Callable[[], bool]) -> Iterator[Failure | None]:
        """Try seeds until the time is up: each failure that was shrunk, as it comes."""
        to_shrink: deque[Task] = deque()
        started: Counter[str] = Counter()

        def next_task() -> Task | None:
            return to_shrink.popleft() if to_shrink else self._next_seed()

        for answered in self._crew.work_off(next_task, until=until):
            yield None
            if answered is None:
                continue
            task, answer = answered
            if isinstance(task, Shrink):
                yield _shrunk(task, answer)
            elif (failure := self._note(task, answer)) is not None:
                kind = failure.broken.invariant
                started[kind] += 1
                if started[kind] <= SHRINKS_MAX and failure.seed in self._seen:
                    to_shrink.append(self._shrinking(failure.seed))

    def shrunk(
        self, failure: Failure, *, until: Callable[[], bool]
    ) -> Iterator[Failure | None]:
        """The failure, shrunk, at last; before that a moment now and then.

        A seed that got stuck stays as it is, as does one while we are stopped.
        """
        if failure.seed not in self._seen:
            yield failure
            return
        tasks = iter((self._shrinking(failure.seed),))
        for answered in self._crew.work_off(lambda: next(tasks, None), until=until):
            yield None
            if answered is not None and isinstance(answered[0], Shrink):
                yield _shrunk(*answered)
                return
        yield failure

    def _next_seed(self) -> Try | None:
        if self._handed_out and self.tally.elapsed_s >= self._limits.seconds:
            return None
        seed = next(self._seeds, None)
        if seed is None:
            return None
        self._handed_out += 1
        return Try(seed=seed, limit_s=self._limits.stuck_s)

    def _note(self, task: Try, answer: Outcome | Lost) -> Failure | None:
        """Count a seed; the failure that it is, if so."""
        if isinstance(answer, Lost):
            failure = _lost(task.seed, answer)
        else:
            self.tally.add(answer)
            if answer.broken is None:
                return None
            self._seen[task.seed] = answer
            failure = Failure(seed=task.seed, broken=answer.broken)
        self.failed.append(failure)
        return failure

    def _shrinking(self, seed: int) -> Shrink:
        for_s = self._limits.shrink_s
        return Shrink(
            seen=self._seen[seed], for_s=for_s, limit_s=for_s + 3 * self._limits.stuck_s
        )


def _shrunk(task: Shrink, answer: Failure | Lost) -> Failure:
    if isinstance(answer, Lost):
        return Failure(seed=task.seen.seed, broken=task.seen.broken)
    return answer


def _lost(seed: int, lost: Lost) -> Failure:
    name = "stuck" if lost.stuck else "died"
    broken = Broken(invariant=name, what=lost.what, at_s=0.0)
    return Failure(seed=seed, broken=broken, trace=lost.where)
