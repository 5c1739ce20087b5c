"""What a process does before it forks many children that are in a hurry."""

from __future__ import annotations

import gc

import controlplane as cp


def be_ready_to_fork() -> None:
    """Import what is imported when it is first used, and share all that is there."""
    for name in cp.__all__:
        getattr(cp, name)
    gc.freeze()
