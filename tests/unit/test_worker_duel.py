"""Workers of one id, a leader and a log, in any order of events.

The broker is a list here: it accepts an append whose expectation holds. Everything
else (which process moves, which append is refused, who is expired, what notices come)
is drawn. Whatever happens, a life that ended does not come back.
"""

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from controlplane.beats import WireNotice
from controlplane.errors import AppendConflictError, LogUnavailableError
from controlplane.worker.core import WorkerCore
from controlplane.worker.declared import UNSEALED
from controlplane.worker.phase import Phase
from controlplane.worker.signals import (
    Append,
    Appended,
    Begin,
    Conflicted,
    End,
    Failed,
    LoadAdapter,
    Noticed,
    Pause,
    ReadSubject,
    Resumed,
    SetStatus,
    SubjectRead,
)
from controlplane.worker.signals import Leave as LeaveCommand
from controlplane.worker.spec import ResolvedSpec
from events import (
    Record,
    Status,
    WorkerDeregistered,
    WorkerExpired,
    WorkerRegistered,
)
from tests.support.fleet_builder import START, uuid7

SPEC = ResolvedSpec(
    model="llama", address="http://w:1", namespace="prod", worker_id="w"
)
SUBJECT = "log.worker.prod.w"
RARE = ("command", "leave", "expire unread")
MOVES = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.sampled_from((*["work"] * 3, "fail", "lose", "expire", "notice", *RARE)),
        st.integers(0, 5),
    ),
    max_size=80,
)


class World:
    """One subject, the processes that fight for it, and their jobs."""

    def __init__(self, processes: int) -> None:
        self.log: list[Record] = []
        self.made = 0
        self.cores = [WorkerCore(SPEC, self.fresh()) for _ in range(processes)]
        self.jobs = [self.do(core, Begin()) for core in self.cores]

    def fresh(self) -> str:
        """Incarnations that grow, as time-ordered ids do."""
        self.made += 1
        return f"{self.made:08x}{uuid7('fresh', self.made)[8:]}"

    def do(self, core: WorkerCore, given: object):
        was_over = core.ended
        effects = core.step(given)
        assert not (was_over and effects), "an ended worker did something"
        jobs = [e for e in effects if isinstance(e, Append | ReadSubject | Pause)]
        assert len(jobs) <= 1
        assert not (jobs and any(isinstance(e, End) for e in effects))
        return jobs[0] if jobs else None

    def step(self, place: int, given: object, *, answers: bool = False) -> None:
        """Give a process an input; the job that follows takes the place of its own."""
        core = self.cores[place]
        job = self.do(core, given)
        open_job = None if answers else self.jobs[place]
        if isinstance(open_job, Pause) and job is not None:
            open_job = None  # whatever is to be done ends a pause
        assert job is None or open_job is None, "two jobs at a time"
        self.jobs[place] = None if core.ended else job or open_job

    def store(self, event) -> int:
        revision = len(self.log) + 1
        self.log.append(Record(revision, START, SUBJECT, event))
        return revision

    def work(self, place: int, *, lose: bool = False) -> None:
        match self.jobs[place]:
            case ReadSubject(after=after):
                records = () if after is None else tuple(self.log[after:])
                answer = SubjectRead(
                    log_id="log",
                    last=len(self.log),
                    records=records,
                    whole=False,
                    fresh=self.fresh(),
                )
            case Append(draft=draft, expected=expected):
                if expected == len(self.log):
                    revision = self.store(draft)
                    if lose:
                        return  # stored, unanswered: the same bytes will be repeated
                    answer = Appended(revision)
                elif self.log and self.log[-1].event is draft:
                    answer = Appended(len(self.log))
                else:
                    answer = Conflicted(
                        AppendConflictError(
                            subject=SUBJECT,
                            expected=expected,
                            last=len(self.log),
                            code=10071,
                        )
                    )
            case Pause():
                answer = Resumed()
            case _:
                return
        self.step(place, answer, answers=True)

    def fail(self, place: int) -> None:
        job = self.jobs[place]
        stored = isinstance(job, Append) and any(r.event is job.draft for r in self.log)
        if isinstance(job, Append | ReadSubject) and not stored:
            error = LogUnavailableError(url="nats://x", doing="testing")
            self.step(place, Failed(error), answers=True)

    # ---- what others do --------------------------------------------------------
    def current(self):
        """The current life by the log: its incarnation, or None."""
        life = None
        for record in self.log:
            match record.event:
                case WorkerRegistered(incarnation=incarnation):
                    life = incarnation
                case WorkerDeregistered() | WorkerExpired() as event:
                    life = None if event.incarnation == life else life
        return life

    def expire(self, incarnation) -> None:
        if incarnation is not None:
            self.store(
                WorkerExpired(
                    event_id="",
                    at=UNSEALED,
                    namespace="prod",
                    worker_id="w",
                    incarnation=incarnation,
                    silent_for_s=12.0,
                    observed_by="projector",
                )
            )

    def move(self, place: int, what: str, number: int) -> None:
        place %= len(self.cores)
        core = self.cores[place]
        match what:
            case "work":
                self.work(place)
            case "lose":
                self.work(place, lose=True)
            case "fail":
                self.fail(place)
            case "expire":
                self.expire(self.current())
            case "expire unread":
                self.expire(core.incarnation)
            case "notice":
                kinds = ("unknown", "expired", "superseded", "quarantined")
                notice = WireNotice(
                    incarnation=core.incarnation,
                    kind=kinds[number % len(kinds)],
                    reason="",
                    revision=len(self.log) - number,
                )
                self.step(place, Noticed(notice))
            case "command":
                statuses = list(Status)
                status = SetStatus(statuses[number % len(statuses)])
                self.step(place, status if number % 2 else LoadAdapter(str(number)))
            case "leave":
                self.step(place, LeaveCommand())

    def settle(self) -> None:
        """Let everybody work until nobody has anything to do."""
        for _ in range(500):
            for place in range(len(self.cores)):
                self.work(place)
        assert not any(self.jobs), "they never rest"


def lives_that_came_back(log: Sequence[Record]) -> list[str]:
    """Incarnations that registered again after they had ended or been superseded."""
    over, current, back = set(), None, []
    for record in log:
        match record.event:
            case WorkerRegistered(incarnation=incarnation):
                if incarnation in over:
                    back.append(incarnation)
                if current not in (None, incarnation):
                    over.add(current)
                current = incarnation
            case WorkerDeregistered() | WorkerExpired() as event:
                if event.incarnation == current:
                    over.add(current)
                    current = None
    return back


@settings(max_examples=300, deadline=None)
@given(st.integers(1, 3), MOVES)
def test_no_life_comes_back_and_at_most_one_remains(processes, moves):
    world = World(processes)
    for move in moves:
        world.move(*move)
    world.settle()
    assert not lives_that_came_back(world.log)
    for core in world.cores:
        if not core.ended:
            world.step(
                world.cores.index(core),
                Noticed(
                    WireNotice(
                        incarnation=core.incarnation,
                        kind="superseded",
                        reason="",
                        revision=0,
                    )
                ),
            )
    world.settle()
    alive = [core for core in world.cores if not core.ended]
    assert all(core.phase is Phase.REGISTERED for core in alive)
    assert all(core.settled for core in alive)
    assert [core.incarnation for core in alive] == [world.current()] * len(alive)
    assert len(alive) <= 1
