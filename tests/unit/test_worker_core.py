"""What a worker's core makes of races, notices, other logs and wishes."""

import msgspec
import pytest

from controlplane.errors import (
    IncarnationSupersededError,
)
from controlplane.worker.core import ATTEMPTS_MAX
from controlplane.worker.phase import Phase
from controlplane.worker.signals import (
    Append,
    Appended,
    Begin,
    Conflicted,
    End,
    Failed,
    KeepBeating,
    Leave,
    LoadAdapter,
    ReadSubject,
    Resumed,
    SetStatus,
    SubjectRead,
    UnloadAdapter,
    Update,
)
from controlplane.worker.told import TOLD_MAX
from events import Record, Status, WorkerRegistered
from tests.support import fleet_builder as builder
from tests.support.worker_inputs import (
    CONFLICT,
    EMPTY,
    FRESH,
    HERE,
    LATER,
    LOG,
    OURS,
    READY,
    REGISTERED,
    SPEC,
    UNAVAILABLE,
    core_after,
    gone,
    notice,
    read,
    shown,
)


# ---- the first registration --------------------------------------------------------
def life(incarnation: str, revision: int):
    """A record in which that incarnation of the worker registers."""
    record = builder.given(builder.registered("w1"))[0]
    event = msgspec.structs.replace(record.event, incarnation=incarnation)
    return msgspec.structs.replace(record, event=event, revision=revision)


def forestalled(by: str, last: int = 4) -> SubjectRead:
    return SubjectRead(
        log_id=LOG, last=last, records=(life(by, last),), whole=False, fresh=FRESH
    )


EARLIER = "00000000-0000-7000-8000-000000000001"
LATEST = "ffffffff-ffff-7fff-bfff-ffffffffffff"


def test_a_restart_takes_its_worker_id_over():
    core = core_after(Begin())
    (append,) = core.step(msgspec.structs.replace(EMPTY, last=7))
    assert append.expected == 7
    assert append.draft.incarnation == OURS


def test_a_life_that_began_earlier_and_came_first_is_superseded():
    core = core_after(Begin(), EMPTY, Conflicted(CONFLICT))
    (append,) = core.step(forestalled(EARLIER))
    assert append.expected == 4
    assert isinstance(append.draft, WorkerRegistered)


def test_a_life_that_began_later_and_came_first_wins():
    core = core_after(Begin(), EMPTY, Conflicted(CONFLICT))
    (end,) = core.step(forestalled(LATEST))
    assert isinstance(end.error, IncarnationSupersededError)
    assert end.error.by == LATEST


def test_a_later_life_that_has_ended_meanwhile_is_no_obstacle():
    records = LATER["taken and left"][1:]
    for incarnation in (EARLIER, LATEST):
        named = tuple(
            msgspec.structs.replace(
                r, event=msgspec.structs.replace(r.event, incarnation=incarnation)
            )
            for r in records
        )
        answer = SubjectRead(
            log_id=LOG, last=3, records=named, whole=False, fresh=FRESH
        )
        core = core_after(Begin(), EMPTY, Conflicted(CONFLICT))
        (append,) = core.step(answer)
        assert append.expected == 3


def test_a_first_registration_gives_up_after_a_few_attempts():
    core = core_after(Begin(), EMPTY)
    for attempt in range(1, ATTEMPTS_MAX):
        assert shown(core.step(Conflicted(CONFLICT))[0]) == "read"
        core.step(forestalled(EARLIER, last=attempt))
    (end,) = core.step(Conflicted(CONFLICT))
    assert end.error is CONFLICT


def test_a_first_registration_that_was_stored_after_all_stands():
    core = core_after(Begin(), EMPTY, Conflicted(CONFLICT))
    beat, *rest = core.step(read("unreadable", whole=True))
    assert (beat.revision, rest) == (2, [])
    assert core.registered == 1


# ---- notices are hints -------------------------------------------------------------
@pytest.mark.parametrize("kind", ["expired", "superseded"])
@pytest.mark.parametrize("story", ["intact", "a late farewell", "unreadable"])
def test_a_notice_that_the_log_does_not_confirm_changes_nothing(kind, story):
    core = core_after(*REGISTERED, notice(kind))
    assert core.step(read(story)) == (ReadSubject(0, LOG),)  # does it look far enough?
    assert not [e for e in core.step(read(story)) if not isinstance(e, KeepBeating)]
    assert core.phase is Phase.REGISTERED
    assert core.incarnation == OURS


def test_told_unknown_by_a_leader_past_its_registration_it_registers_again():
    core = core_after(*REGISTERED, READY, Appended(2), notice("unknown", revision=9))
    told, append = core.step(read("intact"))
    assert shown(told) == "deliver unknown"
    assert append.draft.incarnation == OURS
    assert append.draft.status is Status.READY
    assert append.cause == "unknown"


def test_told_unknown_by_a_leader_who_is_behind_it_waits():
    core = core_after(Begin(), msgspec.structs.replace(EMPTY, last=5), Appended(6))
    core.step(notice("unknown", revision=5))
    answer = SubjectRead(log_id=LOG, last=6, records=(), whole=False, fresh=FRESH)
    assert core.step(answer) == (ReadSubject(0, LOG),)
    assert core.step(answer) == ()
    assert core.phase is Phase.REGISTERED


def said_on_top(by: str) -> tuple[Record, ...]:
    """The subject of a life that spoke on top of the other's registration."""
    ours, theirs = life(OURS, 1), life(by, 2)
    event = builder.given(builder.registered("w1"), builder.ready("w1"))[1].event
    event = msgspec.structs.replace(event, incarnation=OURS)
    return ours, theirs, msgspec.structs.replace(ours, event=event, revision=3)


@pytest.mark.parametrize("kind", ["unknown", "superseded"])
def test_who_spoke_on_top_of_its_successor_learns_of_it(kind):
    """The log lost our record 2 and numbered another's so, and numbers are expected."""
    core = core_after(*REGISTERED, READY, Appended(2), UnloadAdapter("old"))
    core.step(Appended(3))
    core.step(notice(kind, revision=9))
    answer = SubjectRead(log_id=LOG, last=3, records=(), whole=False, fresh=FRESH)
    assert core.step(answer) == (ReadSubject(0, LOG),)
    everything = msgspec.structs.replace(answer, records=said_on_top(LATEST))
    (end,) = core.step(everything)
    assert isinstance(end.error, IncarnationSupersededError)


def test_what_all_records_would_show_is_asked_again_after_a_failure():
    core = core_after(*REGISTERED, notice("superseded"))
    core.step(read("intact"))
    core.step(Failed(UNAVAILABLE))
    (again,) = core.step(Resumed())
    assert again.after == 1
    assert core.step(read("intact")) == (ReadSubject(0, LOG),)


@pytest.mark.parametrize("kind", ["unknown", "expired", "superseded"])
@pytest.mark.parametrize("story", ["expired", "left"])
def test_an_ended_life_begins_anew_with_all_that_is_wanted(kind, story):
    core = core_after(
        *REGISTERED, LoadAdapter("new"), Failed(UNAVAILABLE), READY, notice(kind)
    )
    append = core.step(read(story))[-1]
    assert append.expected == 2
    assert append.cause == "expired"
    assert append.draft.incarnation == FRESH
    assert append.draft.status is Status.READY
    assert append.draft.adapters == ("new", "old")
    core.step(Appended(3))
    assert (core.incarnation, core.registered) == (FRESH, 3)
    assert core.settled


@pytest.mark.parametrize("story", ["taken", "taken and left"])
def test_another_life_after_ours_ends_it_for_good(story):
    core = core_after(*REGISTERED, notice("expired"))
    (end,) = core.step(read(story))
    assert isinstance(end.error, IncarnationSupersededError)
    assert end.error.incarnation == OURS


def test_the_caller_is_told_each_thing_once():
    core = core_after(*REGISTERED)
    assert core.step(notice("quarantined", 4))
    assert not core.step(notice("quarantined", 4))
    assert core.step(notice("quarantined", 5))
    assert core.step(notice("drain_requested", 4))


# ---- another log -------------------------------------------------------------------
def test_a_life_moves_to_the_log_that_took_the_place_of_its_own():
    core = core_after(*REGISTERED, notice("unknown"))
    append = core.step(gone())[-1]
    assert (append.expected, append.draft.incarnation) == (0, OURS)
    beat = core.step(Appended(1))[0]
    assert (beat.log_id, beat.revision) == ("log-2", 1)


def test_a_later_life_in_the_new_log_wins_and_an_earlier_one_does_not():
    for other, phase in ((LATEST, Phase.ENDED), (EARLIER, Phase.REGISTERING_AGAIN)):
        core = core_after(*REGISTERED, notice("unknown"))
        core.step(gone(records=(life(other, 1),)))
        assert core.phase is phase


def test_a_conflict_in_the_new_log_is_judged_by_all_that_it_has():
    core = core_after(*REGISTERED, notice("unknown"), gone(), Conflicted(CONFLICT))
    assert core.step(Resumed()) == ()
    (end,) = core.step(
        SubjectRead(
            log_id="log-2",
            last=1,
            records=(life(LATEST, 1),),
            whole=False,
            fresh=FRESH,
        )
    )
    assert isinstance(end.error, IncarnationSupersededError)


def test_a_life_that_a_restored_log_still_has_goes_on():
    core = core_after(Begin(), msgspec.structs.replace(EMPTY, last=8), Appended(9))
    core.step(notice("unknown", revision=3))
    (beat,) = core.step(read("intact", whole=True, log_id="log-2"))
    assert (beat.log_id, beat.revision, core.registered) == ("log-2", 1, 1)


def test_what_the_log_says_of_us_since_is_taken_as_said():
    since = HERE.then(
        builder.ready("w1"),
        builder.loaded("w1", "new"),
        builder.unloaded("w1", "old"),
        builder.updated("w1", address="http://b:1"),
        builder.poison("log.worker.prod.w1", b"?"),
    )
    core = core_after(*REGISTERED, READY, Conflicted(CONFLICT))
    beat, back = core.step(
        SubjectRead(
            log_id=LOG, last=6, records=tuple(since[1:]), whole=False, fresh=FRESH
        )
    )
    assert beat.revision == 6
    assert core.said.status is Status.READY
    assert core.said.adapters == {"new"}
    assert (back.expected, back.draft.address) == (6, SPEC.address)


def test_what_was_told_long_ago_may_be_told_again():
    core = core_after(*REGISTERED)
    for revision in range(TOLD_MAX + 1):
        assert core.step(notice("quarantined", revision))
    assert core.step(notice("quarantined", 0))
    assert not core.step(notice("quarantined", TOLD_MAX))


def test_a_life_that_the_log_lost_has_no_farewell_to_say():
    core = core_after(*REGISTERED, notice("unknown"), gone(), Failed(UNAVAILABLE))
    (end,) = core.step(Leave())
    assert end == End(None)


# ---- wanted and said ---------------------------------------------------------------
def test_what_was_wanted_while_the_log_was_away_is_said_later():
    core = core_after(*REGISTERED, READY, Failed(UNAVAILABLE))
    core.step(SetStatus(Status.DRAINING, "rollout"))
    (append,) = core.step(Resumed())
    assert append.draft.status is Status.DRAINING
    assert append.draft.reason == "rollout"


def test_what_is_so_already_is_not_said():
    core = core_after(*REGISTERED)
    for given in (
        SetStatus(Status.STARTING),
        LoadAdapter("old"),
        UnloadAdapter("never"),
        Update(address=SPEC.address),
        Update(),
    ):
        assert core.step(given) == ()
    assert core.settled


def test_out_of_service_is_said_first_and_into_service_last():
    core = core_after(*REGISTERED, LoadAdapter("a"), READY, UnloadAdapter("old"))
    said, revision = ["AdapterLoaded"], 1
    while not core.settled:
        revision += 1
        for effect in core.step(Appended(revision)):
            if isinstance(effect, Append):
                assert effect.expected == revision
                said.append(type(effect.draft).__name__)
    assert said == ["AdapterLoaded", "AdapterUnloaded", "WorkerStatusChanged"]
    core.step(LoadAdapter("b"))
    core.step(SetStatus(Status.DRAINING))
    core.step(UnloadAdapter("a"))
    (_, append) = core.step(Appended(revision + 1))
    assert append.draft.status is Status.DRAINING


def test_a_farewell_ends_a_pause():
    core = core_after(*REGISTERED, READY, Failed(UNAVAILABLE))
    (append,) = core.step(Leave("stopped"))
    assert append.draft.reason == "stopped"


def test_a_registration_under_way_is_finished_before_the_farewell():
    core = core_after(Begin(), EMPTY)
    assert core.step(Leave()) == ()
    assert [shown(e) for e in core.step(Appended(1))] == [
        "beat@1",
        "append WorkerDeregistered@1",
    ]
