"""The demo from outside: a place, a server, the acts, and what came of them."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from controlplane.errors import SettingsError
from controlplane.plane import Plane
from controlplane.runtime import first_of
from controlplane.server import EmbeddedServer
from controlplane.settings import Settings
from events import ControlPlaneError

from .acts import Acts
from .children import Children, DemoFailedError
from .outcome import SECONDS_MAX, DemoEvent, DemoResult, Traffic, judge
from .picks import judge_notes
from .stage import PROJECTORS, ROUTERS, Say, Stage

TRAFFIC_EVERY_S: Final = 4.0
FAREWELL_S_MAX: Final = 3.0
"""Less than the workers' lease: nothing is appended once they are dead."""
OUTPUT: Final = "demo"
"""The directory, beside the log, that the processes write to."""


async def run_demo(
    *, store_dir: Path | None, on_event: Callable[[DemoEvent], None]
) -> DemoResult:
    """Run the demo; call ``on_event`` with each thing that happens.

    ``store_dir`` keeps the log, to be replayed; it must not hold one yet. Whatever
    goes wrong on stage is in the result's ``problems``, and what the processes wrote
    is kept then. Raises `SettingsError` when the demo cannot start. No process
    outlives it.
    """
    clock = asyncio.get_running_loop().time
    began, keep = clock(), store_dir is not None

    def say(kind: str, text: str) -> None:
        on_event(DemoEvent(clock() - began, kind, text))

    home = store_dir or Path(tempfile.mkdtemp(prefix="controlplane-demo-"))
    show = Show(say, home.resolve())
    try:
        await show.run()
        result = show.result(clock() - began)
        keep = keep or not result.ok
        if keep:
            kept = str(show.directory)
            result = msgspec.structs.replace(result, output_dir=kept)
    finally:
        if not keep:
            shutil.rmtree(home, ignore_errors=True)
    for problem in result.problems:
        say("problem", problem)
    say("end", _last_words(result))
    return result


def _last_words(result: DemoResult) -> str:
    if not result.ok:
        return f"not as promised; what the processes wrote is in {result.output_dir}"
    traffic = result.traffic
    elsewhere = traffic.retried - traffic.cut_off
    cut = f", {traffic.cut_off} lost it in mid-answer" if traffic.cut_off else ""
    return (
        f"all as promised, after {result.seconds:.1f} s: {traffic.picks:,} picks, none "
        f"failed; {elsewhere} requests found the killed worker gone and went to "
        f"another{cut}"
    )


class Show:
    """One performance."""

    def __init__(self, say: Say, store_dir: Path) -> None:
        """Keep the log in ``store_dir`` and ``say`` what happens."""
        self._say, self._store_dir = say, store_dir
        self.directory = store_dir / OUTPUT
        self._acts: Acts | None = None
        self._traffic = Traffic()
        self._problems: list[str] = []

    def result(self, seconds: float) -> DemoResult:
        """What came of it, after so many ``seconds``."""
        return judge(
            standings=[] if self._acts is None else self._acts.standings,
            leader=None if self._acts is None else self._acts.leader,
            traffic=self._traffic,
            seconds=seconds,
            problems=self._problems,
        )

    async def run(self) -> None:
        """Perform, within `SECONDS_MAX`. Raises `SettingsError`."""
        try:
            async with (
                asyncio.timeout(SECONDS_MAX),
                EmbeddedServer(self._store_dir) as server,
                _plane(server.url) as plane,
            ):
                await plane.init()
                if (await plane.log.state()).last_revision:
                    rule = "it holds a log already: name a directory that is empty"
                    value = str(self._store_dir)
                    raise SettingsError(field="store_dir", value=value, rule=rule)
                self._say("start", f"a real nats-server runs at {server.url}")
                self.directory.mkdir(exist_ok=True)
                children = Children(directory=self.directory, url=server.url)
                with children.to_the_end():
                    await self._perform(plane, children)
        except TimeoutError:
            self._problems.append(f"it was not over after {SECONDS_MAX:.0f} s")

    async def _perform(self, plane: Plane, children: Children) -> None:
        stage = Stage(plane, children, directory=self.directory)
        self._acts = Acts(stage, self._say)
        try:
            async with asyncio.TaskGroup() as tasks:
                telling = stage.tell_traffic(self._say, TRAFFIC_EVERY_S)
                meanwhile = [
                    tasks.create_task(children.watch()),
                    tasks.create_task(telling),
                ]
                await self._acts.play()
                for task in meanwhile:
                    task.cancel()
        except* (DemoFailedError, ControlPlaneError) as group:
            self._fail(str(first_of(group)), children)
        finally:
            await self._farewell(children)
            self._traffic = judge_notes(stage.all_notes(), stage.deaths)

    def _fail(self, problem: str, children: Children) -> None:
        self._problems.append(problem)
        for child in children:
            if child.failed or child.name in problem:
                for line in child.last_lines():
                    self._say("output", f"{child.name}: {line}")

    async def _farewell(self, children: Children) -> None:
        """Let projectors and routers end as they should; workers leave no trace.

        A worker that said goodbye now would add to the log that was just compared.
        """
        leaving = [c for c in children if c.name in (*PROJECTORS, *ROUTERS)]
        for child in leaving:
            child.ask_to_end()
        try:
            async with asyncio.timeout(FAREWELL_S_MAX):
                for child in leaving:
                    await child.ended(FAREWELL_S_MAX)
        except (DemoFailedError, TimeoutError):
            late = ", ".join(child.name for child in leaving if child.running)
            self._problems.append(f"{late} did not end when asked to")


def _plane(url: str) -> Plane:
    """A plane that obeys nothing of the spectator's own environment."""
    return Plane([url], cell="default", name="demo", settings=Settings())
