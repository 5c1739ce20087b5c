"""Inputs of a worker's core, and its effects in words."""

from controlplane.beats import WireNotice
from controlplane.errors import (
    AppendConflictError,
    LogUnavailableError,
)
from controlplane.worker.core import WorkerCore
from controlplane.worker.signals import (
    Append,
    Appended,
    Begin,
    Deliver,
    End,
    KeepBeating,
    Noticed,
    Pause,
    ReadSubject,
    SetStatus,
    SubjectRead,
)
from controlplane.worker.spec import ResolvedSpec
from events import Status
from tests.support import fleet_builder as builder

SPEC = ResolvedSpec(
    model="llama",
    address="http://w1.example:8000",
    namespace="prod",
    worker_id="w1",
    adapters=("old",),
)
OURS = builder.incarnation("w1", 1)
OTHER = builder.incarnation("w1", 2)
FRESH = "ffffffff-0000-7000-8000-000000000000"
LOG = "log-1"
UNAVAILABLE = LogUnavailableError(url="nats://x", doing="testing")
CONFLICT = AppendConflictError(subject="s", expected=1, last=2, code=10071)
HERE = builder.given(builder.starting("w1", adapters=("old",)))
LATER = {
    "intact": HERE,
    "expired": HERE.then(builder.expired("w1")),
    "left": HERE.then(builder.deregistered("w1")),
    "taken": HERE.then(builder.registered("w1")),
    "taken and left": HERE.then(builder.registered("w1"), builder.deregistered("w1")),
    "a late farewell": HERE.then(builder.deregistered("w1", life=7)),
    "unreadable": HERE.then(builder.poison("log.worker.prod.w1", b"?")),
}


def read(story: str, *, whole: bool = False, log_id: str = LOG) -> SubjectRead:
    """The subject's records after our registration (or, ``whole``, with it)."""
    records = LATER[story]
    return SubjectRead(
        log_id=log_id,
        last=len(records),
        records=tuple(records[0 if whole else 1 :]),
        whole=whole,
        fresh=FRESH,
    )


def gone(log_id: str = "log-2", records=()) -> SubjectRead:
    """Another log, which has nothing of ours."""
    return SubjectRead(
        log_id=log_id, last=len(records), records=records, whole=True, fresh=FRESH
    )


EMPTY = SubjectRead(log_id=LOG, last=0, records=(), whole=False, fresh=FRESH)


def notice(kind: str, revision: int = 1, incarnation: str = OURS) -> Noticed:
    return Noticed(
        WireNotice(incarnation=incarnation, kind=kind, reason="", revision=revision)
    )


def core_after(*inputs) -> WorkerCore:
    core = WorkerCore(SPEC, OURS)
    for given in inputs:
        core.step(given)
    return core


REGISTERED = (Begin(), EMPTY, Appended(1))
READY = SetStatus(Status.READY, "loaded")


_NAMES = {
    ReadSubject: lambda _: "read",
    Append: lambda e: f"append {type(e.draft).__name__}@{e.expected}",
    Pause: lambda _: "pause",
    KeepBeating: lambda e: f"beat@{e.revision}",
    Deliver: lambda e: f"deliver {e.kind}",
    End: lambda e: f"end {type(e.error).__name__}" if e.error else "end",
}


def shown(effect) -> str:
    """The effect in a word or two."""
    return _NAMES[type(effect)](effect)
