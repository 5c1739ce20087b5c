"""Print all that the golden logs come to: run with different hash seeds."""

import random
import sys

from projections import Fleet, FoldState, Wanted, candidates, fold_all, pick_weighted
from tests.golden.files import delta_lines, meaning, snapshot_bytes
from tests.golden.stories import STORIES
from tests.support.fleet_builder import Story, given, registered, starting


def crowd() -> Story:
    """Many workers of many sets, so that no order of a table is the sorted one."""
    return given(
        *(
            (registered if n % 3 else starting)(
                f"w{n}",
                namespace=f"ns{n % 5}",
                model=f"m{n % 2}",
                adapters=(f"a{n % 7}",),
                labels={f"l{i}": str(i) for i in range(n % 4)},
            )
            for n in range(60)
        )
    )


def picks(fleet: Fleet) -> list[str]:
    """A hundred picks with a seed."""
    rng = random.Random(7)  # noqa: S311 - the same picks each time
    found = candidates(fleet, Wanted(model="m1"))
    return [pick_weighted(fleet, found, rng).worker_id for _ in range(100)]


if __name__ == "__main__":
    out = sys.stdout.buffer
    for story in (crowd(), *(tell() for tell in STORIES.values())):
        records = list(story)
        out.write(meaning(records) + snapshot_bytes(records) + delta_lines(records))
    fleet = Fleet(fold_all(FoldState(), crowd()).fleet_state)
    out.write(fleet.to_json().encode() + " ".join(picks(fleet)).encode())
