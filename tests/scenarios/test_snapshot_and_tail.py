"""S44. A snapshot and what follows it are the whole log; a bad one is never served.

From a hundred places of a long log, the state restored from a snapshot and folded on
equals the state folded from the beginning: same digests, same bytes. A snapshot that is
damaged, truncated, of a newer format or of another fold is refused with a reason, so
that its reader replays instead. One that lost its workers is refused too: it never
means an empty fleet. A state in which nothing changed still has a whole snapshot.
"""

import random

import pytest

from events import EVENT_TYPES
from projections import (
    Epoch,
    FoldState,
    Position,
    SnapshotUnusableError,
    decode_snapshot,
    encode_snapshot,
    fold_all,
    restore,
    take,
)
from tests.support.fleet_builder import (
    C1,
    C2,
    claimed,
    deregistered,
    draining,
    expired,
    given,
    held,
    loaded,
    poison,
    registered,
    released,
    weighted,
)

TAGS = frozenset(EVENT_TYPES)
EPOCH = Epoch(count=1, fold_version=1, log_id="log", revision=0)
PLACE = Position(epoch=EPOCH, base=1, ordinal=1, delta_revision=1)


def long_story():
    """Three hundred steps or so of a fleet that never rests."""
    chance = random.Random(44)
    steps = []
    for _ in range(300):
        worker = f"w{chance.randrange(12)}"
        port = 20000 + chance.randrange(30)
        steps.append(
            chance.choice(
                [
                    registered(worker, card=chance.choice([C1, C1, C2])),
                    registered(worker, namespace="prod-v2", card=C2),
                    loaded(worker, chance.choice(["sql", "chat"])),
                    draining(worker),
                    deregistered(worker),
                    expired(worker),
                    held(worker),
                    claimed(worker, port, 2),
                    released(port),
                    weighted(chance.random()),
                    poison(f"log.worker.prod.{worker}", b"x"),
                ]
            )
        )
    return given(*steps)


STORY = long_story()
WHOLE = fold_all(FoldState(), STORY)


def snapshot_at(place):
    return encode_snapshot(take(fold_all(FoldState(), STORY[:place]), PLACE))


def test_a_snapshot_and_the_tail_are_the_whole_from_a_hundred_places():
    chance = random.Random(1)
    for place in chance.sample(range(len(STORY)), 100):
        state = restore(decode_snapshot(snapshot_at(place)), TAGS)
        assert state.revision == place
        after = fold_all(state, STORY[place:])
        assert after.fleet_state.digest == WHOLE.fleet_state.digest
        assert after.ports.digest == WHOLE.ports.digest
        assert after == WHOLE


def test_an_unchanged_state_has_a_whole_snapshot():
    once = snapshot_at(len(STORY))
    again = encode_snapshot(take(restore(decode_snapshot(once), TAGS), PLACE))
    assert again == once


@pytest.mark.parametrize(
    "spoil",
    [
        lambda _: b"",
        lambda payload: payload[: len(payload) // 2],
        lambda payload: payload[:-1],
        lambda payload: payload[:500] + bytes(4) + payload[504:],
        lambda payload: payload + payload,
        lambda _: b"{}",
    ],
    ids=["empty", "half", "short by one", "zeros within", "twice", "other"],
)
def test_a_spoilt_snapshot_is_refused_with_a_reason(spoil):
    with pytest.raises(SnapshotUnusableError) as caught:
        restore(decode_snapshot(spoil(snapshot_at(200))), TAGS)
    assert "damaged" in caught.value.reason


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"format": 2}, "format 2"),
        ({"fold_version": 2}, "fold version 2"),
        ({"fleet": ()}, "its digest is"),
    ],
)
def test_a_snapshot_of_another_kind_or_without_its_workers_is_refused(fields, reason):
    snapshot = take(WHOLE, PLACE)
    other = type(snapshot)(
        **{name: getattr(snapshot, name) for name in snapshot.__struct_fields__}
        | fields
    )
    with pytest.raises(SnapshotUnusableError, match=reason):
        restore(decode_snapshot(encode_snapshot(other)), TAGS)
