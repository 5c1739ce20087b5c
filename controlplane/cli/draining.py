"""``drain``: a worker is asked to finish; ``--wait``: until it is safe to delete."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter, validators

from controlplane.plane import Plane
from events import (
    Namespace,
    WorkerDeregistered,
    WorkerId,
    WorkerStatusChanged,
    worker_subject,
)

from .deciding import author_of, noted, parse_worker
from .decision_lines import Decided, drain_lines, worker_notes
from .exits import NO, OK
from .opening import opened
from .options import DECIDING, Deciding
from .printing import print_document, print_lines
from .running import run

Seconds = Annotated[float, Parameter(validator=validators.Number(gte=0))]


def drain(
    worker: str,
    /,
    *,
    wait: bool = False,
    timeout: Seconds = 30.0,
    options: Deciding = DECIDING,
) -> int:
    """Hold a worker and ask it to finish what it has.

    With --wait: 0 when it is drained or gone, so safe to delete; 1 when time is up. The
    worker itself says when: a sidecar by its own --drain-timeout at the latest, and
    then the last line tells what was still in flight. The hold stands until resume,
    also for its next life.

    Parameters
    ----------
    worker
        NAMESPACE/ID.
    wait
        Wait until it is safe to delete.
    timeout
        Seconds to wait.

    options
        What commands of its kind share.

    """
    where, by = parse_worker(worker), author_of(options)
    return run(lambda: _drain(where, by, timeout if wait else None, options), options)


async def _drain(
    where: tuple[Namespace, WorkerId],
    by: str,
    timeout_s: float | None,
    options: Deciding,
) -> int:
    name = "/".join(where)
    async with opened(options) as plane:
        done = await plane.request_drain(*where, options.reason, by=by)
        decided = Decided(
            kind="drain",
            about={"worker": name},
            said=f"asked {name} to drain",
            revision=done.revision,
            by=by,
            reason=options.reason,
        )
        waits = "it is told when it comes"
        decided = await noted(
            plane, decided, options, lambda fleet: worker_notes(fleet, *where, waits)
        )
        if timeout_s is None:
            if options.output != "table":
                print_document(decided.document())
            return OK
        result = await plane.wait_drained(*where, timeout_s)
        word = await _last_word(plane, where)
    if options.output == "table":
        print_lines(drain_lines(result, name, timeout_s, word))
    else:
        became = {
            "state": result.state,
            "safe_to_delete": result.safe_to_delete,
            "said": word,
        }
        print_document({**decided.document(), **became})
    return OK if result.safe_to_delete else NO


async def _last_word(plane: Plane, where: tuple[Namespace, WorkerId]) -> str:
    """Why the worker says that it drained or left, if it was it who spoke last."""
    record = await plane.log.last(worker_subject(*where))
    event = None if record is None else record.event
    if isinstance(event, WorkerStatusChanged | WorkerDeregistered):
        return event.reason
    return ""
