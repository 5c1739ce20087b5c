"""A router with pages to look at: ``python -m controlplane.demo.router``.

``/pick?model=NAME`` shows the worker that a request would go to. ``NATS_URL`` and
``CP_CELL`` say where. With ``--model`` it also sends requests, all the time.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import sys
from http import HTTPStatus
from pathlib import Path
from typing import Final

import msgspec

from controlplane.http import JSON, Handler, HttpServer, Query, QueryHandler, Response
from controlplane.logs import get_logger
from controlplane.namespaces import NamespaceFilter
from controlplane.plane import Plane, connect
from controlplane.router.client import RouterView
from controlplane.serving import parse_listen
from controlplane.telemetry import metrics_route
from projections import ModelNotFoundError, ModelUnavailableError, worker_document

from .example import ExampleRouter, example_can_run
from .picks import Notebook
from .process import announce, first_to_end, run_process
from .requests import Requests

CONFIRM_S_MAX: Final = 2.0
"""So long a view from a checkpoint may be confirmed before requests are sent."""

DEFAULT_HTTP: Final = "127.0.0.1:9781"
_log = get_logger("demo")


async def route(options: argparse.Namespace, stopping: asyncio.Event) -> None:
    """Follow the view and show it until told to stop."""
    namespaces = NamespaceFilter.from_env(os.environ)
    async with (
        connect(name=options.name) as plane,
        plane.view(namespaces, options.checkpoint, options.name) as view,
    ):
        source, revision = view.source, view.revision
        _log.info("router up", name=view.name, source=source, revision=revision)
        pages = routes(plane, view)
        host, port = parse_listen(options.http or DEFAULT_HTTP)
        server = HttpServer(
            host,
            port,
            pages,
            queries={"/pick": pick_page(view)},
            fallback_any_port=options.http is None,
        )
        async with server:
            announce(name=view.name, url=server.url, source=source, revision=revision)
            await first_to_end(
                stopping.wait(), view.join(), _send(plane, view, options)
            )


async def _send(plane: Plane, view: RouterView, options: argparse.Namespace) -> None:
    """Send requests for ever; without models, just go on for ever."""
    try:
        await view.synced(CONFIRM_S_MAX)
    except TimeoutError:
        _log.warning("view not confirmed", source=view.source, revision=view.revision)
    async with contextlib.AsyncExitStack() as stack:
        notes = Notebook(options.notes or Path(os.devnull))
        stack.enter_context(contextlib.closing(notes))
        example = None
        if options.model and example_can_run():
            example = ExampleRouter(plane, view, notes)
            await stack.enter_async_context(example)
            _log.info("example router up", url=example.url)
        async with asyncio.TaskGroup() as tasks:
            for model in options.model:
                tasks.create_task(Requests(view, model, notes, example).run())
            await asyncio.Event().wait()


# ---- pages -----------------------------------------------------------------------
def routes(plane: Plane, view: RouterView) -> dict[str, Handler]:
    """The pages of a router, by their paths."""

    async def healthz() -> Response:
        return HTTPStatus.OK, JSON, b'{"status":"ok"}'

    async def readyz() -> Response:
        ready = view.source != "none"
        status = HTTPStatus.OK if ready else HTTPStatus.SERVICE_UNAVAILABLE
        return status, JSON, msgspec.json.encode(view.presence)

    async def the_view() -> Response:
        return HTTPStatus.OK, JSON, view.fleet.to_json().encode()

    return {
        "/metrics": metrics_route(plane.registry),
        "/healthz": healthz,
        "/readyz": readyz,
        "/view": the_view,
    }


def pick_page(view: RouterView) -> QueryHandler:
    """The page that picks: the worker as JSON, or why there is none."""

    async def pick(query: Query) -> Response:
        model = query.get("model", "")
        if not model:
            return _refuse(HTTPStatus.BAD_REQUEST, "say which: /pick?model=NAME")
        try:
            worker = view.pick(model)
        except ModelNotFoundError as error:
            return _refuse(HTTPStatus.NOT_FOUND, str(error))
        except ModelUnavailableError as error:
            return _refuse(HTTPStatus.SERVICE_UNAVAILABLE, str(error))
        return HTTPStatus.OK, JSON, msgspec.json.encode(worker_document(worker))

    return pick


def _refuse(status: HTTPStatus, reason: str) -> Response:
    return status, JSON, msgspec.json.encode({"error": reason})


def main() -> int:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description="A router to look at.")
    parser.add_argument("--name", required=True, help="as other processes show it")
    parser.add_argument(
        "--http",
        metavar="HOST:PORT",
        help=f"where its pages are; {DEFAULT_HTTP}, or any free port if that is busy",
    )
    parser.add_argument("--checkpoint", type=Path, help="start warm from this file")
    parser.add_argument(
        "--model",
        action="append",
        default=[],
        help="send requests for this model all the time; may be repeated",
    )
    parser.add_argument("--notes", type=Path, help="note each request in this file")
    return run_process(route, parser.parse_args())


if __name__ == "__main__":
    sys.exit(main())
