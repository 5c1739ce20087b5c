"""A router's traffic: pick a worker, really ask it, take another if it is not there."""

from __future__ import annotations

import asyncio
import time
from http import HTTPStatus
from typing import Final

import msgspec

from controlplane.router.client import RouterView
from events import ControlPlaneError, ModelName
from projections import Worker

from .picks import Answered, GivenUp, Notebook, Picked, PickFailed, Unreachable
from .web import ask

ATTEMPTS: Final = 3
CLIENTS: Final = 3
"""So many people ask for each model at once…"""
PAUSE_S: Final = 0.06
"""…and each rests so long after an answer."""


class Requests:
    """Requests for one model, one after the other for each of `CLIENTS`."""

    def __init__(self, view: RouterView, model: ModelName, notes: Notebook) -> None:
        """Ask for ``model``, picking from ``view``, and note what came of it."""
        self._view, self._model, self._notes = view, model, notes
        message = {"role": "user", "content": "Hello?"}
        body = {"model": model, "messages": [message]}
        self._body = msgspec.json.encode(body)

    async def run(self) -> None:
        """Begin when the model is first served; go on for ever."""
        await self._served()
        async with asyncio.TaskGroup() as clients:
            for _ in range(CLIENTS):
                clients.create_task(self._ask_on_and_on())

    async def _served(self) -> None:
        async for _ in self._view.changes():
            model = self._view.fleet.models.get(self._model)
            sets = () if model is None else model.worker_sets.values()
            if any(w.routable for each in sets for w in each.workers.values()):
                return

    async def _ask_on_and_on(self) -> None:
        while True:
            await self._ask_once()
            await asyncio.sleep(PAUSE_S)

    async def _ask_once(self) -> None:
        notes, model = self._notes, self._model
        tried: list[Worker] = []
        for _ in range(ATTEMPTS):
            try:
                worker = self._view.pick(model, exclude=tried)
            except ControlPlaneError as error:
                failed = PickFailed(at_s=_now_s(), model=model, reason=str(error))
                notes.write(failed)
                return
            key = f"{worker.namespace}/{worker.worker_id}"
            notes.write(
                Picked(
                    at_s=_now_s(),
                    model=model,
                    worker=key,
                    incarnation=worker.incarnation,
                )
            )
            trouble = await self._send(worker)
            if trouble is None:
                notes.write(Answered(at_s=_now_s(), model=model))
                return
            self._view.eject(worker)
            tried.append(worker)
            lost = Unreachable(at_s=_now_s(), model=model, worker=key, reason=trouble)
            notes.write(lost)
        notes.write(GivenUp(at_s=_now_s(), model=model))

    async def _send(self, worker: Worker) -> str | None:
        """Why there is no answer; None: there is."""
        url = f"{worker.address}/v1/chat/completions"
        try:
            status, _ = await ask("POST", url, self._body)
        except OSError as error:
            return str(error) or type(error).__name__
        return None if status == HTTPStatus.OK else f"status {status}"


def _now_s() -> float:
    return time.monotonic()
