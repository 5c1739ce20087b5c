"""Replay over plain records: any moment of the past, with nothing running."""

from datetime import timedelta, timezone

from projections import FoldState, Held, PlaneState, explain, fold, replay
from tests.support.fleet_builder import (
    HOST,
    START,
    claimed,
    deregistered,
    draining,
    given,
    registered,
    silent_for,
    state_after,
)

STEPS = [
    registered("w1"),
    claimed("w1", 20000),
    silent_for(s=60),
    draining("w1"),
    deregistered("w9"),
    deregistered("w1"),
]
STORY = given(*STEPS)


def test_replay_is_folding_one_by_one():
    state = PlaneState()
    for record in STORY:
        state = fold(state, record)
        assert replay(STORY, until=record.revision) == state.fleet
        assert state.revision == state.fleet.revision == record.revision
    assert replay(STORY) == replay(iter(STORY)) == state.fleet
    assert replay(STORY).to_json() == state.fleet.to_json()


def test_replay_stops_at_a_time_and_includes_it():
    assert replay(STORY, until=START).revision == 1
    assert replay(STORY, until=START + timedelta(seconds=30)).revision == 2
    assert replay(STORY, until=START + timedelta(hours=1)).revision == 5
    assert replay(STORY, until=START - timedelta(seconds=1)).revision == 0


def test_a_time_that_does_not_say_where_is_utc():
    naive = START.replace(tzinfo=None)
    assert replay(STORY, until=naive).revision == 1
    elsewhere = START.astimezone(timezone(timedelta(hours=9)))
    assert replay(STORY, until=elsewhere).revision == 1
    assert explain(STORY, "prod/w1", until=naive).revision == 1


def test_replay_of_nothing_is_the_empty_fleet():
    fleet = replay([])
    assert (fleet.revision, fleet.digest, dict(fleet.models)) == (0, "0" * 32, {})
    assert replay(STORY, until=0) == fleet


def test_a_state_shows_fleet_ports_and_anomalies():
    state = PlaneState(state_after(*STEPS), cell="lab", log_id="log-a")
    assert (state.fleet.cell, state.fleet.log_id, state.fleet.epoch) == (
        "lab",
        "log-a",
        None,
    )
    assert isinstance(state.ports.ports[HOST, 20000], Held)
    assert state.anomalies.no_op == state.fleet.anomalies.no_op == 1
    assert repr(state) == f"PlaneState(revision=5, digest='{state.fleet.digest}')"
    assert PlaneState().fold_state == FoldState()


def test_folding_keeps_cell_and_log():
    state = fold(PlaneState(cell="lab", log_id="log-a"), STORY[0])
    assert (state.cell, state.log_id, state.revision) == ("lab", "log-a", 1)
