"""An OpenAI-compatible router in one file: copy it, and change what you like.

    pip install 'controlplane[examples]'
    python openai_router.py --port 8080     # NATS_URL, CP_CELL, CP_NAMESPACE say where

It picks a worker for each request and passes bytes and headers on, there and back. A
worker that fails before the first byte of its answer is ejected, and another is asked;
from then on, none is. When a client goes away, so does its request to the worker.
"""

import argparse
import asyncio
import logging
import os
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any, Final

import msgspec
import uvicorn
from httpx import AsyncClient, InvalidURL, Limits, Timeout, TransportError
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

import controlplane as cp

ATTEMPTS: Final = 3
ENTRY: Final = (cp.Role.AGGREGATED, cp.Role.DECODE)  # a request may start there
HOP_BY_HOP: Final = set(b"connection keep-alive te transfer-encoding upgrade".split())
# All that is read of a request; a key keeps prompts that begin alike on one worker.
Asked: Any = msgspec.defstruct("Asked", [("model", str), ("prompt_cache_key", Any, "")])
log = logging.getLogger("openai_router")


async def health(request: Request) -> Response:
    """Ready once there is a fleet, from the broker or from the checkpoint."""
    view = request.app.state.view
    status = 503 if view.source == "none" or view.failure is not None else 200
    said = {"source": view.source, "revision": view.revision, "digest": view.digest}
    return JSONResponse({**said, "stale_for_s": view.stale_for_s}, status)


async def models(request: Request) -> Response:
    """Every name that can be asked for now, adapters too."""
    cards = {}
    for model in request.app.state.view.fleet.models.values():
        sets = (each for key, each in model.worker_sets.items() if key.role in ENTRY)
        for worker in (w for each in sets for w in each.workers.values() if w.routable):
            born = {"object": "model", "created": int(worker.registered_at.timestamp())}
            for name in (model.name, *worker.adapters):
                cards[name] = {"id": name, **born, "owned_by": "controlplane"}
    return JSONResponse({"object": "list", "data": [cards[n] for n in sorted(cards)]})


async def complete(request: Request) -> Response:
    """Pass a request on and the answer back, unless the client goes first."""
    body = await request.body()
    try:
        asked = msgspec.json.decode(body, type=Asked)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise HTTPException(400, str(error)) from error
    answering = asyncio.ensure_future(answer(request, body, asked))
    leaving = asyncio.ensure_future(request.receive())  # after the body comes the end
    try:
        await asyncio.wait({answering, leaving}, return_when="FIRST_COMPLETED")
        return answering.result() if answering.done() else Response(None, 499)
    finally:
        answering.cancel()
        leaving.cancel()
        await asyncio.wait({answering, leaving})


async def answer(request: Request, body: bytes, asked: Any) -> Response:
    """The answer of the first worker that gives one. Raises as `RouterView.pick`."""
    tried: list[cp.Worker] = []
    key, view = str(asked.prompt_cache_key or ""), request.app.state.view
    policy = "consistent_hash" if key else "least_loaded"
    for _ in range(ATTEMPTS):
        try:
            worker = view.pick(asked.model, policy=policy, key=key, exclude=tried)
            return await ask(worker, request, body)
        except cp.ModelUnavailableError:
            if not tried:
                raise
            break
        except (TransportError, InvalidURL) as error:
            view.eject(worker)
            tried.append(worker)
            trouble = f"{worker.namespace}/{worker.worker_id}: {error!r}"
            log.warning("no answer for %s from %s", asked.model, trouble)
    return refusal(502, f"no worker answered; the last: {trouble}", code="no_answer")


async def ask(worker: cp.Worker, request: Request, body: bytes) -> Response:
    """The answer of one worker, once its first byte is here."""
    url = f"{worker.address.rstrip('/')}{request.url.path}?{request.url.query}"
    headers = passed_on(request.headers.raw, b"host", b"content-length", b"expect")
    client, view = request.app.state.client, request.app.state.view
    message = client.build_request("POST", url, headers=headers, content=body)
    upstream = await client.send(message, stream=True)
    rest = upstream.aiter_raw()
    first = await anext(rest, b"")  # a stream's headers come before any generating

    async def relayed() -> AsyncIterator[bytes]:
        yield first
        try:
            async for chunk in rest:
                yield chunk
        except TransportError as error:
            # Too late for another worker; nor may the client take it for the end.
            view.eject(worker)
            log.warning("%s went away in mid-answer: %r", worker.worker_id, error)
            if not upstream.headers.get("content-type", "").startswith("text/event"):
                raise
            yield b"\n\ndata: %s\n\n" % refusal(502, str(error), code="cut_off").body

    closing = BackgroundTask(upstream.aclose)  # runs also when the client has gone
    response = StreamingResponse(relayed(), upstream.status_code, background=closing)
    response.raw_headers = passed_on(upstream.headers.raw, b"date", b"server")
    return response


def passed_on(headers: Iterable[tuple[bytes, bytes]], *but: bytes) -> list[Any]:
    """The ``headers`` that are not for one connection only, ``but`` for these."""
    lower = [(name.lower(), value) for name, value in headers]
    named = b",".join(value.lower() for name, value in lower if name == b"connection")
    dropped = HOP_BY_HOP.union(but, map(bytes.strip, named.split(b",")))
    return [(name, value) for name, value in lower if name not in dropped]


def refusal(status: int, message: str, **more: object) -> Response:
    """An error in the shape that OpenAI's clients expect."""
    kind = "server_error" if status >= 500 else "invalid_request_error"
    error = {"message": message, "type": kind, "param": None, "code": None, **more}
    return JSONResponse({"error": error}, status)


async def refuse(_: Request, error: Exception) -> Response:
    """The answer to what an endpoint raised."""
    match error:
        case cp.ModelNotFoundError():
            return refusal(404, str(error), param="model", code="model_not_found")
        case cp.ModelUnavailableError(reasons=why):
            return refusal(503, str(error), code="model_unavailable", reasons=why)
        case HTTPException(status_code=status, detail=detail):
            return refusal(status, detail)
    return refusal(500, "the router failed; its log says how")


def create_app(plane: cp.Plane, view: cp.RouterView, client: AsyncClient) -> Starlette:
    """The router over a view and a client; its lifespan starts and stops all three."""

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with plane, view, client:
            yield

    paths = ("/v1/chat/completions", "/v1/completions")
    routes = [Route(path, complete, methods=["POST"]) for path in paths]
    routes += [Route("/v1/models", models), Route("/health", health)]
    handlers = dict.fromkeys((cp.ControlPlaneError, HTTPException, Exception), refuse)
    app = Starlette(routes=routes, exception_handlers=handlers, lifespan=lifespan)
    app.state.view, app.state.client = view, client
    return app


def create_client() -> AsyncClient:
    """A client for as many requests at once as there are, straight to the workers."""
    # Engines close what is idle for 5 s: use no connection that is about to end.
    limits = Limits(max_connections=None, keepalive_expiry=2.0)
    timeout = Timeout(600.0, connect=2.0)  # a long answer is no failure
    plain = {"accept-encoding": "identity"}  # unless the client says otherwise
    return AsyncClient(headers=plain, limits=limits, timeout=timeout, trust_env=False)


def main() -> None:
    """Read the command line and serve."""
    parser = argparse.ArgumentParser(description="An OpenAI-compatible router.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("--name", help="as `controlplane routers` shows it")
    parser.add_argument("--checkpoint", help="start warm from this file")
    parser.add_argument("--max-stale-s", type=float, help="503 if the fleet is older")
    given = vars(parser.parse_args())
    where = {name: given.pop(name) for name in ("host", "port")}
    try:
        plane = cp.connect(name=given["name"])
        view = plane.view(cp.NamespaceFilter.from_env(os.environ), **given)
    except cp.ControlPlaneError as error:
        parser.exit(1, f"openai_router: {error}\n")
    uvicorn.run(create_app(plane, view, create_client()), **where, access_log=False)


if __name__ == "__main__":
    main()
