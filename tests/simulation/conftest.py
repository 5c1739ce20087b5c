"""A loop in virtual time, a process on it, and lines for what happens there."""

from __future__ import annotations

import pytest

from tests.simulation.loop import Process, SimLoop


@pytest.fixture
def loop() -> SimLoop:
    return SimLoop()


@pytest.fixture
def process(loop: SimLoop) -> Process:
    return Process("p1", loop)


@pytest.fixture
def lines() -> list[object]:
    """What happened, in order."""
    return []
