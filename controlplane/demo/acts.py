"""The acts of the demo, each with what it waits for and what it says."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import Final

from events import ModelName
from projections import Fleet

from .children import DemoFailedError, until
from .example import EXAMPLE, example_can_run
from .outcome import REPLAY, Standing
from .picks import Death, Picked
from .stage import LEASE_TTL_S, PROJECTORS, ROUTERS, Say, Stage

LLAMA: Final = "meta-llama/Llama-3.1-8B-Instruct"
QWEN: Final = "Qwen/Qwen2.5-7B-Instruct"
MODELS: Final = (LLAMA, QWEN)
OLD, NEW = "prod-v1", "prod-v2"
COUNT: Final = 4
"""Workers of each model."""
STEP_S_MAX: Final = 20.0
"""Any one thing that is waited for happens within this, or the demo fails."""
AGREE_S_MAX: Final = 10.0
PICKS_MIN: Final = 20


class Acts:
    """What happens on stage."""

    def __init__(self, stage: Stage, say: Say) -> None:
        """Play on ``stage``, and ``say`` what happens."""
        self._stage, self._say = stage, say
        self.leader: str | None = None
        self.standings: list[Standing] = []

    async def play(self) -> None:
        """The whole story. Raises `DemoFailedError`."""
        await self.enter()
        await self.replace(1)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.kill_leader())
            tasks.create_task(self.replace(2))
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.kill_worker(f"qwen-{COUNT}"))
            tasks.create_task(self.kill_router("router-b"))
            tasks.create_task(self._replace_the_rest(3))
        await self.agree()

    async def _replace_the_rest(self, first: int) -> None:
        for number in range(first, COUNT + 1):
            await self.replace(number)

    # ---- act one: everybody enters ---------------------------------------------
    async def enter(self) -> None:
        """Start everybody, and wait until both routers pick."""
        stage = self._stage
        self._say(
            "phase",
            f"starting 2 projectors, 2 routers and {2 * COUNT} workers that serve "
            "2 models, each a process of its own",
        )
        for name in PROJECTORS:
            stage.projector(name)
        for name in ROUTERS:
            stage.router(name, MODELS)
        for number in range(1, COUNT + 1):
            stage.worker(f"llama-v1-{number}", LLAMA, OLD)
            stage.worker(f"qwen-{number}", QWEN, OLD)
        for child in stage.children:
            await child.up()
        await stage.routers_see(
            lambda fleet: all(routable(fleet, model) == COUNT for model in MODELS),
            within_s=STEP_S_MAX,
            what="both routers saw all workers ready",
        )
        self.leader = await self._await_leader()
        await self._await_picks()
        self._say(
            "phase",
            f"{self.leader} leads; both routers see all {2 * COUNT} workers and send "
            f"real requests to them{_by_way_of()}, all the time from now on",
        )

    async def _await_leader(self) -> str:
        leaders: list[str] = []

        async def one_leads() -> bool:
            leader = await self._stage.leader()
            leaders.extend([] if leader is None else [leader])
            return leader is not None

        await until(one_leads, within_s=STEP_S_MAX, what="a projector led")
        return leaders[0]

    async def _await_picks(self) -> None:
        for router in ROUTERS:
            await until(
                partial(self._has_picked, router),
                within_s=STEP_S_MAX,
                what=f"{router} picked",
            )

    def _has_picked(self, router: str) -> bool:
        return len(self._stage.notes(router)) > PICKS_MIN

    # ---- the rolling update ----------------------------------------------------
    async def replace(self, number: int) -> None:
        """Replace one worker of the old generation by one of the new."""
        stage, began = self._stage, time.monotonic()
        new, old = f"llama-v2-{number}", f"llama-v1-{number}"
        stage.worker(new, LLAMA, NEW)
        await stage[new].up()
        await stage.routers_see(
            lambda fleet: is_routable(fleet, NEW, new),
            within_s=STEP_S_MAX,
            what=f"both routers saw {new} ready",
        )
        stage[old].ask_to_end()
        await stage[old].ended(STEP_S_MAX)
        self._say(
            "phase",
            f"rolling update {number}/{COUNT}: {NEW}/{new} joined, then {OLD}/{old} "
            "drained (no router sent it more, what it had begun was answered) and left "
            f"({time.monotonic() - began:.1f} s)",
        )

    # ---- the kills -------------------------------------------------------------
    async def kill_leader(self) -> None:
        """Kill the leading projector; the other takes over; start it again."""
        stage, leader = self._stage, await self._await_leader()
        other = next(name for name in PROJECTORS if name != leader)
        stage[leader].kill()
        began = time.monotonic()
        self._say(
            "kill",
            f"{leader}, the leader, killed with SIGKILL; routers go on with what they "
            "know, and workers still reach the log",
        )
        await until(
            lambda: self._leads(other),
            within_s=STEP_S_MAX,
            what=f"{other} took over",
        )
        took_s = time.monotonic() - began
        self.leader = other
        self._say("takeover", f"{other} took over after {took_s:.1f} s")
        # Not before: who starts anew may win the lease as well as the standby.
        stage[leader].start()
        await stage[leader].up()
        self._say("restart", f"{leader} is back, as the standby")

    async def _leads(self, name: str) -> bool:
        return (await self._stage.ready(name)).role == "leader"

    async def kill_router(self, router: str) -> None:
        """Kill a router and start it again from its checkpoint file."""
        stage = self._stage
        await until(
            stage.checkpoint(router).exists,
            within_s=STEP_S_MAX,
            what=f"{router} wrote its checkpoint file",
        )
        stage[router].kill()
        self._say(
            "kill",
            f"{router} killed with SIGKILL; the rolling update waits for it: no worker "
            "leaves before every router knows",
        )
        began = time.monotonic()
        stage[router].start()
        announced = await stage[router].up()
        if announced.source != "checkpoint":
            problem = f"{router} began with {announced.source}, not with its checkpoint"
            raise DemoFailedError(problem)
        await until(
            lambda: self._is_live(router),
            within_s=STEP_S_MAX,
            what=f"{router} was live again",
        )
        self._say(
            "restart",
            f"{router} is back after {time.monotonic() - began:.1f} s: it began with "
            f"its checkpoint file, at revision {announced.revision}, and caught up",
        )

    async def _is_live(self, router: str) -> bool:
        return (await self._stage.ready(router)).source == "live"

    async def kill_worker(self, name: str) -> None:
        """Kill a worker, wait for its lease to run out, and for picks after that."""
        stage = self._stage
        announced = stage[name].announced
        death = Death(
            at_s=time.monotonic(),
            incarnation=announced.incarnation,
            lease_ttl_s=LEASE_TTL_S,
        )
        stage[name].kill()
        stage.deaths.append(death)
        self._say(
            "kill",
            f"worker {name} killed with SIGKILL; it cannot say goodbye, so its lease "
            f"of {LEASE_TTL_S:.0f} s must run out",
        )
        await stage.routers_see(
            lambda fleet: fleet.worker(announced.namespace, name) is None,
            within_s=STEP_S_MAX,
            what=f"{name} was out of both routers",
        )
        self._say(
            "expiry",
            f"{name} is out of both routers {time.monotonic() - death.at_s:.1f} s "
            "after its death; until then they avoided it after a refused connection",
        )
        await until(
            lambda: all(self._picked_after(death, router) for router in ROUTERS),
            within_s=STEP_S_MAX,
            what="both routers picked after the lease had run out",
            every_s=0.1,
        )

    def _picked_after(self, death: Death, router: str) -> bool:
        return any(
            isinstance(note, Picked)
            and note.model == QWEN
            and note.at_s > death.out_at_s
            for note in self._stage.notes(router)
        )

    # ---- the end ---------------------------------------------------------------
    async def agree(self) -> None:
        """Wait until all are where a replay of the whole log is; note where they are.

        Returns in time even if they are not: the judge says who differs.
        """
        self._say("phase", "replaying the log from its beginning, to compare")
        log = self._stage.plane.log
        replay = await self._replay()

        async def all_agree() -> bool:
            nonlocal replay
            if (await log.state()).last_revision != replay.revision:
                replay = await self._replay()
            rows = await self._stage.standings()
            self.standings = [*rows, replay]
            return len({(row.revision, row.digest) for row in self.standings}) == 1

        try:
            await until(all_agree, within_s=AGREE_S_MAX, what="all agreed", every_s=0.1)
        except DemoFailedError:
            return
        self.leader = await self._await_leader()
        self._say(
            "agreement",
            f"both projectors, both routers and the replay are at revision "
            f"{replay.revision} with digest {replay.digest}",
        )

    async def _replay(self) -> Standing:
        state = await self._stage.plane.log.replay()
        return Standing(REPLAY, state.revision, state.fleet.digest)


def _by_way_of() -> str:
    if not example_can_run():
        return ""
    return f", by way of {EXAMPLE.parent.name}/{EXAMPLE.name}"


def routable(fleet: Fleet, model: ModelName) -> int:
    """How many workers of ``model`` may get requests."""
    if model not in fleet.models:
        return 0
    sets = fleet.models[model].worker_sets.values()
    return sum(worker.routable for each in sets for worker in each.workers.values())


def is_routable(fleet: Fleet, namespace: str, worker_id: str) -> bool:
    """Whether this worker may get requests."""
    worker = fleet.worker(namespace, worker_id)
    return worker is not None and worker.routable
