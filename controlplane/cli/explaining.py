"""``explain``: why a worker is, or is not, routable; why a model is a 503."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Protocol

from cyclopts import Parameter

from controlplane.playback import (
    History,
    Moment,
    PointInTime,
    parse_moment,
    records_to,
)
from events import Record, check_model
from projections import (
    Explainer,
    Explanation,
    ModelExplainer,
    ModelExplanation,
    worker_key,
)

from .exits import NO, OK, UsageError
from .explanations import explanation_lines, model_lines
from .histories import FromArchive, MomentText, opened_history, state_of
from .options import LISTING, Listing
from .printing import print_document, print_lines, terminal_width
from .progress import Progress
from .running import run
from .seeing import RouterName, show_why_picked

MODEL = "model"


def explain(
    what: Annotated[str, Parameter(name="what")],
    name: Annotated[str | None, Parameter(name="name")] = None,
    /,
    *,
    at: MomentText | None = None,
    router: RouterName = None,
    from_archive: FromArchive = None,
    options: Listing = LISTING,
) -> int:
    """Explain why a worker is, or is not, routable: the records that led to it.

    ``explain NS/WORKER``, or ``explain model NAME`` for why a model is, or is not,
    served. Exit code 1: there never was such a worker or model.

    Parameters
    ----------
    what
        A worker, as prod/gpu7; or the word "model".
    name
        The model's, or an adapter's, name.
    at
        As it was then: a revision, a time as 2026-01-31T12:00:00 (UTC if it does not
        say) or as -10m before the end, an event's id, a router's checkpoint file.
    router
        Why this router still picked the worker at that time, or would not have, by
        what it reported; reports are kept for 7 days.
    from_archive
        Read this archive instead of the log; no broker is needed.

    options
        What commands of its kind share.

    """
    moment = None if at is None else parse_moment(at)
    if router is not None and (from_archive is not None or name is not None):
        other = "--from-archive" if from_archive is not None else "explain model"
        message = f"--router is not valid with {other}: ask for NS/WORKER in a cell"
        raise UsageError(message)
    if what == MODEL and name is not None:
        check_model(name)
        return run(lambda: _model(name, moment, from_archive, options), options)
    if name is not None or what == MODEL:
        message = (
            f"{what!r} is not valid here: explain NS/WORKER, or explain model NAME"
        )
        raise UsageError(message)
    worker_key(what)
    if router is not None:
        return run(lambda: show_why_picked(what, router, moment, options), options)
    return run(lambda: _worker(what, moment, from_archive, options), options)


async def _worker(
    name: str, moment: Moment | None, from_archive: Path | None, options: Listing
) -> int:
    explainer = Explainer(name)
    await _feed(explainer, moment, from_archive, options)
    found = explainer.result()
    show_explanation(found, options)
    return NO if found.state == "never_registered" else OK


def show_explanation(found: Explanation, options: Listing) -> None:
    """Print the document, a link of the chain a line, or the text."""
    match options.output:
        case "json":
            print_document(found.document())
        case "ndjson":
            _print_all(link.document() for link in found.chain)
        case "table":
            print_lines(explanation_lines(found, terminal_width()))


async def _model(
    name: str, moment: Moment | None, from_archive: Path | None, options: Listing
) -> int:
    explainer = ModelExplainer(name)
    await _feed(explainer, moment, from_archive, options)
    found = explainer.result()
    _show_model(found, options)
    return NO if found.state == "not_found" else OK


def _show_model(found: ModelExplanation, options: Listing) -> None:
    match options.output:
        case "json":
            print_document(found.document())
        case "ndjson":
            _print_all(place.document() for place in found.namespaces)
        case "table":
            print_lines(model_lines(found, terminal_width()))


def _print_all(documents: Iterator[dict[str, Any]]) -> None:
    for document in documents:
        print_document(document)


class _Reader(Protocol):
    def feed(self, records: list[Record]) -> bool: ...


async def _feed(
    reader: _Reader,
    moment: Moment | None,
    from_archive: Path | None,
    options: Listing,
) -> None:
    """Have ``reader`` read the history up to the moment."""
    async with opened_history(options, from_archive) as history:
        point = await _point(history, moment)
        with Progress() as progress:
            async for records in records_to(history, point, progress):
                reader.feed(records)


async def _point(history: History, moment: Moment | None) -> PointInTime | None:
    """The moment in the history itself; of a file, the revision that it stands at."""
    if not isinstance(moment, Path):
        return moment
    state = await state_of(history, moment)
    if state.log_id != history.log_id:
        message = (
            f"{moment} is of log {state.log_id}, not of {history.log_id}; explain it "
            "where that log is"
        )
        raise UsageError(message)
    return state.revision
