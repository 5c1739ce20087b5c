"""How the interpreter behaves while a long history is folded."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

THRESHOLDS: Final = (100_000, 50, 100)
"""Far above Python's usual ones, and still bounded."""
SWITCH_S: Final = 0.0002
"""Python's usual one is 5 ms."""


@contextmanager
def in_a_long_fold() -> Iterator[None]:
    """Within it, look for garbage in cycles ever so rarely, and let threads in often.

    A fold makes none, but the collector looks through the whole fleet again and again
    while it grows: a tenth of the time, or more. And whoever reads ahead for the fold
    waits for its turn after each piece, by default for longer than the piece took.
    """
    before, switch_s = gc.get_threshold(), sys.getswitchinterval()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
    sys.setswitchinterval(SWITCH_S)
    try:
        yield
    finally:
        sys.setswitchinterval(switch_s)
        gc.set_threshold(*before)
        gc.unfreeze()
