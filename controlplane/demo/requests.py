"""A router's traffic: real requests, all the time, and notes of what came of them."""

from __future__ import annotations

import asyncio
import time
from http import HTTPStatus
from itertools import count
from typing import Final

import msgspec

from controlplane.router.client import RouterView
from events import ControlPlaneError, ModelName
from projections import Worker

from .example import ANSWERED, CUT_OFF, ExampleRouter
from .picks import Answered, CutOff, GivenUp, Notebook, Picked, PickFailed, Unreachable
from .web import ask

ATTEMPTS: Final = 3
CLIENTS: Final = 3
"""So many people ask for each model at once…"""
PAUSE_S: Final = 0.06
"""…and each rests so long after an answer."""

NOT_PICKED: Final = ("model_not_found", "model_unavailable")


class Requests:
    """Requests for one model, one after the other for each of `CLIENTS`.

    They go to the example router, every second one for a stream. Without it they pick
    a worker themselves, ask it, and take another if it is not there.
    """

    def __init__(
        self,
        view: RouterView,
        model: ModelName,
        notes: Notebook,
        example: ExampleRouter | None = None,
    ) -> None:
        """Ask for ``model``, picking from ``view``, and note what came of it."""
        self._view, self._model, self._notes = view, model, notes
        self._example = example
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
        for number in count():
            if self._example is None:
                await self._ask_once()
            else:
                await self._ask_example(self._example, stream=number % 2 == 1)
            await asyncio.sleep(PAUSE_S)

    async def _ask_example(self, example: ExampleRouter, *, stream: bool) -> None:
        """Its picks and ejections are noted already, by its view."""
        model = self._model
        outcome = await example.ask(model, stream=stream)
        if outcome == ANSWERED:
            self._notes.write(Answered(at_s=_now_s(), model=model))
        elif outcome == CUT_OFF:
            self._notes.write(CutOff(at_s=_now_s(), model=model))
        elif outcome not in NOT_PICKED:
            self._notes.write(GivenUp(at_s=_now_s(), model=model))

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
