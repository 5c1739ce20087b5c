"""The oracle notices a process that goes round and says the same error each time."""

import pytest

from tests.simulation.complaining import SAME_MAX, Complaining
from tests.simulation.loop import SimLoop
from tests.simulation.telling import violation
from tests.simulation.trace import Trace


class Heard:
    """A world of which only the trace is looked at."""

    def __init__(self):
        self.loop = SimLoop()
        self.trace = Trace(self.loop, keep=False)

    def says(self, who, message, times):
        self.trace.errors += [(self.loop.time(), who, message)] * times


@pytest.fixture
def heard():
    heard = Heard()
    yield heard
    heard.loop.close()


def test_the_same_error_over_and_over_is_a_violation(heard):
    heard.says("r1", "divergence", SAME_MAX + 1)
    assert "r1 says" in violation("spinning", Complaining(heard).look)


def test_it_may_be_said_by_several_of_several_things_and_again_later(heard):
    complaining = Complaining(heard)
    for who in ("r1", "r2"):
        for number in range(3):
            heard.says(who, f"divergence {number}", SAME_MAX)
    complaining.look()
    heard.says("r1", "divergence 0", SAME_MAX)
    complaining.look()
