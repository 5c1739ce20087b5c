"""From a seed to a plan: which workers come and go, and what goes wrong meanwhile.

Each seed draws a mood (how often which kind of fault comes), so that some runs are
calm with one rare fault and some are storms; a fault that only shows when nothing else
happens is found as well as one that takes three.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from .plan import (
    BlackHole,
    BrokerRestart,
    BrokerStall,
    Claim,
    ClockJump,
    Crash,
    Cut,
    DropConsumers,
    Enter,
    Freeze,
    Lag,
    LogRecreated,
    LoseAnswers,
    NodeStall,
    Noise,
    NoResponders,
    Operate,
    Pace,
    Plan,
    Plant,
    Say,
    Slow,
    SpoilSnapshot,
    Step,
    TrimView,
    Upgrade,
    Wait,
)

END_S = 600.0
FAULTS_END_S = 420.0
WORKERS = 20
MODELS = ("llama", "qwen")
PROJECTORS = ("p1", "p2")
ROUTERS = ("r1", "r2", "r3")
CORE = PROJECTORS + ROUTERS
HOSTS = ("10.0.0.1", "10.0.0.2")
HOUR_S = 3600.0
DEAF_S = 0.3
VERBS = ("starting", "ready", "draining", "update", "load", "unload", "leave")


def plan_of(seed: int, *, workers: int = WORKERS, end_s: float = END_S) -> Plan:
    """The plan of ``seed``: equal seeds have equal plans, for ever."""
    rng = Random(f"plan/{seed}")
    planner = Planner(rng, workers, FAULTS_END_S * end_s / END_S)
    steps = [*planner.fleet(), *planner.claims(), *planner.decisions()]
    steps += planner.faults()
    steps += planner.waits()
    return Plan(
        seed=seed,
        steps=tuple(sorted(steps, key=lambda step: step.at_s)),
        faults_end_s=planner.faults_end_s,
        end_s=end_s,
        pace=planner.pace,
    )


class Planner:
    """Draws the parts of one plan."""

    def __init__(self, rng: Random, workers: int, faults_end_s: float) -> None:
        self._rng, self.faults_end_s = rng, faults_end_s
        self._names = [f"w{number:02}" for number in range(1, workers + 1)]
        factor = rng.choices((1.0, 2.0, 3.0, 4.0), (1, 1, 2, 6))[0]
        self.pace = Pace(
            factor=factor,
            view_max_age_s=rng.choice((60.0, 150.0, 24 * HOUR_S, 24 * HOUR_S)),
            snapshot_every=rng.choice((10, 25, 25, 1000)),
            publish_batch_max=rng.choice((2, 10, 500)),
        )
        self._ttls = [5.0 * factor, 10.0 * factor, 20.0 * factor, 20.0 * factor]

    # ---- the fleet -------------------------------------------------------------
    def fleet(self) -> list[Step]:
        """Every worker enters once or more, and says things."""
        steps: list[Step] = []
        for name in self._names:
            steps += self._worker(name)
        return steps

    def _worker(self, name: str) -> list[Step]:
        rng = self._rng
        at_s = rng.choice((rng.uniform(2, 6), rng.uniform(2, self.faults_end_s * 0.7)))
        entry = self._entry(name, at_s)
        steps: list[Step] = [entry]
        adapters = 0
        while True:
            at_s += rng.expovariate(1 / 150)
            if at_s > self.faults_end_s:
                return steps
            verb = rng.choices(VERBS, (1, 4, 1, 3, 2, 1, 1))[0]
            value = ""
            if verb == "update":
                value = str(rng.randrange(9000, 9010))
            elif verb in ("load", "unload"):
                adapters += verb == "load"
                value = f"lora-{adapters}"
            steps.append(Say(at_s=at_s, process=name, verb=verb, value=value))
            if verb == "leave":
                at_s += rng.uniform(1, 60)
                steps.append(self._entry(name, at_s))

    def _entry(self, name: str, at_s: float) -> Enter:
        rng = self._rng
        model = rng.choice(MODELS)
        disaggregated = model == "qwen"
        role = rng.choice(("prefill", "decode")) if disaggregated else "aggregated"
        worker_id = name
        if rng.random() < 0.06:
            worker_id = rng.choice(self._names)
        return Enter(
            at_s=at_s,
            process=name,
            worker_id=worker_id,
            namespace=rng.choice(("prod", "prod", "prod-v2")),
            model=model,
            role=role,
            needs=(("prefill",),) if role == "decode" else (),
            card=rng.choices((1, 2), (5, 1))[0],
            status=rng.choices(("ready", "starting"), (4, 1))[0],
            lease_ttl_s=rng.choice(self._ttls),
            ports=rng.choices((0, 1, 2, 4), (16, 2, 1, 1))[0],
            host=rng.choice(HOSTS),
        )

    def claims(self) -> list[Step]:
        """Claimants want overlapping blocks of two hosts."""
        rng = self._rng
        return [
            Claim(
                at_s=rng.uniform(5, self.faults_end_s - 60),
                process=f"c{rng.randrange(1, 5)}",
                host=rng.choice(HOSTS),
                port=20000 + rng.randrange(6),
                size=rng.choice((1, 2, 4)),
                hold_s=rng.uniform(1, 60),
                register=rng.random() < 0.7,
            )
            for _ in range(rng.randrange(8))
        ]

    def decisions(self) -> list[Step]:
        """An operator holds, resumes, weighs and forgets."""
        rng = self._rng
        return [
            Operate(
                at_s=rng.uniform(5, self.faults_end_s),
                verb=rng.choice(("hold", "resume", "weight", "thresholds", "forget")),
                namespace=rng.choice(("prod", "prod-v2")),
                worker_id=rng.choice(self._names),
                model=rng.choice(MODELS),
                weight=rng.choice((0.0, 1.0, 2.5)),
            )
            for _ in range(rng.randrange(10))
        ]

    def waits(self) -> list[Step]:
        """Somebody waits for routers now and then, and at the very end."""
        rng = self._rng
        some = [
            Wait(
                at_s=rng.uniform(5, self.faults_end_s),
                kind=rng.choice(("wait", "synced", "wait_for")),
                router=rng.choice(ROUTERS),
                timeout_s=rng.choice((5.0, 30.0)),
            )
            for _ in range(4)
        ]
        well_s = self.faults_end_s + 90
        every = [
            Wait(at_s=well_s, kind="synced", router=router, timeout_s=5.0)
            for router in ROUTERS
        ]
        return [*some, *every, Wait(at_s=well_s + 10, kind="wait", timeout_s=5.0)]

    # ---- faults ----------------------------------------------------------------
    def faults(self) -> list[Step]:
        """What goes wrong, by the mood of the seed."""
        rng = self._rng
        kinds = list(_FAULTS)
        mood = rng.sample(kinds, rng.randrange(1, 7))
        count = rng.randrange(2, 26)
        steps = []
        for _ in range(count):
            draw = rng.choice(mood) if rng.random() < 0.85 else rng.choice(kinds)
            at_s = rng.uniform(1, self.faults_end_s - 5)
            steps.append(draw(self, at_s))
        if rng.random() < 0.12:
            steps += self._upgrade()
        return steps

    def _long(self, at_s: float) -> float:
        """A duration that may outlive every lease, within the time for faults."""
        rng, factor = self._rng, self.pace.factor
        length = rng.choice(
            (
                rng.uniform(0.05, 1.0),
                rng.uniform(0.5, 5.0),
                rng.uniform(3.0, 15.0) * factor,
                rng.uniform(10.0, 60.0),
            )
        )
        return round(self._within(at_s, length), 3)

    def _within(self, at_s: float, length_s: float) -> float:
        """As long as that, but not beyond the time for faults."""
        return min(length_s, max(0.05, self.faults_end_s - at_s))

    def _any_process(self) -> str:
        rng = self._rng
        if rng.random() < 0.6:
            return rng.choice(CORE)
        return rng.choice([*self._names, "c1", "c2", "op"])

    def crash(self, at_s: float) -> Step:
        process = self._any_process()
        restart_s: float | None
        restart_s = self._within(at_s, self._rng.choice((0.05, 0.5, 3.0, 20.0)))
        if process.startswith("w") and self._rng.random() < 0.4:
            restart_s = None
        if process == "op":
            process = "p1"
        return Crash(
            at_s=at_s,
            process=process,
            callbacks=self._rng.choice((0, 0, 1, 2, 3, 5, 8, 20, 60)),
            restart_s=restart_s,
        )

    def restart(self, at_s: float) -> Step:
        """The router that keeps checkpoints dies and comes back."""
        return Crash(
            at_s=at_s,
            process="r2",
            callbacks=self._rng.choice((0, 1, 2, 3, 5, 8)),
            restart_s=self._within(at_s, self._rng.choice((0.05, 0.5, 3.0, 20.0))),
        )

    def freeze(self, at_s: float) -> Step:
        process = self._any_process()
        if process == "op":
            process = "p2"
        return Freeze(at_s=at_s, process=process, for_s=self._long(at_s))

    def sleep(self, at_s: float) -> Step:
        for_s = min(self._rng.uniform(60, 250), self.faults_end_s - at_s)
        return Freeze(at_s=at_s, process="r3", for_s=max(1.0, round(for_s, 3)))

    def clock_jump(self, at_s: float) -> Step:
        process = self._rng.choice([*CORE, *self._names, "broker"])
        by_s = self._rng.choice((-HOUR_S, HOUR_S, -30.0, 30.0))
        return ClockJump(at_s=at_s, process=process, by_s=by_s)

    def cut(self, at_s: float) -> Step:
        return Cut(
            at_s=at_s,
            process=self._any_process(),
            for_s=self._long(at_s),
            landing=self._rng.choice((0.0, 0.5, 1.0)),
        )

    def black_hole(self, at_s: float) -> Step:
        return BlackHole(at_s=at_s, process=self._any_process(), for_s=self._long(at_s))

    def lose_answers(self, at_s: float) -> Step:
        count = self._rng.choice((1, 1, 2, 5))
        return LoseAnswers(at_s=at_s, process=self._any_process(), count=count)

    def noise(self, at_s: float) -> Step:
        rng = self._rng
        process = rng.choice((*ROUTERS, *PROJECTORS, rng.choice(self._names)))
        judge = process in PROJECTORS
        for_s = self._long(at_s)
        lose = 0.0 if judge else rng.choice((0.0, 0.1, 0.5))
        double, late_s = rng.choice((0.0, 0.3)), rng.choice((0.0, 0.05, 0.4))
        return Noise(
            at_s=at_s,
            process=process,
            for_s=for_s,
            lose=lose,
            double=double,
            late_s=late_s,
            deaf_s=DEAF_S if process in ROUTERS and late_s else 0.0,
        )

    def slow(self, at_s: float) -> Step:
        return Slow(
            at_s=at_s,
            process=self._any_process(),
            for_s=self._long(at_s),
            by_s=self._rng.choice((0.05, 0.3, 1.5)),
        )

    def broker_stall(self, at_s: float) -> Step:
        return BrokerStall(at_s=at_s, for_s=self._long(at_s))

    def node_stall(self, at_s: float) -> Step:
        node = self._rng.choice(("n1", "n2"))
        return NodeStall(at_s=at_s, node=node, for_s=self._long(at_s))

    def no_responders(self, at_s: float) -> Step:
        return NoResponders(at_s=at_s, for_s=self._long(at_s))

    def broker_restart(self, at_s: float) -> Step:
        rng = self._rng
        return BrokerRestart(
            at_s=at_s,
            down_s=min(self._long(at_s), 40.0),
            landing=rng.choice((0.0, 0.5, 1.0)),
        )

    def lost_tail(self, at_s: float) -> Step:
        rng = self._rng
        return BrokerRestart(
            at_s=at_s,
            down_s=min(self._long(at_s), 40.0),
            lose_log=rng.choice((0, 1, 2, 5, 30)),
            lose_view=rng.choice((0, 1, 2, 5, 30)),
            lose_snapshot=rng.choice((0, 0, 1, 3)),
            landing=rng.choice((0.0, 0.5, 1.0)),
        )

    def log_recreated(self, at_s: float) -> Step:
        gone_s = self._within(at_s, self._rng.choice((0.05, 0.5, 10.0)))
        return LogRecreated(at_s=at_s, gone_s=gone_s)

    def trim_view(self, at_s: float) -> Step:
        return TrimView(at_s=at_s, keep=self._rng.choice((0, 1, 3, 10)))

    def spoil_snapshot(self, at_s: float) -> Step:
        how = self._rng.choice(("corrupt", "missing", "gone"))
        return SpoilSnapshot(at_s=at_s, how=how)

    def drop_consumers(self, at_s: float) -> Step:
        return DropConsumers(at_s=at_s, stream=self._rng.choice(("log", "view")))

    def lag(self, at_s: float) -> Step:
        by_s = self._rng.choice((0.2, 2.0, 5.0))
        return Lag(at_s=at_s, for_s=self._long(at_s), by_s=by_s)

    def plant(self, at_s: float) -> Step:
        where = self._rng.choice(
            ("view", "log", "unknown_event", "beat", "notice", "head", "stale")
        )
        return Plant(at_s=at_s, where=where)

    def _upgrade(self) -> list[Step]:
        """Every projector and router begins old and is upgraded in turn."""
        steps: list[Step] = [
            Upgrade(at_s=0.0, process=process, version="old") for process in CORE
        ]
        at_s = self._rng.uniform(40, self.faults_end_s - 120)
        for process in self._rng.sample(CORE, len(CORE)):
            steps.append(Upgrade(at_s=at_s, process=process, version="new"))
            at_s += self._rng.choice((0.0, 5.0, 20.0))
        return steps


_FAULTS: tuple[Callable[[Planner, float], Step], ...] = (
    Planner.crash,
    Planner.crash,
    Planner.restart,
    Planner.freeze,
    Planner.freeze,
    Planner.sleep,
    Planner.clock_jump,
    Planner.cut,
    Planner.black_hole,
    Planner.lose_answers,
    Planner.noise,
    Planner.slow,
    Planner.broker_stall,
    Planner.node_stall,
    Planner.no_responders,
    Planner.broker_restart,
    Planner.lost_tail,
    Planner.lost_tail,
    Planner.log_recreated,
    Planner.trim_view,
    Planner.spoil_snapshot,
    Planner.drop_consumers,
    Planner.lag,
    Planner.plant,
)
