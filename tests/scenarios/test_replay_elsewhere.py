"""S14, of replays: any day, any process, any speed, the same.

Each stored log is folded in processes of another hash seed, in another time zone, in
pieces of another size, with snapshots of it restored in between: and each place has the
digests that were pinned when the log was stored, and the view is the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import sys

import pytest

from events import EVENT_TYPES
from projections import (
    Epoch,
    FoldState,
    PlaneState,
    Position,
    decode_snapshot,
    encode_snapshot,
    fold_all,
    restore,
    take,
)
from tests.golden.files import GOLDEN, read_log
from tests.support.hash_seeds import printed_under

LOGS = sorted(path.stem for path in (GOLDEN / "logs").glob("*.jsonl"))
ELSEWHERE = {
    "one by one, Honolulu": ("0", "Pacific/Honolulu", 1),
    "seven at once, Kiritimati": ("7", "Pacific/Kiritimati", 7),
    "all at once": ("random", "", 10**6),
}
EPOCH = Epoch(count=1, fold_version=1, log_id="log", revision=0)
PLACE = Position(epoch=EPOCH, base=1, ordinal=1, delta_revision=1)


def told_in(log: str, size: int) -> dict[str, object]:
    """The digests after every ``size`` records of a log, and the view as bytes."""
    records = read_log((GOLDEN / "logs" / f"{log}.jsonl").read_bytes())
    state, digests = FoldState(), {}
    for start in range(0, len(records), size):
        state = fold_all(state, records[start : start + size])
        packed = encode_snapshot(take(state, PLACE))
        state = restore(decode_snapshot(packed), frozenset(EVENT_TYPES))
        digests[state.revision] = [state.fleet_state.digest, state.ports.digest]
    whole = [PlaneState(state).fleet.to_json(), encode_snapshot(take(state, PLACE))]
    return {"digests": digests, "bytes": [_hash(one) for one in whole]}


def _hash(told: str | bytes) -> str:
    told = told if isinstance(told, bytes) else told.encode()
    return hashlib.sha256(told).hexdigest()


@pytest.fixture(scope="module")
def told() -> dict[str, dict]:
    """What each of the processes says of every log."""
    return {
        name: json.loads(printed_under(seed, "-m", __name__, str(size), time_zone=zone))
        for name, (seed, zone, size) in ELSEWHERE.items()
    }


@pytest.mark.parametrize("log", LOGS)
def test_a_stored_log_means_the_same_elsewhere(told, log):
    pinned = json.loads((GOLDEN / "logs" / f"{log}.json").read_bytes())["digests"]
    expected = {str(one["at"]): [one["fleet"], one["ports"]] for one in pinned}
    for name in ELSEWHERE:
        found = told[name][log]["digests"]
        assert found.items() <= expected.items(), name
        assert list(expected)[-1] in found
    assert len(told["one by one, Honolulu"][log]["digests"]) == len(expected)
    assert len({str(told[name][log]["bytes"]) for name in ELSEWHERE}) == 1


if __name__ == "__main__":
    said = {log: told_in(log, int(sys.argv[1])) for log in LOGS}
    sys.stdout.write(json.dumps(said))
