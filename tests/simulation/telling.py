"""A log and a view stream as a broker would tell the oracle of them."""

import pytest

from controlplane.router.replica import at_beginning
from projections import (
    FOLD_VERSION,
    Epoch,
    EpochStarted,
    FoldState,
    decode_view,
    encode_view,
    fold_all,
)
from tests.simulation.history import Histories
from tests.simulation.outcome import Violation
from tests.simulation.views import Views
from tests.support.deriving import expected_deltas
from tests.support.fleet_builder import (
    C1,
    C2,
    claimed,
    deregistered,
    draining,
    forked,
    given,
    held,
    ready,
    registered,
)

LOG_ID = "log-a"
BASE = given(
    registered("w1", card=C1),
    claimed("w1", 20000),
    registered("w2", card=C2),
    draining("w1"),
)
OLD = BASE.then(ready("w1"), held("w2"))
NEW = BASE.then(forked("b"), deregistered("w1"), ready("w2", life=1), held("w9"))


def epoch(count=1, revision=0, log_id=LOG_ID, version=FOLD_VERSION):
    return Epoch(count, version, log_id, revision)


def begun(story, one):
    """The start of an epoch, as a projector that folded ``story`` writes it."""
    state = fold_all(FoldState(), story[: one.revision])
    return EpochStarted(
        epoch=one,
        fingerprint=state.fingerprint,
        anomalies=state.anomalies.counts,
        digest=state.fleet_state.digest,
        reason="first",
    )


class Told:
    """A log and a view stream, as a broker tells the oracle of them."""

    def __init__(self, story=(), **settled):
        self.histories = Histories(**settled)
        self.histories.log_created(LOG_ID)
        self.views = Views(self.histories)
        self.log(story)

    def log(self, records):
        for record in records:
            self.histories.log_stored(record)

    def view(self, payloads):
        for payload in payloads:
            self.views.view_stored(self.views.last + 1, payload)

    def whole(self, story, one=None):
        """An epoch's start and all its deltas."""
        one = one or epoch()
        start = encode_view(begun(story, one))
        self.view([start, *expected_deltas(story, one)])

    def forks(self, last=4, story=NEW):
        self.histories.log_truncated(last)
        self.log(story[last:])


def violation(invariant, act, *arguments):
    with pytest.raises(Violation) as caught:
        act(*arguments)
    assert caught.value.invariant == invariant, caught.value
    return caught.value.what


def replica_of(story, one, *, base=1, ordinals=None):
    """A router that followed an epoch from its start."""
    start = begun(story, one)
    fleet = fold_all(FoldState(), story[: one.revision]).fleet_state
    replica = at_beginning(start, base, fleet)
    for payload in expected_deltas(story, one)[:ordinals]:
        delta = decode_view(payload)
        replica = replica.after(delta, base + delta.ordinal)
    return replica


def told_all():
    told = Told(OLD)
    told.view([START, *DELTAS])
    return told


DELTAS = expected_deltas(OLD, epoch())
START = encode_view(begun(OLD, epoch()))
