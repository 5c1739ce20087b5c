"""The steps of the plans made by hand: see `special`."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

from . import special_judges as judges
from . import special_leases as leases
from . import special_routers as routers
from . import special_sizes as sizes
from .plan import (
    BlackHole,
    BrokerRestart,
    Claim,
    Crash,
    Cut,
    DropConsumers,
    Freeze,
    Lag,
    LoseAnswers,
    Noise,
    Operate,
    Pace,
    Plant,
    Say,
    Slow,
    Step,
    TrimView,
    Upgrade,
    Wait,
)
from .special_steps import CORE, fleet, talk


# ---- the view stream -----------------------------------------------------------
def _frozen_leader(variant: int, rng: Random) -> list[Step]:
    """Leaders that are slow, and silent in the middle of it; foreign messages."""
    steps: list[Step] = [
        Slow(at_s=10.0, process=p, for_s=80.0, by_s=0.15 + 0.1 * variant)
        for p in ("p1", "p2")
    ]
    for round_ in range(4):
        at_s = 15.0 + 16.0 * round_ + rng.random()
        steps += [
            BlackHole(at_s=at_s, process="p1", for_s=6.0 + rng.random()),
            BlackHole(at_s=at_s + 8.0, process="p2", for_s=6.0 + rng.random()),
        ]
    steps += [Plant(at_s=rng.uniform(12.0, 85.0), where="view") for _ in range(6)]
    return [*fleet(8), *talk(rng, 8, 10.0, 85.0, 0.25), *steps]


def _late_follower(variant: int, rng: Random) -> list[Step]:
    """The lead changes while the next one has not read all of the view stream."""
    steps: list[Step] = []
    for round_ in range(4):
        at_s = 20.0 + 20.0 * round_ + 0.2 * variant + rng.random()
        leaves = ("p1", "p2")[round_ % 2]
        steps += [
            DropConsumers(at_s=at_s, stream="view"),
            Upgrade(at_s=at_s + 0.1, process=leaves, version="new"),
            *talk(rng, 8, at_s + 0.01, at_s + 1.5, 0.02),
        ]
    return [*fleet(8), *steps]


def _rebuild(variant: int, rng: Random) -> list[Step]:
    """The view stream loses its tail, with snapshots, under a leader that stays."""
    steps: list[Step] = [
        BrokerRestart(
            at_s=20.0 + 12.0 * round_ + rng.random(),
            down_s=0.1,
            lose_view=1 + variant,
            lose_snapshot=3 + variant,
        )
        for round_ in range(5)
    ]
    return [*fleet(8), *talk(rng, 8, 10.0, 85.0, 0.3), *steps]


def _unread(variant: int, rng: Random) -> list[Step]:
    """Foreign messages are trimmed from the view stream before anybody reads them."""
    steps: list[Step] = []
    for round_ in range(3):
        at_s = 20.0 + 16.0 * round_ + rng.random()
        steps += [
            *(Cut(at_s=at_s, process=p, for_s=2.0) for p in CORE),
            *talk(rng, 4, at_s + 0.2, at_s + 1.0, 0.3 + 0.3 * round_),
            *(
                Plant(at_s=at_s + 1.2 + 0.1 * n, where="view")
                for n in range(1 + (round_ + variant) % 3)
            ),
            TrimView(at_s=at_s + 1.6, keep=0),
            Wait(at_s=at_s + 4.0, kind="synced", router=CORE[2 + round_]),
        ]
    return [*fleet(4), *talk(rng, 4, 10.0, 66.0, 4.0), *steps]


def _fork(variant: int, rng: Random) -> list[Step]:
    """The log loses its tail and grows as high again before projectors look."""
    at_s = 40.0 + rng.random()
    steps: list[Step] = [
        *fleet(10),
        *talk(rng, 10, 30.0, at_s, 0.5),
        Cut(at_s=at_s, process="p1", for_s=14.0),
        Cut(at_s=at_s, process="p2", for_s=14.0 + variant),
        Freeze(at_s=at_s - 0.1, process="r3", for_s=24.0),
        BrokerRestart(
            at_s=at_s + 0.1, down_s=0.5, lose_log=5, lose_view=(0, 3, 5)[variant]
        ),
        *talk(rng, 10, at_s + 3.0, at_s + 16.0, 0.7),
    ]
    for number in range(8):
        after = at_s + 1.5 + 2.5 * number
        router = CORE[2 + number % 2]
        steps.append(Wait(at_s=after, kind="synced", router=router))
        steps.append(Wait(at_s=after, kind="wait", timeout_s=5.0))
    return steps


# ---- routers -------------------------------------------------------------------
def _trimmed(variant: int, rng: Random) -> list[Step]:
    """The view stream is trimmed while routers are away."""
    steps: list[Step] = []
    for round_ in range(3):
        at_s = 30.0 + 30.0 * round_ + rng.random()
        steps += [
            Cut(at_s=at_s, process="r1", for_s=10.0),
            Crash(at_s=at_s, process="r2", restart_s=10.0),
            *talk(rng, 8, at_s + 1.0, at_s + 8.0, 0.5),
            TrimView(at_s=at_s + 8.5, keep=(1, 2, 0)[variant]),
            Freeze(at_s=at_s + 8.4, process="p1", for_s=4.0),
            Freeze(at_s=at_s + 8.4, process="p2", for_s=4.0),
            *talk(rng, 8, at_s + 9.7, at_s + 12.0, 0.3),
        ]
    return [*fleet(8), *steps]


def _behind(variant: int, rng: Random) -> list[Step]:
    """A router misses much, and is killed each time that it has saved its file."""
    steps: list[Step] = [
        Noise(at_s=15.0, process="r2", for_s=75.0, lose=0.8),
        *(
            Crash(at_s=15.5 + 0.02 * variant + 6.0 * n, process="r2", restart_s=0.5)
            for n in range(12)
        ),
    ]
    return [*fleet(8), *talk(rng, 8, 10.0, 90.0, 1.5), *steps]


def _late_snapshot(variant: int, rng: Random) -> list[Step]:
    """A leader is away for a while in the middle of writing a snapshot."""
    steps: list[Step] = [
        Slow(at_s=10.0, process=p, for_s=95.0, by_s=0.4) for p in ("p1", "p2")
    ]
    for round_ in range(5):
        at_s = 15.0 + 17.0 * round_ + 0.7 * variant + rng.random()
        process = ("p1", "p2")[round_ % 2]
        steps.append(BlackHole(at_s=at_s, process=process, for_s=12.0))
    return [*fleet(8), *talk(rng, 8, 10.0, 100.0, 0.15), *steps]


def _restarts(variant: int, rng: Random) -> list[Step]:
    """Everybody is killed and starts from what was kept, with holds and weights."""
    steps: list[Step] = [
        Operate(
            at_s=15.0 + number,
            verb=("hold", "weight")[number % 2],
            namespace="prod",
            worker_id=f"w{1 + number:02}",
            model="llama",
            weight=2.5,
        )
        for number in range(4)
    ]
    for round_ in range(4):
        at_s = 35.0 + 15.0 * round_ + variant + rng.random()
        restart_s = (0.5, 4.0, 12.0)[variant]
        steps += [Crash(at_s=at_s, process=p, restart_s=restart_s) for p in CORE]
    return [*fleet(8), *talk(rng, 8, 12.0, 100.0, 0.8), *steps]


def _asleep(variant: int, rng: Random) -> list[Step]:
    """Somebody waits for all routers while one of them sleeps."""
    steps: list[Step] = []
    for round_ in range(4):
        at_s = 20.0 + 15.0 * round_ + rng.random()
        process = CORE[2 + (round_ + variant) % 3]
        steps += [
            Freeze(at_s=at_s, process=process, for_s=8.0),
            *(Wait(at_s=at_s + after, kind="wait") for after in (0.7, 1.4, 2.1)),
        ]
    return [*fleet(8), *talk(rng, 8, 10.0, 75.0, 0.3), *steps]


# ---- the log -------------------------------------------------------------------
def _late_words(variant: int, rng: Random) -> list[Step]:
    """What was said before the connection broke lands late, or never."""
    steps: list[Step] = []
    for round_ in range(12):
        at_s = 20.0 + 6.0 * round_ + rng.random()
        process, asks_s = (("op", 3.0), (f"w{1 + round_ % 4:02}", 0.0))[round_ % 2]
        verb = ("hold", "resume")[round_ // 2 % 2]
        update = Say(at_s=at_s, process=process, verb="update", value=f"90{round_}")
        decision = Operate(
            at_s=at_s, verb=verb, namespace="prod", worker_id=f"w0{1 + variant}"
        )
        steps += [
            Slow(at_s=at_s - 0.3, process=process, for_s=asks_s + 0.5, by_s=1.5),
            Cut(
                at_s=at_s + asks_s + 0.1,  # an operator asks for room before it says it
                process=process,
                for_s=0.05,
                landing=(1.0, 0.0)[round_ // 2 % 2],
            ),
            decision if process == "op" else update,
        ]
    return [*fleet(4), *steps]


def _lagging(variant: int, rng: Random) -> list[Step]:
    """Answers get lost while replicas lag."""
    steps: list[Step] = [
        Lag(at_s=20.0 + 25.0 * n, for_s=22.0, by_s=8.0 + variant) for n in range(3)
    ]
    for number in range(60):
        process = f"w{1 + number % 8:02}"
        steps.append(LoseAnswers(at_s=20.0 + number, process=process))
    return [*fleet(8), *talk(rng, 8, 10.0, 82.0, 0.4), *steps]


def _strangers(variant: int, rng: Random) -> list[Step]:
    """Somebody appends what old lives might have said late, expecting nothing."""
    claims = [
        Claim(
            at_s=20.0 + 15.0 * n,
            process="c1",
            host="10.0.0.1",
            port=20000,
            size=1 + variant,
            hold_s=10.0,
        )
        for n in range(3)
    ]
    plants = [Plant(at_s=10.0 + 0.7 * n, where="stale") for n in range(70)]
    late = [Noise(at_s=8.0, process=r, for_s=55.0, late_s=1.5) for r in CORE[2:]]
    return [*fleet(4), *talk(rng, 4, 10.0, 60.0, 3.0), *claims, *plants, *late]


def _upgrade(variant: int, rng: Random) -> list[Step]:
    """Old versions write snapshots of what they do not know; then new ones come."""
    steps: list[Step] = [Upgrade(at_s=0.0, process=p, version="old") for p in CORE]
    steps += [
        Operate(
            at_s=20.0 + 4.0 * number,
            verb="weight",
            namespace="prod",
            model="llama",
            weight=(0.0, 2.0, 0.5)[number % 3],
        )
        for number in range(5)
    ]
    at_s = 50.0
    for process in rng.sample(CORE, len(CORE)):
        steps.append(Upgrade(at_s=at_s, process=process, version="new"))
        at_s += 4.0 * variant
    return [*fleet(8), *talk(rng, 8, 12.0, 80.0, 0.7), *steps]


PLANS: Final[dict[str, Callable[[int, Random], list[Step]]]] = {
    "stopped-server": leases.stopped_server,
    "mass-death": leases.mass_death,
    "two-of-one-name": leases.two_of_one_name,
    "claim-expire-register": leases.claim_expire_register,
    "claim-expire-repeat": leases.claim_expire_repeat,
    "slow-judge": leases.slow_judge,
    "deaf-judge": leases.deaf_judge,
    "frozen-leader": _frozen_leader,
    "late-follower": _late_follower,
    "rebuild": _rebuild,
    "fork": _fork,
    "trimmed": _trimmed,
    "behind": _behind,
    "late-snapshot": _late_snapshot,
    "asleep": _asleep,
    "restarts": _restarts,
    "late-words": _late_words,
    "lagging": _lagging,
    "strangers": _strangers,
    "upgrade": _upgrade,
    **sizes.PLANS,
    **routers.PLANS,
    **judges.PLANS,
    "unread": _unread,
    "robbed": leases.robbed,
}
PACES: Final = {
    "claim-expire-register": Pace(factor=3.0),
    "slow-judge": Pace(factor=6.0),
    "deaf-judge": Pace(factor=6.0),
    "frozen-leader": Pace(publish_batch_max=1),
    "late-follower": Pace(snapshot_every=10),
    "rebuild": Pace(snapshot_every=10),
    "trimmed": Pace(snapshot_every=1000),
    "behind": Pace(factor=3.0),
    "restarts": Pace(snapshot_every=10),
    "late-snapshot": Pace(snapshot_every=5, factor=2.0),
    "upgrade": Pace(snapshot_every=10),
    **sizes.PACES,
    **routers.PACES,
    **judges.PACES,
}
