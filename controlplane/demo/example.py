"""The example router, ``examples/openai_router.py``, at work in the demo.

It is a program to be copied and no part of the package: an installed package is without
it. Then the demo's routers pick for themselves, see `Requests`.
"""

from __future__ import annotations

import asyncio
import importlib.util
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

import msgspec

from controlplane.plane import Plane
from controlplane.router.client import RouterView
from events import UNREADABLE, ControlPlaneError, ModelName
from projections import Worker

from .picks import Notebook, Picked, PickFailed, Unreachable
from .speech import CHAT, DONE

if TYPE_CHECKING:
    import httpx
    import uvicorn

EXAMPLE: Final = Path(__file__).parents[2] / "examples" / "openai_router.py"
MADE_OF: Final = ("starlette", "httpx", "uvicorn")
ANSWER_S_MAX: Final = 10.0
STOP_S_MAX: Final = 1
ANSWERED: Final = "answered"
CUT_OFF: Final = "cut_off"


def example_can_run() -> bool:
    """Whether the example lies beside the package, and what it is made of is there."""
    return EXAMPLE.is_file() and all(map(importlib.util.find_spec, MADE_OF))


class ExampleRouter:
    """Serves the example on a free port of this machine, and asks it as clients do."""

    def __init__(self, plane: Plane, view: RouterView, notes: Notebook) -> None:
        """Have it pick from ``view``, and note what it picks."""
        import httpx  # noqa: PLC0415 - comes with the extra `examples`

        self._example = _load(EXAMPLE)
        self._parts = plane, NotedView(view, notes), self._example.create_client()
        self._clients = httpx.AsyncClient(timeout=ANSWER_S_MAX, trust_env=False)
        self._tasks = asyncio.TaskGroup()
        self._server: uvicorn.Server | None = None
        self.url = ""

    async def __aenter__(self) -> Self:
        """Listen and serve."""
        listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        self._server = _server(self._example.create_app(*self._parts))
        await self._tasks.__aenter__()
        self._tasks.create_task(self._server.serve([listening]))
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Finish what has begun, for `STOP_S_MAX` at most."""
        await self._clients.aclose()
        if self._server is not None:
            self._server.should_exit = True
        await self._tasks.__aexit__(None, None, None)
        await self._parts[-1].aclose()

    async def ask(self, model: ModelName, *, stream: bool) -> str:
        """`ANSWERED`, `CUT_OFF`, or the code of the refusal."""
        import httpx  # noqa: PLC0415 - comes with the extra `examples`

        message = {"role": "user", "content": "Hello?"}
        body = {"model": model, "messages": [message], "stream": stream}
        try:
            answer = await self._clients.post(f"{self.url}{CHAT}", json=body)
        except httpx.TransportError:
            return CUT_OFF
        if not answer.is_success:
            return _code_of(answer)
        whole = not stream or answer.content.endswith(DONE)
        return ANSWERED if whole else CUT_OFF


class NotedView:
    """A view that notes what is picked from it and what is ejected."""

    def __init__(self, view: RouterView, notes: Notebook) -> None:
        """Note in ``notes``; in everything else be as ``view``."""
        self._view, self._notes = view, notes

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the view has
        """As of the view."""
        return getattr(self._view, name)

    def pick(self, model: ModelName, **wishes: Any) -> Worker:  # noqa: ANN401 - as there
        """As `RouterView.pick`."""
        try:
            worker = self._view.pick(model, **wishes)
        except ControlPlaneError as error:
            now = time.monotonic()
            self._notes.write(PickFailed(at_s=now, model=model, reason=str(error)))
            raise
        self._notes.write(
            Picked(
                at_s=time.monotonic(),
                model=model,
                worker=f"{worker.namespace}/{worker.worker_id}",
                incarnation=worker.incarnation,
            )
        )
        return worker

    def eject(self, worker: Worker, for_s: float = 5.0) -> None:
        """As `RouterView.eject`."""
        self._view.eject(worker, for_s)
        self._notes.write(
            Unreachable(
                at_s=time.monotonic(),
                model=worker.model,
                worker=f"{worker.namespace}/{worker.worker_id}",
                reason="ejected",
            )
        )


def _load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None  # noqa: S101 - it ends in .py
    assert spec.loader is not None  # noqa: S101 - and is a file
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _server(app: Any) -> uvicorn.Server:  # noqa: ANN401 - the example is not typed here
    import uvicorn  # noqa: PLC0415 - comes with the extra `examples`

    class Server(uvicorn.Server):
        """One that leaves signals to the process that it is a part of."""

        @contextmanager
        def capture_signals(self) -> Iterator[None]:
            """Capture none."""
            yield

    return Server(
        uvicorn.Config(
            app,
            lifespan="off",  # plane and view are started and stopped already
            log_config=None,
            access_log=False,
            timeout_graceful_shutdown=STOP_S_MAX,
        )
    )


class _Error(msgspec.Struct):
    code: str | int | None = None


class _Refusal(msgspec.Struct):
    error: _Error


def _code_of(answer: httpx.Response) -> str:
    try:
        return str(msgspec.json.decode(answer.content, type=_Refusal).error.code)
    except UNREADABLE:
        return str(answer.status_code)
