"""Kills a writer of checkpoints at random points: ``… checkpoint_killer FILE SEED``.

A child writes one checkpoint after another and is killed with SIGKILL; then the file
must be whole, and never older than one that was there before. Prints how many times.
"""

from __future__ import annotations

import os
import random
import select
import signal
import sys
from datetime import UTC, datetime
from itertools import count
from pathlib import Path

import msgspec

from controlplane.router.checkpoint import CheckpointFile
from controlplane.router.replica import Replica
from projections import AnomalyCounts, Epoch, Position
from tests.support.fleet_builder import registered, state_after

TIMES = 200
LONGEST_S = 0.02


def replica(ordinal: int) -> Replica:
    """A replica whose fleet differs from its predecessor's."""
    state = state_after(*(registered(f"w{n}") for n in range(1 + ordinal % 50)))
    epoch = Epoch(1, 1, "log", 0)
    return Replica(
        position=Position(epoch=epoch, base=1, ordinal=ordinal, delta_revision=ordinal),
        fleet=state.fleet_state,
        revision=ordinal,
        fingerprint=f"record {ordinal}",
        fingerprint_at=ordinal,
        anomalies=AnomalyCounts(),
    )


def write_for_ever(file: CheckpointFile, first: int, made: list[Replica]) -> None:
    """Write checkpoints until killed."""
    for ordinal in count(first):
        known = made[ordinal % len(made)]
        position = msgspec.structs.replace(
            known.position, ordinal=ordinal, delta_revision=ordinal
        )
        file.write(
            msgspec.structs.replace(known, position=position, revision=ordinal),
            datetime.now(UTC),
        )


def main(path: Path, seed: int) -> None:
    """Kill so many writers; the file is whole after each."""
    chance = random.Random(seed)
    made = [replica(ordinal) for ordinal in range(50)]
    file = CheckpointFile(path, "default")
    file.write(made[0], datetime.now(UTC))
    before = moved = 0
    for _ in range(TIMES):
        child = os.fork()
        if child == 0:
            write_for_ever(file, before + 1, made)
        select.select((), (), (), chance.uniform(0, LONGEST_S))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        found, _ = file.read()
        if found.position.ordinal < before:
            sys.exit(f"stepped back from {before} to {found.position.ordinal}")
        moved += found.position.ordinal > before
        before = found.position.ordinal
    sys.stdout.write(f"{TIMES} {moved}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
