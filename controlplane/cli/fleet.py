"""``models``, ``workers``, ``routers``, ``pick``, ``watch``: the fleet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec
from cyclopts import Parameter, validators
from rich.text import Text

from controlplane.presence import RouterSeen
from events import ModelName, Role, check_model, check_namespace
from projections import Change, Fleet, Worker, model_document, worker_document

from .columns import heading, stream_widths
from .exits import OK, UsageError
from .opening import opened, viewed
from .options import LISTING, Format, Listing
from .printing import print_document, print_json, print_lines, terminal_width
from .running import run
from .tables import (
    CHANGE_COLUMNS,
    change_line,
    everyone,
    models_table,
    picks_table,
    routers_table,
    view_footer,
    workers_table,
)
from .whole import Whole

Count = Annotated[
    Whole, Parameter(name=("--count", "-n"), validator=validators.Number(gte=1))
]
RoleName = Literal["aggregated", "prefill", "decode", "encode"]


# ---- models and workers --------------------------------------------------------
def models(*, options: Listing = LISTING) -> int:
    """List the models, their WorkerSets, and what keeps workers from serving."""
    return run(lambda: _models(options), options)


async def _models(options: Listing) -> int:
    async with opened(options) as plane, viewed(plane) as view:
        width = terminal_width()
        footer = view_footer(view.fleet, view.stale_for_s, width)
        show_fleet(view.fleet, options.output, footer)
    return OK


def show_fleet(fleet: Fleet, output: Format, footer: Sequence[Text]) -> None:
    """Print the view document, a model a line, or the table over ``footer``."""
    match output:
        case "json":
            print_json(fleet.to_json())
        case "ndjson":
            for model in fleet.models.values():
                print_document(model_document(model))
        case "table":
            print_lines([*models_table(fleet, terminal_width()), *footer])


def workers(*, options: Listing = LISTING) -> int:
    """List the workers, and whether each is routable, or why not."""
    return run(lambda: _workers(options), options)


async def _workers(options: Listing) -> int:
    async with opened(options) as plane, viewed(plane) as view:
        if options.output == "table":
            print_lines(workers_table(view.fleet, terminal_width()))
            return OK
        documents = [worker_document(worker) for worker in everyone(view.fleet)]
        _print_all(documents, options.output)
    return OK


def _print_all(documents: list[dict[str, Any]], output: Format) -> None:
    if output == "json":
        print_document(documents)
        return
    for document in documents:
        print_document(document)


# ---- routers -------------------------------------------------------------------
def routers(*, options: Listing = LISTING) -> int:
    """List the routers: who is there, and how far each one's view is."""
    return run(lambda: _routers(options), options)


async def _routers(options: Listing) -> int:
    async with opened(options) as plane:
        seen = await plane.routers()
    if options.output == "table":
        print_lines(routers_table(seen, terminal_width()))
    else:
        _print_all([_router_document(router) for router in seen], options.output)
    return OK


def _router_document(router: RouterSeen) -> dict[str, Any]:
    said = msgspec.to_builtins(router.presence)
    return {**said, "live": router.live, "age_s": round(router.age_s, 3)}


# ---- picking -------------------------------------------------------------------
def pick(
    model: ModelName,
    /,
    *,
    role: RoleName | None = None,
    namespace: str | None = None,
    capability: str | None = None,
    adapter: str | None = None,
    count: Count = 1,
    options: Listing = LISTING,
) -> int:
    """Pick a worker for a request, as a router would; 1 when nobody can take it.

    Parameters
    ----------
    model
        A model's or an adapter's name.
    role
        The worker's role; else one at which a request may start.
    namespace
        Only workers of this namespace.
    capability
        Only workers that have it.
    adapter
        Only workers that have loaded it.
    count
        How many times to pick.

    options
        What commands of its kind share.

    """
    check_model(model)
    if namespace is not None:
        check_namespace(namespace)
    wanted = {
        "role": None if role is None else Role(role),
        "namespace": namespace,
        "capability": capability,
        "adapter": adapter,
    }
    return run(lambda: _pick(model, wanted, count, options), options)


async def _pick(
    model: ModelName, wanted: dict[str, Any], count: int, options: Listing
) -> int:
    async with opened(options) as plane, viewed(plane) as view:
        picked = [view.pick(model, **wanted) for _ in range(count)]
    _show_picked(picked, options.output)
    return OK


def _show_picked(picked: list[Worker], output: Format) -> None:
    if output == "table":
        print_lines(picks_table(picked, terminal_width()))
        return
    documents = [worker_document(worker) for worker in picked]
    if output == "json" and len(documents) == 1:
        print_document(documents[0])
    else:
        _print_all(documents, output)


# ---- watching ------------------------------------------------------------------
def watch(*, options: Listing = LISTING) -> int:
    """Show every change of the fleet as it happens, until Ctrl-C."""
    if options.output == "json":
        message = "output 'json' is not valid: a stream has no end; take -o ndjson"
        raise UsageError(message)
    return run(lambda: _watch(options), options, endless=True)


async def _watch(options: Listing) -> int:
    async with opened(options) as plane, viewed(plane) as view:
        if options.output == "table":
            widths = stream_widths(CHANGE_COLUMNS, terminal_width())
            print_lines([heading(CHANGE_COLUMNS, widths)])
        async for change in view.changes(initial=True):
            if options.output == "table":
                print_lines([change_line(change, terminal_width())])
            else:
                print_document(_change_document(change))
    return OK


def _change_document(change: Change) -> dict[str, Any]:
    worker, before = change.worker, change.before
    return {
        "kind": change.kind,
        "revision": change.revision,
        "worker": None if worker is None else worker_document(worker),
        "before": None if before is None else worker_document(before),
    }
