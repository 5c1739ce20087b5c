"""The demo's cast: who is on stage, and what each of them shows over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from typing import Final

import msgspec

from controlplane.plane import Plane
from events import ModelName, Namespace
from projections import Fleet

from .children import Child, Children, until
from .outcome import Standing
from .picks import Death, Note, judge_notes, read_notes
from .web import ask

LEASE_TTL_S: Final = 5.0
"""The shortest lease that there is: the demo is short."""
DRAIN_S: Final = 16.0
"""So long a worker waits at most for routers and requests before it leaves."""
PAGE_EVERY_S: Final = 0.1
PAGE_S_MAX: Final = 2.0
PROJECTORS: Final = ("projector-a", "projector-b")
ROUTERS: Final = ("router-a", "router-b")

Say = Callable[[str, str], None]


class _Ready(msgspec.Struct):
    """What of the pages ``/readyz`` of projectors and routers is looked at."""

    role: str = ""
    source: str = ""


class Stage:
    """Starts the processes, and asks them what they see."""

    def __init__(self, plane: Plane, children: Children, *, directory: Path) -> None:
        """The cell is ``plane``'s; files go to ``directory``."""
        self.plane, self.children = plane, children
        self._directory = directory
        self._by_name: dict[str, Child] = {}
        self.deaths: list[Death] = []

    def __getitem__(self, name: str) -> Child:
        """The process of this name."""
        return self._by_name[name]

    # ---- entrances -------------------------------------------------------------
    def projector(self, name: str) -> None:
        """Start a projector."""
        module = "controlplane.demo.projector"
        self._by_name[name] = self.children.start(name, module, "--name", name)

    def router(self, name: str, models: tuple[ModelName, ...]) -> None:
        """Start a router that sends requests for ``models``."""
        asked = [word for model in models for word in ("--model", model)]
        self._by_name[name] = self.children.start(
            name,
            "controlplane.demo.router",
            *("--name", name, "--http", "127.0.0.1:0"),
            *("--checkpoint", str(self.checkpoint(name))),
            *("--notes", str(self._notes(name))),
            *asked,
        )

    def worker(self, name: str, model: ModelName, namespace: Namespace) -> None:
        """Start a worker."""
        self._by_name[name] = self.children.start(
            name,
            "controlplane.demo.worker",
            *("--worker-id", name, "--model", model, "--namespace", namespace),
            *("--lease-ttl-s", str(LEASE_TTL_S), "--drain-s", str(DRAIN_S)),
        )

    def checkpoint(self, router: str) -> Path:
        """The file that ``router`` saves its view in."""
        return self._directory / f"{router}.checkpoint"

    # ---- what the processes show -----------------------------------------------
    async def page(self, name: str, path: str) -> bytes | None:
        """The page of a process; None: it does not answer, or is not ready."""
        url = self[name].url
        if url is None:
            return None
        try:
            status, body = await ask("GET", f"{url}{path}", timeout_s=PAGE_S_MAX)
        except OSError:
            return None
        return body if status == HTTPStatus.OK else None

    async def leader(self) -> str | None:
        """The projector that leads; None: none says so."""
        for name in PROJECTORS:
            if self[name].running and (await self.ready(name)).role == "leader":
                return name
        return None

    async def ready(self, name: str) -> _Ready:
        """What the process says of itself; empty when it is not ready."""
        body = await self.page(name, "/readyz")
        return _Ready() if body is None else msgspec.json.decode(body, type=_Ready)

    async def fleet(self, name: str) -> Fleet | None:
        """The fleet as the process sees it."""
        body = await self.page(name, "/view")
        return None if body is None else Fleet.from_json(body)

    async def routers_see(
        self, condition: Callable[[Fleet], bool], *, within_s: float, what: str
    ) -> None:
        """Wait until both routers' fleets are so. Raises `DemoFailedError`."""

        async def all_see() -> bool:
            fleets = [await self.fleet(name) for name in ROUTERS]
            return all(fleet is not None and condition(fleet) for fleet in fleets)

        await until(all_see, within_s=within_s, what=what, every_s=PAGE_EVERY_S)

    async def standings(self) -> list[Standing]:
        """Where projectors and routers stand."""
        rows = []
        for name in (*PROJECTORS, *ROUTERS):
            fleet = await self.fleet(name)
            revision, digest = (
                (0, "") if fleet is None else (fleet.revision, fleet.digest)
            )
            rows.append(Standing(name, revision, digest))
        return rows

    # ---- the routers' notes ----------------------------------------------------
    def _notes(self, router: str) -> Path:
        return self._directory / f"{router}.notes"

    def notes(self, router: str) -> list[Note]:
        """What ``router`` noted of its requests, in all its lives."""
        return read_notes(self._notes(router))

    def all_notes(self) -> list[Note]:
        """What both routers noted."""
        return [note for router in ROUTERS for note in self.notes(router)]

    async def tell_traffic(self, say: Say, every_s: float) -> None:
        """Say for ever how many requests there were."""
        while True:
            await asyncio.sleep(every_s)
            so_far = judge_notes(self.all_notes(), self.deaths)
            if so_far.picks:
                say(
                    "traffic",
                    f"{so_far.picks:,} picks so far, {so_far.answered:,} requests "
                    f"answered; failed picks: {so_far.failed_picks}",
                )
