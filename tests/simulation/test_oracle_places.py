"""The oracle is right about all who speak of a place of the view."""

from functools import partial

import msgspec
import pytest

from controlplane.viewfeed import Head
from projections import (
    EMPTY,
    AnomalyCounts,
    Fleet,
    FoldState,
    Position,
    WorkerGone,
    apply,
    build,
    fold_all,
    take,
)
from tests.simulation.history import VERSIONS, Folding
from tests.simulation.telling import (
    DELTAS,
    LOG_ID,
    NEW,
    OLD,
    START,
    Told,
    epoch,
    replica_of,
    told_all,
    violation,
)
from tests.support.fleet_builder import (
    given,
    registered,
)


# ---- routers -------------------------------------------------------------------
def test_a_router_stands_on_a_prefix():
    told = told_all()
    for ordinals in range(len(DELTAS) + 1):
        replica = replica_of(OLD, epoch(), ordinals=ordinals)
        told.views.check_replica("r1", replica)
    level = replica_of(OLD, epoch(), ordinals=1)
    head = {"revision": 2, "fingerprint": OLD[1].fingerprint, "fingerprint_at": 2}
    told.views.check_replica("r1", msgspec.structs.replace(level, **head))


@pytest.mark.parametrize(
    "fields",
    [
        {"fleet": EMPTY},
        {"revision": 3},
        {"revision": 0},
        {"fingerprint": "other"},
        {"fingerprint_at": 99},
        {"anomalies": AnomalyCounts(unknown=1)},
        {"position": Position(epoch=epoch(), base=2, ordinal=1, delta_revision=1)},
        {"position": Position(epoch=epoch(), base=1, ordinal=2, delta_revision=3)},
        {"position": Position(epoch=epoch(), base=1, ordinal=9, delta_revision=9)},
        {"position": Position(epoch=epoch(2), base=1, ordinal=1, delta_revision=1)},
    ],
    ids=str,
)
def test_a_router_that_stands_elsewhere_is_a_violation(fields):
    told = told_all()
    replica = replica_of(OLD, epoch(), ordinals=1)
    wrong = msgspec.structs.replace(replica, **fields)
    violation("prefix", told.views.check_replica, "r1", wrong)


@pytest.mark.parametrize("parts", ["seats", "models", "total", "adapters", "known"])
def test_a_fleet_whose_parts_do_not_agree_is_a_violation(parts):
    told = told_all()
    replica = replica_of(OLD, epoch())
    other = apply(replica.fleet, [WorkerGone("prod", "w1")])
    if parts in ("adapters", "known"):
        other = fold_all(FoldState(), given(registered("w1", adapters=("a",))))
        other = other.fleet_state
    fleet = msgspec.structs.replace(replica.fleet, **{parts: getattr(other, parts)})
    wrong = msgspec.structs.replace(replica, fleet=fleet)
    violation("prefix", told.views.check_replica, "r1", wrong)


def test_a_router_shows_as_routable_whom_it_should(monkeypatch):
    told = told_all()
    fleet = Fleet(fold_all(FoldState(), OLD).fleet_state)
    told.views.check_shown("r1", fleet)
    told.views.check_shown("r1", fleet)
    w1, w2 = (fleet.worker("prod", name) for name in ("w1", "w2"))
    assert w1.routable
    told.views.check_pickable("r1", fleet, [w1])
    violation("routable", told.views.check_pickable, "r1", fleet, [w2])
    dead = msgspec.structs.replace(w1, incarnation="another")
    violation("routable", told.views.check_pickable, "r1", fleet, [dead])
    told.views.check_shown("r1", fleet, whole=True)
    monkeypatch.setattr("projections.view.blockers", lambda *_: ())
    whole = partial(told.views.check_shown, whole=True)
    violation("routable", whole, "r1", fleet)
    everybody = "projections.readiness._live"
    monkeypatch.setattr(everybody, lambda _, members: tuple(members.workers.values()))
    same = Fleet(build(fleet.state.entities()))
    violation("routable", told_all().views.check_shown, "r1", same)


# ---- what processes say --------------------------------------------------------
def head_of(story, ordinal, revision):
    state = fold_all(FoldState(), story[:revision])
    return Head(
        log_id=LOG_ID,
        epoch=epoch(),
        ordinal=ordinal,
        revision=revision,
        digest=state.fleet_state.digest,
        anomalies=state.anomalies.counts,
        unpublished_age_s=0.0,
        log_fill=0.0,
        leader="p1",
        fingerprint=state.fingerprint,
    )


def test_heads_and_reports_must_be_true():
    told = told_all()
    told.views.check_head(head_of(OLD, 1, 1))
    told.views.check_head(head_of(OLD, 1, 2))
    violation("head", told.views.check_head, head_of(OLD, 1, 3))
    violation("head", told.views.check_head, head_of(NEW, 4, 5))
    digest = fold_all(FoldState(), OLD[:2]).fleet_state.digest
    for revision in (1, 2):
        told.views.check_claim("r1", str(epoch()), revision, digest)
    told.views.check_claim("r1", None, 0, "")
    violation("digest", told.views.check_claim, "r1", str(epoch()), 3, digest)
    violation("digest", told.views.check_claim, "r1", str(epoch(2)), 1, digest)


def test_a_head_must_not_be_ahead_of_what_was_stored():
    told = Told(OLD)
    told.view([START, DELTAS[0]])
    violation("head", told.views.check_head, head_of(OLD, 2, 3))


def test_snapshots_must_be_what_a_replay_gives():
    told = told_all()
    state = fold_all(FoldState(), OLD[:2])
    at = Position(epoch=epoch(), base=1, ordinal=1, delta_revision=1)
    told.views.check_snapshot(take(state, at))
    wrong = msgspec.structs.replace(state, ports=FoldState().ports)
    violation("snapshot", told.views.check_snapshot, take(wrong, at))
    elsewhere = msgspec.structs.replace(at, ordinal=2)
    violation("snapshot", told.views.check_snapshot, take(state, elsewhere))


def test_an_epoch_is_folded_by_the_version_that_it_names():
    told = Told(OLD, versions={**VERSIONS, 2: Folding(is_checked=False)})
    told.view([START, *DELTAS])
    told.whole(OLD, epoch(2, 2, version=2))
    assert told.views.missing() == []
    state = fold_all(FoldState(), OLD[:2])
    at = Position(epoch=epoch(2, 2, version=2), base=7, ordinal=0, delta_revision=2)
    snapshot = msgspec.structs.replace(take(state, at), fold_version=2)
    told.views.check_snapshot(snapshot)
    violation("snapshot", told.views.check_snapshot, take(state, at))
