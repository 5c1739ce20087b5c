"""``hold``, ``resume``, ``weight``, ``thresholds``, ``forget``: operators decide."""

from __future__ import annotations

import getpass
import os
import socket
from collections.abc import Callable, Iterable
from typing import Annotated, Any, TypeAlias

import msgspec
from cyclopts import Parameter

from controlplane.gate import Unseen, glimpse
from controlplane.operators import check_count, check_share, check_weight
from controlplane.plane import Plane
from events import (
    InvalidIdentityError,
    ModelName,
    Namespace,
    WorkerHeld,
    WorkerId,
    check_model,
    check_name,
    check_namespace,
    check_reason,
    check_worker_id,
    setting_subject,
)
from projections import Fleet

from .decision_lines import (
    Decided,
    adapter_of,
    forget_notes,
    known_notes,
    note_lines,
    resume_notes,
    weight_notes,
    worker_notes,
)
from .exits import OK, AdapterNameError, UsageError, from_arguments
from .opening import opened
from .options import DECIDING, Deciding, Listing
from .printing import print_document, print_lines
from .running import run
from .whole import Whole

Notes: TypeAlias = Callable[[Fleet | Unseen], Iterable[str]]
"""What is to be said of a decision, by the fleet after it."""


def author_of(options: Deciding) -> str:
    """Who decides. Raises `InvalidIdentityError`, also for the reason."""
    check_reason(options.reason)
    return check_name("by", _whoami() if options.by is None else options.by)


def _whoami() -> str:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"


def parse_worker(text: str) -> tuple[Namespace, WorkerId]:
    """The stable id that NAMESPACE/ID names. Raises `UsageError`."""
    namespace, slash, worker_id = text.partition("/")
    rule = "NAMESPACE/ID, as prod/llama-1"
    if not slash:
        message = f"worker {text!r} is not valid: {rule}"
        raise UsageError(message)
    try:
        return check_namespace(namespace), check_worker_id(worker_id)
    except InvalidIdentityError as error:
        message = f"worker {text!r} is not valid: {rule}; {error}"
        raise UsageError(message) from error


async def fleet_now(plane: Plane) -> Fleet | Unseen:
    """The fleet as of all that is decided, or why nobody can show it.

    It is for a note: nobody waits for it for long.
    """
    view = plane.view(announce=False)
    return await glimpse(view, plane.broker, plane.names, plane.settings)


async def noted(
    plane: Plane, decided: Decided, options: Listing, notes: Notes
) -> Decided:
    """The decision with its notes on the fleet after it; in a table it is printed.

    What was decided comes first: whoever is interrupted while the fleet is looked at
    has seen that it stands.
    """
    table = options.output == "table"
    if table:
        print_lines(decided.lines())
    said = tuple(notes(await fleet_now(plane)))
    if table:
        print_lines(note_lines(said))
    return msgspec.structs.replace(decided, notes=(*decided.notes, *said))


async def show_decided(
    plane: Plane, decided: Decided, options: Listing, notes: Notes
) -> int:
    """Print the decision and the notes on the fleet after it; the exit code."""
    full = await noted(plane, decided, options, notes)
    if options.output != "table":
        print_document(full.document())
    return OK


async def _refuse_adapter(plane: Plane, model: ModelName) -> None:
    """Raise `AdapterNameError` if the name is an adapter's only.

    Where no projector leads nobody routes by it, and the decision is taken. Where one
    does and its view is late, the log is asked.
    """
    fleet = await fleet_now(plane)
    if fleet is Unseen.NO_PROJECTOR:
        return
    if isinstance(fleet, Unseen):
        fleet = (await plane.log.replay()).fleet
    models = adapter_of(fleet, model)
    if models:
        raise AdapterNameError(adapter=model, models=models)


# ---- one worker ----------------------------------------------------------------
def hold(worker: str, /, *, options: Deciding = DECIDING) -> int:
    """Keep traffic away from a worker until it is resumed, whatever restarts.

    Parameters
    ----------
    worker
        NAMESPACE/ID; it need not be there yet.

    options
        What commands of its kind share.

    """
    where, by = parse_worker(worker), author_of(options)
    return run(lambda: _hold(where, by, options), options)


async def _hold(where: tuple[Namespace, WorkerId], by: str, options: Deciding) -> int:
    async with opened(options) as plane:
        standing = await _standing_hold(plane, *where)
        done = await plane.hold(*where, options.reason, by=by)
        notes = []
        if standing is not None and standing.drain:
            notes.append("it was asked to drain, and is no longer: it is held only")
        name = "/".join(where)
        decided = Decided(
            kind="hold",
            about={"worker": name},
            said=f"held {name}",
            revision=done.revision,
            by=by,
            reason=options.reason,
            notes=tuple(notes),
        )
        waits = "the hold waits for it"
        return await show_decided(
            plane, decided, options, lambda fleet: worker_notes(fleet, *where, waits)
        )


async def _standing_hold(
    plane: Plane, namespace: Namespace, worker_id: WorkerId
) -> WorkerHeld | None:
    """The hold on the worker, by the log's leader; None: there is none."""
    last = await plane.log.last(setting_subject("hold", namespace, worker_id))
    event = None if last is None else last.event
    return event if isinstance(event, WorkerHeld) else None


def resume(worker: str, /, *, options: Deciding = DECIDING) -> int:
    """Lift the hold, and the request to drain, from a worker.

    Parameters
    ----------
    worker
        NAMESPACE/ID.

    options
        What commands of its kind share.

    """
    where, by = parse_worker(worker), author_of(options)
    return run(lambda: _resume(where, by, options), options)


async def _resume(where: tuple[Namespace, WorkerId], by: str, options: Deciding) -> int:
    async with opened(options) as plane:
        lifted = await _standing_hold(plane, *where)
        done = await plane.resume(*where, options.reason, by=by)
        name = "/".join(where)
        decided = Decided(
            kind="resume",
            about={"worker": name},
            said=f"resumed {name}",
            revision=done.revision,
            by=by,
            reason=options.reason,
        )
        return await show_decided(
            plane,
            decided,
            options,
            lambda fleet: resume_notes(fleet, *where, lifted),
        )


# ---- a model -------------------------------------------------------------------
def weight(
    namespace: Namespace,
    model: ModelName,
    weight: Annotated[float, Parameter(allow_leading_hyphen=True)],
    /,
    *,
    options: Deciding = DECIDING,
) -> int:
    """Set a namespace's share of a model's traffic, for each of its workers.

    Parameters
    ----------
    namespace
        The deployment.
    model
        The model, or "*": all that have no weight of their own there.
    weight
        1 without a decision; 0 cordons; 0.1: a tenth for each worker.

    options
        What commands of its kind share.

    """
    check_namespace(namespace)
    if model != "*":
        check_model(model)
    with from_arguments():
        weight = check_weight(weight)
    by = author_of(options)
    return run(lambda: _weight(namespace, model, weight, by, options), options)


async def _weight(
    namespace: Namespace, model: ModelName, weight: float, by: str, options: Deciding
) -> int:
    async with opened(options) as plane:
        await _refuse_adapter(plane, model)
        done = await plane.weight(namespace, model, weight, options.reason, by=by)
        decided = Decided(
            kind="weight",
            about={"namespace": namespace, "model": model, "weight": weight},
            said=f"weight of {namespace} for {model} is {weight:g}",
            revision=done.revision,
            by=by,
            reason=options.reason,
        )
        return await show_decided(
            plane,
            decided,
            options,
            lambda fleet: weight_notes(fleet, namespace, model),
        )


def thresholds(
    model: ModelName,
    /,
    *,
    busy_kv_usage: float | None = None,
    busy_running: Whole | None = None,
    busy_waiting: Whole | None = None,
    none: bool = False,
    options: Deciding = DECIDING,
) -> int:
    """Say from where on a worker of a model is busy; others are picked before it.

    The limits named take the place of all that were set before.

    Parameters
    ----------
    model
        The model.
    busy_kv_usage
        Share of the KV cache in use, above 0 and at most 1.
    busy_running
        Requests that it runs.
    busy_waiting
        Requests that wait there.
    none
        Lift every limit.

    options
        What commands of its kind share.

    """
    check_model(model)
    with from_arguments():
        limits: dict[str, float | int | None] = {
            "busy_kv_usage": check_share("busy_kv_usage", busy_kv_usage),
            "busy_running": check_count("busy_running", busy_running),
            "busy_waiting": check_count("busy_waiting", busy_waiting),
        }
    if none == any(value is not None for value in limits.values()):
        message = "thresholds takes limits, as --busy-running 64, or else --none"
        raise UsageError(message)
    by = author_of(options)
    return run(lambda: _thresholds(model, limits, by, options), options)


async def _thresholds(
    model: ModelName,
    limits: dict[str, float | int | None],
    by: str,
    options: Deciding,
) -> int:
    async with opened(options) as plane:
        await _refuse_adapter(plane, model)
        given: dict[str, Any] = limits
        done = await plane.thresholds(model, **given, reason=options.reason, by=by)
        named = ", ".join(
            f"{name.removeprefix('busy_').replace('_', ' ')} {value:g}"
            for name, value in limits.items()
            if value is not None
        )
        said = f"{model} is busy from {named}" if named else f"{model} has no limits"
        decided = Decided(
            kind="thresholds",
            about={"model": model, **limits},
            said=said,
            revision=done.revision,
            by=by,
            reason=options.reason,
        )
        return await show_decided(
            plane, decided, options, lambda fleet: known_notes(fleet, model)
        )


def forget(model: ModelName, /, *, options: Deciding = DECIDING) -> int:
    """Forget a model's name; 1 when workers serve it, or nobody ever did.

    Parameters
    ----------
    model
        A model's or an adapter's name.

    options
        What commands of its kind share.

    """
    check_model(model)
    by = author_of(options)
    return run(lambda: _forget(model, by, options), options)


async def _forget(model: ModelName, by: str, options: Deciding) -> int:
    async with opened(options) as plane:
        done = await plane.forget(model, options.reason, by=by)
        decided = Decided(
            kind="forget",
            about={"model": model},
            said=f"forgot {model}",
            revision=done.revision,
            by=by,
            reason=options.reason,
        )
        return await show_decided(
            plane, decided, options, lambda fleet: forget_notes(fleet, model)
        )
