"""The worlds in which every scenario is played."""

import pytest

from tests.simulation.stage import SimWorld
from tests.support.real_stage import RealWorld

WORLDS = {"real": RealWorld, "simulated": SimWorld}


@pytest.fixture(params=WORLDS)
def world(request):
    """Plays a scenario: ``world.run(scenario, **settings)``."""
    return WORLDS[request.param]()
