"""Small plans in small worlds, and what shows of them. For tests of the simulator."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

from controlplane.topology import Names
from tests.simulation.hosts import CELL
from tests.simulation.plan import Enter, Pace, Plan
from tests.simulation.world import World

NAMES = Names(CELL)
FAULT_S = 20.0
"""When the fault comes: the cell is made, one leads, the routers follow."""
W01 = Enter(at_s=3.0, process="w01", worker_id="w01", namespace="prod", model="llama")
W02 = Enter(at_s=22.0, process="w02", worker_id="w02", namespace="prod", model="llama")
LINE = re.compile(r" *([0-9.]+) (\S+) +(.*)")


def play(*steps, probes=(), end_s=70.0, seed=1, pace=None):
    """Run a plan of these steps, with probes at some times, to its end."""
    plan = Plan(
        seed=seed,
        steps=tuple(sorted(steps, key=lambda step: step.at_s)),
        faults_end_s=end_s - 20.0,
        end_s=end_s,
        pace=pace or Pace(),
    )
    with tempfile.TemporaryDirectory(prefix="sim-") as folder:
        world = World(plan, Path(folder), trace=True)
        for at_s, probe in probes:
            world.loop.call_at(at_s, probe, world)
        with world.trace.listening():
            world.run()
    return world


def lines(world, who, what=""):
    """When somebody did or said something, and what: (seconds, text) each."""
    found = [LINE.fullmatch(line) for line in world.trace.kept]
    return [
        (float(each[1]), each[3])
        for each in found
        if each and each[2] == who and re.search(what, each[3])
    ]


def times(world, who, what=""):
    return [at_s for at_s, _ in lines(world, who, what)]


def kinds(world):
    """The kinds of the events in the log, in order."""
    return [what.split()[1] for _, what in lines(world, "log")]


def moved(world, router, after_s):
    """When the router moved first after that."""
    return next(at_s for at_s in times(world, router, r"^at ") if at_s > after_s)


class Probe:
    """Looks at something of the world at some times, and keeps what it saw."""

    def __init__(self, look, *at_s):
        self.look, self.seen = look, []
        self.times = [(each, self) for each in at_s]

    def __call__(self, world):
        self.seen.append(self.look(world))
