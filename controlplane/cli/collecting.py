"""Less garbage collection while a long history is folded."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

THRESHOLDS: Final = (100_000, 50, 100)
"""Far above Python's usual ones, and still bounded."""


@contextmanager
def rarely_collecting() -> Iterator[None]:
    """Within it, look for garbage in cycles ever so rarely.

    A fold makes none, but the collector looks through the whole fleet again and again
    while it grows: a tenth of the time, or more.
    """
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
