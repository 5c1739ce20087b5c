"""Where order is promised not to matter, it does not; nor does the hash seed."""

import os
import subprocess
import sys
from pathlib import Path

from hypothesis import given as for_all
from hypothesis import strategies as st

from events import Record
from projections import Fleet, FoldState, build, fold_all
from tests.property.logs import logs
from tests.support.fleet_builder import (
    START,
    Step,
    claimed,
    deregistered,
    draining,
    given,
    loaded,
    registered,
    released,
    unloaded,
    updated,
)

ROOT = Path(__file__).parents[2]


def histories() -> st.SearchStrategy[dict[str, list[Step]]]:
    """What happens to each worker, independent of the others: one card, own ports."""
    return st.lists(st.integers(0, 7), min_size=2, max_size=4).map(
        lambda lengths: {
            f"w{n}": _history(f"w{n}", 20000 + 10 * n)[:length]
            for n, length in enumerate(lengths)
        }
    )


def _history(worker: str, port: int) -> list[Step]:
    return [
        claimed(worker, port, claim=f"claim of {worker}"),
        registered(worker, adapters=("sql",)),
        loaded(worker, "chat"),
        updated(worker, labels={"zone": worker}),
        draining(worker) if port % 20 else unloaded(worker, "sql"),
        released(port),
        deregistered(worker),
    ]


@for_all(histories(), st.randoms(use_true_random=False))
def test_independent_workers_may_come_in_any_order(histories, chance):
    one = [step for steps in histories.values() for step in steps]
    queues = {worker: list(steps) for worker, steps in histories.items()}
    two = []
    while any(queues.values()):
        worker = chance.choice(sorted(w for w, steps in queues.items() if steps))
        two.append(queues[worker].pop(0))
    first, second = (_timeless(given(*steps)) for steps in (one, two))
    assert first.fleet_state == second.fleet_state
    assert first.fleet_state.digest == second.fleet_state.digest
    assert first.ports.digest == second.ports.digest
    texts = {Fleet(s.fleet_state, revision=1).to_json() for s in (first, second)}
    assert len(texts) == 1


def _timeless(story) -> FoldState:
    """The fold as if all were recorded at once: times are each record's own."""
    records = [
        Record(record.revision, START, record.subject, record.event) for record in story
    ]
    return fold_all(FoldState(), records)


@for_all(logs(), st.randoms(use_true_random=False))
def test_a_state_does_not_show_in_which_order_it_was_put_together(log, chance):
    state = fold_all(FoldState(), log).fleet_state
    puts = list(state.entities())
    chance.shuffle(puts)
    assert build(puts) == state
    assert Fleet(build(puts)).to_json() == Fleet(state).to_json()


def shown(seed: str) -> bytes:
    """What a process with this hash seed makes of the golden logs."""
    command = [sys.executable, "-m", "tests.property.show_everything"]
    environ = {**os.environ, "PYTHONHASHSEED": seed}
    ran = subprocess.run(
        command, cwd=ROOT, env=environ, check=True, capture_output=True, timeout=60
    )
    return ran.stdout


def test_neither_bytes_nor_acts_nor_their_order_show_the_hash_seed():
    one, two = shown("1"), shown("2")
    assert len(one) > 10_000
    assert one == two
