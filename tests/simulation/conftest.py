"""A loop in virtual time, a process on it, and lines for what happens there."""

from __future__ import annotations

import tempfile

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


@pytest.fixture(autouse=True)
def _own_temporary_folder(tmp_path, monkeypatch):
    """What a failing run leaves behind goes with the test, of its children too."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
