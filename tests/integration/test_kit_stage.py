"""The real stage by itself: it fails when it should, and says why.

What both stages promise is in `tests.worlds.staging`.
"""

import os
import signal

import pytest

from tests.support.real_stage import RealWorld


def test_a_process_that_ends_by_itself_fails_the_scenario(capsys):
    async def scenario(stage):
        router = stage.router("r")
        await router.start()
        os.kill(router._process.pid, signal.SIGKILL)
        await stage.until(lambda: not router.running)

    with pytest.raises(AssertionError, match="r ended"):
        RealWorld().run(scenario)
    assert "seed 7" in capsys.readouterr().out
