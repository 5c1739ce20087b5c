"""Bytes as people say them. Pure."""

from __future__ import annotations

from typing import Final

UNITS: Final = ("B", "kB", "MB", "GB", "TB")
STEP: Final = 1000


def byte_size(count: float) -> str:
    """So many bytes, for people."""
    step = 0
    while count >= STEP and step < len(UNITS) - 1:
        count, step = count / STEP, step + 1
    return f"{count:.1f} {UNITS[step]}" if step else f"{count:.0f} {UNITS[0]}"
