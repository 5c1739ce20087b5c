"""What follows from every input in every state of a worker's life."""

import pytest

from controlplane.worker.phase import Phase
from controlplane.worker.signals import (
    Appended,
    Begin,
    Conflicted,
    Failed,
    Leave,
    LoadAdapter,
    Resumed,
    SetStatus,
    UnloadAdapter,
    Update,
)
from events import Status
from tests.support.worker_inputs import (
    CONFLICT,
    EMPTY,
    OTHER,
    READY,
    REGISTERED,
    UNAVAILABLE,
    core_after,
    gone,
    notice,
    read,
    shown,
)

STATES = {
    "new": (),
    "reading first": (Begin(),),
    "appending first": (Begin(), EMPTY),
    "asking first": (Begin(), EMPTY, Conflicted(CONFLICT)),
    "registered": REGISTERED,
    "saying": (*REGISTERED, READY),
    "asking": (*REGISTERED, READY, Conflicted(CONFLICT)),
    "told": (*REGISTERED, notice("expired")),
    "seeing all": (*REGISTERED, notice("expired"), read("intact")),
    "paused": (*REGISTERED, READY, Failed(UNAVAILABLE)),
    "again": (*REGISTERED, notice("expired"), read("expired")),
    "asking again": (
        *REGISTERED,
        notice("expired"),
        read("expired"),
        Conflicted(CONFLICT),
    ),
    "leaving": (*REGISTERED, Leave()),
    "asking to leave": (*REGISTERED, Leave(), Conflicted(CONFLICT)),
    "leaving unread": (Begin(), Leave()),
    "ended": (*REGISTERED, Leave(), Appended(2)),
}
PHASES = {
    "new": Phase.REGISTERING,
    "reading first": Phase.REGISTERING,
    "appending first": Phase.REGISTERING,
    "asking first": Phase.REGISTERING,
    "registered": Phase.REGISTERED,
    "saying": Phase.REGISTERED,
    "asking": Phase.REGISTERED,
    "told": Phase.REGISTERED,
    "seeing all": Phase.REGISTERED,
    "paused": Phase.REGISTERED,
    "again": Phase.REGISTERING_AGAIN,
    "asking again": Phase.REGISTERING_AGAIN,
    "leaving": Phase.LEAVING,
    "asking to leave": Phase.LEAVING,
    "leaving unread": Phase.LEAVING,
    "ended": Phase.ENDED,
}
INPUTS = {
    "begin": Begin(),
    "empty": EMPTY,
    "intact": read("intact"),
    "expired": read("expired"),
    "taken": read("taken"),
    "gone": gone(),
    "appended": Appended(3),
    "conflicted": Conflicted(CONFLICT),
    "failed": Failed(UNAVAILABLE),
    "resumed": Resumed(),
    "unknown": notice("unknown"),
    "expiry": notice("expired"),
    "superseded": notice("superseded"),
    "quarantined": notice("quarantined"),
    "drain": notice("drain_requested"),
    "stranger": notice("drain_requested", incarnation=OTHER),
    "status": SetStatus(Status.DRAINING),
    "update": Update(address="http://b:1"),
    "load": LoadAdapter("new"),
    "unload": UnloadAdapter("old"),
    "leave": Leave(),
}


TOLD = {
    "quarantined": "deliver quarantined",
    "drain": "deliver drain_requested",
}
HINTED = {"unknown": "read", "expiry": "read", "superseded": "read", **TOLD}
FIRST_READ = {
    "empty": "append WorkerRegistered@0",
    "intact": "append WorkerRegistered@1",
    "expired": "append WorkerRegistered@2",
    "gone": "append WorkerRegistered@0",
    "failed": "end LogUnavailableError",
}
NOTHING_SAID = {
    "empty": "append WorkerRegistered@0",
    "expired": "append WorkerRegistered@2",
    "taken": "end IncarnationSupersededError",
    "gone": "append WorkerRegistered@0",
    "failed": "pause",
    **TOLD,
}
FOLLOWS = {
    "new": {"begin": "read", "resumed": "read", "leave": "end"},
    "reading first": FIRST_READ,
    "appending first": {
        "appended": "beat@3",
        "conflicted": "read",
        "failed": "end LogUnavailableError",
    },
    "asking first": FIRST_READ,
    "registered": {
        **HINTED,
        "status": "append WorkerStatusChanged@1",
        "update": "append WorkerUpdated@1",
        "load": "append AdapterLoaded@1",
        "unload": "append AdapterUnloaded@1",
        "leave": "append WorkerDeregistered@1",
    },
    "saying": {"appended": "beat@3", "conflicted": "read", "failed": "pause", **TOLD},
    "asking": {**NOTHING_SAID, "intact": "append WorkerStatusChanged@1"},
    "told": {
        **NOTHING_SAID,
        "empty": "deliver expired, append WorkerRegistered@0",
        "intact": "read",
        "expired": "deliver expired, append WorkerRegistered@2",
        "gone": "deliver expired, append WorkerRegistered@0",
    },
    "seeing all": {
        **NOTHING_SAID,
        "empty": "deliver expired, append WorkerRegistered@0",
        "expired": "deliver expired, append WorkerRegistered@2",
        "gone": "deliver expired, append WorkerRegistered@0",
    },
    "paused": {
        **HINTED,
        "begin": "append WorkerStatusChanged@1",
        "resumed": "append WorkerStatusChanged@1",
        "leave": "append WorkerDeregistered@1",
    },
    "again": {"appended": "beat@3", "conflicted": "read", "failed": "pause", **TOLD},
    "asking again": NOTHING_SAID,
    "leaving": {"appended": "end", "conflicted": "read", "failed": "pause", **TOLD},
    "asking to leave": {
        "empty": "end",
        "intact": "append WorkerDeregistered@1",
        "expired": "end",
        "taken": "end",
        "gone": "end",
        "failed": "pause",
        **TOLD,
    },
    "leaving unread": dict.fromkeys(
        ("empty", "intact", "expired", "taken", "gone", "failed"), "end"
    ),
    "ended": {},
}


@pytest.mark.parametrize("state", STATES)
def test_a_state_is_reached(state):
    assert core_after(*STATES[state]).phase is PHASES[state]


DECIDED_BY_AGE = {("reading first", "taken"), ("asking first", "taken")}
"""Whose life began later decides there: see the tests of the core."""
CASES = [(s, i) for s in STATES for i in INPUTS if (s, i) not in DECIDED_BY_AGE]


@pytest.mark.parametrize(("state", "given"), CASES)
def test_what_follows(state, given):
    effects = core_after(*STATES[state]).step(INPUTS[given])
    assert ", ".join(map(shown, effects)) == FOLLOWS[state].get(given, "")
