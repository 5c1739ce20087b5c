"""Python processes of a given hash seed: what must be the same in every process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 60.0


def printed_under(hash_seed: str, *words: str, time_zone: str = "") -> str:
    """What ``python *words`` prints there; ``hash_seed``: a number, or "random"."""
    zone = {"TZ": time_zone} if time_zone else {}
    ended = subprocess.run(
        [sys.executable, *words],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": hash_seed, **zone},
        check=False,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout
