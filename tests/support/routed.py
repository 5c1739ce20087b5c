"""The example router in a test's own process, and the workers that it routes to."""

import importlib.util
import json
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType, SimpleNamespace

import httpx

import controlplane as cp
from controlplane.demo.speech import CHAT
from controlplane.identifiers import new_uuid7
from tests.support.engines import Engine, Slammer, served

EXAMPLE = Path(__file__).parents[2] / "examples" / "openai_router.py"
MESSAGES = [{"role": "user", "content": "Who are you?"}]


def load_example() -> ModuleType:
    """The example as a module."""
    spec = importlib.util.spec_from_file_location("openai_router", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@asynccontextmanager
async def routing(
    example, plane: cp.Plane, **options
) -> AsyncIterator[SimpleNamespace]:
    """The example over a view of ``plane``; ``client`` asks it."""
    view = plane.view(**options)
    async with (
        view,
        example.create_client() as workers,
        served(example.create_app(plane, view, workers)) as (url, _),
        httpx.AsyncClient(base_url=url, timeout=10.0, trust_env=False) as client,
    ):
        yield SimpleNamespace(view=view, client=client, url=url)


class Stage:
    """A plane, the example over it, and the workers that a test puts there."""

    def __init__(self, plane: cp.Plane, stack: AsyncExitStack) -> None:
        self.plane, self._stack = plane, stack
        self.view: cp.RouterView
        self.client: httpx.AsyncClient

    async def engine(self, name: str, model: str = "llama", **fields) -> Engine:
        """An engine that listens, registered as a worker that is ready."""
        engine = await self._stack.enter_async_context(Engine(name, model).serving())
        await self.register(name, engine.url, model=model, **fields)
        return engine

    async def slammer(self, name: str) -> Slammer:
        """A worker that closes every connection."""
        slammer = await self._stack.enter_async_context(Slammer().serving())
        await self.register(name, slammer.url)
        return slammer

    async def register(self, worker_id: str, address: str, **fields) -> None:
        event = cp.WorkerRegistered(
            event_id=new_uuid7(),
            at=datetime.now(UTC),
            by="test",
            namespace="prod",
            worker_id=worker_id,
            incarnation=new_uuid7(),
            component="backend",
            endpoint="generate",
            needs=(),
            card=cp.ModelCard(),
            address=address,
            lease_ttl_s=3600.0,
            **{
                "model": "llama",
                "role": cp.Role.AGGREGATED,
                "status": cp.Status.READY,
                **fields,
            },
        )
        appended = await self.plane.log.append(event)
        await self.view.wait_for(appended.revision)

    async def ask(self, path: str = CHAT, **fields) -> httpx.Response:
        body = {"model": "llama", "messages": MESSAGES, "prompt": "Who?", **fields}
        return await self.client.post(path, json=body)

    def stream(self, **fields):
        body = {"model": "llama", "messages": MESSAGES, "stream": True, **fields}
        return self.client.stream("POST", CHAT, json=body)


def events(text: bytes) -> list:
    """The data of a stream's events, JSON read."""
    data = re.findall(r"^data: (.*)$", text.decode(), re.MULTILINE)
    return [one if one == "[DONE]" else json.loads(one) for one in data]
