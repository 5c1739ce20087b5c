"""What operators' commands say of a decision and of a gate. Pure: lines of text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec
from rich.text import Text

from controlplane.gate import Deployment, DrainResult, ReadyResult, Unseen
from events import ModelName, Namespace, Revision, Status, WorkerHeld, WorkerId
from projections import Fleet, traffic_share

from .columns import shown
from .tables import BAD, GOOD, ODD

NO_VIEW: Final = "no view is up to date; start a projector: controlplane projector"
UNSEEN: Final = {
    Unseen.NO_PROJECTOR: (
        "no router sees it before a projector runs: controlplane projector"
    ),
    Unseen.BEHIND: "no view was up to date in time; look: controlplane models",
}


class Decided(msgspec.Struct, frozen=True, kw_only=True):
    """A decision that is in the log."""

    kind: str
    """``hold``, ``resume``, ``weight``, ``thresholds``, ``forget``, ``drain``."""
    about: dict[str, Any]
    """Whom or what it concerns, and the values."""
    said: str
    """It in words."""
    revision: Revision
    by: str
    reason: str
    notes: tuple[str, ...] = ()

    def document(self) -> dict[str, Any]:
        """It as plain data."""
        return {
            "decision": self.kind,
            **self.about,
            "revision": self.revision,
            "by": self.by,
            "reason": self.reason,
            "notes": list(self.notes),
        }

    def lines(self) -> list[Text]:
        """It for people: what stands, then what they may not have expected."""
        first = f"{self.said}: revision {self.revision}, by {self.by}"
        return [*_good(first), *note_lines(self.notes)]


def worker_notes(
    fleet: Fleet | Unseen, namespace: Namespace, worker_id: WorkerId, waits: str
) -> Iterator[str]:
    """What is to be said of a decision about a worker; ``waits``: when it is not there.

    ``fleet`` is the one after the decision.
    """
    if isinstance(fleet, Unseen):
        yield UNSEEN[fleet]
    elif (namespace, worker_id) not in fleet.state.workers:
        yield f"no worker of this name is registered now; {waits}"


def resume_notes(
    fleet: Fleet | Unseen,
    namespace: Namespace,
    worker_id: WorkerId,
    lifted: WorkerHeld | None,
) -> Iterator[str]:
    """What is to be said of the hold that was ``lifted``; None: there was none."""
    if lifted is None:
        yield "it was not held, so nothing changed"
    worker = None if isinstance(fleet, Unseen) else fleet.worker(namespace, worker_id)
    blockers: list[str] = [] if worker is None else list(worker.blockers)
    if worker is not None and lifted is not None and lifted.drain:
        status = worker.status.value
        if worker.status in (Status.DRAINING, Status.DRAINED):
            blockers.remove(status)
            says = "a sidecar does, by itself, in a moment"
            yield f"it is {status} until it says ready: {says}"
    if blockers:
        yield f"it gets no traffic all the same: {', '.join(blockers)}"
    waits = "it gets traffic when it comes"
    yield from worker_notes(fleet, namespace, worker_id, waits)


def weight_notes(
    fleet: Fleet | Unseen, namespace: Namespace, model: ModelName
) -> Iterator[str]:
    """What a weight comes to now."""
    if isinstance(fleet, Unseen):
        yield UNSEEN[fleet]
    elif model == "*":
        workers = fleet.state.workers.values()
        if not any(worker.namespace == namespace for worker in workers):
            yield "no worker is registered in this namespace now; the weight waits"
    elif not any(key.namespace == namespace for key in fleet.sets(model)):
        yield "no worker of this model is registered there now; the weight waits"
    else:
        share = traffic_share(fleet, namespace, model)
        if share is None:
            yield f"no worker of {model} may be picked now, in any namespace"
        else:
            yield f"it has {share:.0%} of the traffic of {model} now"


def known_notes(fleet: Fleet | Unseen, model: ModelName) -> Iterator[str]:
    """What is to be said of a decision about a model."""
    if isinstance(fleet, Unseen):
        yield UNSEEN[fleet]
    elif model not in fleet.state.known:
        yield "no worker ever served a model of this name; the decision waits"


def forget_notes(fleet: Fleet | Unseen, model: ModelName) -> Iterator[str]:
    """What is to be said of a name that was forgotten."""
    if isinstance(fleet, Unseen):
        yield UNSEEN[fleet]
    elif model in fleet.state.known:
        yield "a worker registered it meanwhile: it stays known"


def adapter_of(fleet: Fleet, name: str) -> list[ModelName]:
    """The models whose workers have ``name`` as an adapter; none: it is a model's."""
    workers = fleet.state.workers.values()
    models = {worker.model for worker in workers if name in worker.adapters}
    if any(worker.model == name for worker in workers):
        return []
    return sorted(models)


# ---- gates ---------------------------------------------------------------------
def ready_lines(
    result: ReadyResult, deployment: Deployment, least: int, timeout_s: float, live: int
) -> list[Text]:
    """What came of waiting for a deployment at routers, of which ``live`` live."""
    what = f"{deployment.model} in {deployment.namespace}"
    have = f"{what}, {result.ready} of {least} ready"
    if result.reached:
        return _good(f"reached: {have}")
    said = f"not reached within {timeout_s:g} s"
    if result.ready is None:
        return _bad(f"{said}: {what}", NO_VIEW)
    reasons = ", ".join(f"{n} {reason}" for reason, n in result.blockers.items())
    who = f"missing: {', '.join(result.missing)}"
    if live == 0:
        who = "no router is live"
    elif not result.missing:
        who = f"more routers are wanted, only {live} live"
    return _bad(f"{said}: {have}", f"in the way: {reasons}" if reasons else "", who)


def drain_lines(
    result: DrainResult, name: str, timeout_s: float, word: str = ""
) -> list[Text]:
    """Where a worker stands that was to drain within ``timeout_s``.

    ``word``: what it said last itself; it may have had a deadline of its own.
    """
    if result.safe_to_delete:
        said = f"it said: {word}" if word else ""
        return _good(f"{result.state}: {name} is safe to delete", said)
    said = f"not drained within {timeout_s:g} s: {name}"
    if result.state == "unknown":
        return _bad(said, NO_VIEW)
    if result.state == "never_seen":
        take_back = f"if the name is wrong, lift its hold: controlplane resume {name}"
        return _bad(f"never seen: no record of the log names {name}", take_back)
    next_step = "wait longer with --timeout, or look: controlplane workers"
    if result.state in ("away", "drained"):
        return _bad(said, "it must stay so for 2 s: it may be started again", next_step)
    return _bad(f"{said} is {result.state}", next_step)


def _good(said: str, *more: str) -> list[Text]:
    return [
        Text(shown(said), style=GOOD),
        *note_lines(line for line in more if line),
    ]


def _bad(said: str, *more: str) -> list[Text]:
    return [
        Text(shown(said), style=BAD),
        *note_lines(line for line in more if line),
    ]


def note_lines(notes: Iterable[str]) -> Iterator[Text]:
    """Notes for people, below what they are about."""
    return (Text(f"  {shown(note)}", style=ODD) for note in notes)
