"""Processes of the product, which do not outlive the test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.processes import Processes


@pytest.fixture
def processes() -> Iterator[Processes]:
    started = Processes()
    yield started
    started.clean_up()
