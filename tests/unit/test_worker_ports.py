"""What a worker's core does with ports: claimed first, kept, and given back."""

import msgspec
import pytest

from controlplane.errors import IncarnationSupersededError, LeaseLostError
from controlplane.worker.core import ATTEMPTS_MAX, WorkerCore
from controlplane.worker.phase import Phase
from controlplane.worker.signals import (
    Append,
    Appended,
    Begin,
    ClaimPorts,
    Conflicted,
    End,
    Failed,
    KeepBeating,
    Leave,
    Pause,
    PortsClaimed,
    PortsRest,
    PortsReturned,
    PortsTaken,
    ReadSubject,
    Resumed,
    ReturnPorts,
    SubjectRead,
)
from events import WorkerDeregistered, WorkerRegistered
from projections import PortBlock, Want
from tests.support import fleet_builder as builder
from tests.support.worker_inputs import (
    CONFLICT,
    EMPTY,
    FRESH,
    LOG,
    OURS,
    READY,
    SPEC,
    UNAVAILABLE,
    gone,
    notice,
    read,
)

WANTS = (Want("kv_events", 1), Want("nixl", 8))
BLOCKS = (
    PortBlock("10.0.0.1", 20000, 1, "claim-a"),
    PortBlock("10.0.0.1", 20008, 8, "claim-b"),
)
CLAIMED = PortsClaimed(blocks=BLOCKS, revision=9, log_id=LOG)
TAKEN = PortsTaken(LeaseLostError(namespace="prod", worker_id="w1", reason="taken"))
REGISTERED = (Begin(), EMPTY, CLAIMED, Appended(1, "reg"))


def core_after(*inputs) -> WorkerCore:
    core = WorkerCore(SPEC, OURS, WANTS)
    for given in inputs:
        core.step(given)
    return core


def registration(incarnation: str, revision: int):
    record = builder.given(builder.registered("w1"))[0]
    event = msgspec.structs.replace(record.event, incarnation=incarnation)
    return msgspec.structs.replace(record, event=event, revision=revision)


def answer(*records) -> SubjectRead:
    return SubjectRead(
        log_id=LOG, last=len(records), records=records, whole=False, fresh=FRESH
    )


EARLIER = "00000000-0000-7000-8000-000000000001"
LATEST = "fffffff0-ffff-7fff-bfff-ffffffffffff"
(EXPIRED_UNREGISTERED,) = builder.given(builder.expired("w1", life=1))
assert EXPIRED_UNREGISTERED.event.incarnation == OURS


# ---- entering ----------------------------------------------------------------------
def test_ports_are_claimed_after_the_subject_was_read_and_before_it_is_written():
    core = core_after(Begin())
    assert core.step(EMPTY) == (ClaimPorts(WANTS, OURS),)
    beat, append = core.step(CLAIMED)
    assert beat == KeepBeating(OURS, LOG, 9)
    assert isinstance(append.draft, WorkerRegistered)
    assert (append.expected, append.blocks) == (0, BLOCKS)
    assert core.blocks == BLOCKS
    assert not core.registered


def test_a_worker_without_ports_claims_none():
    core = WorkerCore(SPEC, OURS)
    core.step(Begin())
    (append,) = core.step(EMPTY)
    assert append.blocks == ()


@pytest.mark.parametrize("given", [Appended(3), Conflicted(CONFLICT), PortsReturned()])
def test_what_nobody_asked_for_does_not_answer_a_claim(given):
    core = core_after(Begin(), EMPTY)
    assert core.step(given) == ()
    assert core.step(CLAIMED)


def test_a_claim_that_fails_for_good_ends_the_entering():
    (end,) = core_after(Begin(), EMPTY).step(Failed(UNAVAILABLE))
    assert end == End(UNAVAILABLE)


def test_an_entering_that_fails_after_the_claim_gives_the_ports_back():
    core = core_after(Begin(), EMPTY, CLAIMED)
    assert core.step(Failed(UNAVAILABLE)) == (ReturnPorts(BLOCKS),)
    assert core.step(PortsReturned()) == (End(UNAVAILABLE),)
    assert core.blocks == ()


def test_whoever_is_superseded_while_it_enters_gives_its_ports_back():
    core = core_after(Begin(), EMPTY, CLAIMED, Conflicted(CONFLICT))
    assert core.step(answer(registration(LATEST, 1))) == (ReturnPorts(BLOCKS),)
    (end,) = core.step(PortsReturned())
    assert isinstance(end.error, IncarnationSupersededError)


def test_whoever_expired_before_it_registered_lets_that_life_end():
    """Its claims are waited for to end with it; its beats would keep it for ever."""
    core = core_after(Begin(), EMPTY, CLAIMED, Conflicted(CONFLICT))
    beat, append = core.step(answer(EXPIRED_UNREGISTERED))
    assert beat == KeepBeating(FRESH, LOG, 1)
    assert (append.draft.incarnation, append.blocks) == (FRESH, BLOCKS)


def test_an_entering_that_others_forestall_too_often_gives_its_ports_back():
    core = core_after(Begin(), EMPTY, CLAIMED)
    for _ in range(ATTEMPTS_MAX - 1):
        core.step(Conflicted(CONFLICT))
        core.step(EMPTY)
    assert core.step(Conflicted(CONFLICT)) == (ReturnPorts(BLOCKS),)
    assert core.step(PortsReturned()) == (End(CONFLICT),)


def test_a_registration_that_was_forestalled_is_said_again_with_the_same_ports():
    core = core_after(Begin(), EMPTY, CLAIMED, Conflicted(CONFLICT))
    *_, append = core.step(read("left"))
    assert (append.expected, append.blocks) == (2, BLOCKS)


# ---- expired before it could register ----------------------------------------------
def test_a_life_that_expired_before_it_registered_does_not_come_back():
    core = core_after(Begin(), EMPTY, CLAIMED, Conflicted(CONFLICT))
    *_, append = core.step(answer(EXPIRED_UNREGISTERED))
    assert append.draft.incarnation == FRESH
    assert (append.expected, append.blocks) == (1, BLOCKS)
    core.step(Appended(20))
    assert (core.incarnation, core.registered) == (FRESH, 20)
    assert core.phase is Phase.REGISTERED


def test_nor_does_it_after_another_came_that_began_earlier():
    core = core_after(Begin(), EMPTY, CLAIMED, Conflicted(CONFLICT))
    others = registration(EARLIER, 2)
    *_, append = core.step(answer(EXPIRED_UNREGISTERED, others))
    assert (append.draft.incarnation, append.expected) == (FRESH, 2)


def test_nor_when_the_log_does_not_go_on_from_what_was_read():
    core = core_after(Begin(), answer(registration(EARLIER, 1)), CLAIMED)
    core.step(Conflicted(CONFLICT))
    whole = msgspec.structs.replace(answer(EXPIRED_UNREGISTERED), whole=True)
    *_, append = core.step(whole)
    assert append.draft.incarnation == FRESH


def test_who_cannot_have_its_ports_again_while_it_enters_gives_back_the_rest():
    core = core_after(Begin(), EMPTY, CLAIMED, Conflicted(CONFLICT))
    core.step(answer(EXPIRED_UNREGISTERED))
    assert core.step(TAKEN) == (ReturnPorts(BLOCKS),)
    assert core.step(PortsReturned()) == (End(TAKEN.error),)


# ---- leaving -----------------------------------------------------------------------
def test_a_farewell_releases_the_ports_in_the_same_breath():
    (append,) = core_after(*REGISTERED).step(Leave("stopped"))
    assert isinstance(append.draft, WorkerDeregistered)
    assert (append.expected, append.blocks) == (1, BLOCKS)


@pytest.mark.parametrize("given", [Appended(12), Conflicted(CONFLICT)])
def test_other_things_said_carry_no_ports(given):
    (append,) = core_after(*REGISTERED).step(READY)
    assert append.blocks == ()


def test_who_leaves_between_claim_and_registration_says_both_farewells():
    core = core_after(Begin(), EMPTY, CLAIMED)
    assert core.step(Leave()) == ()
    beat, append = core.step(Appended(10))
    assert isinstance(beat, KeepBeating)
    assert isinstance(append.draft, WorkerDeregistered)
    assert append.blocks == BLOCKS


def test_who_leaves_while_it_claims_gives_back_what_it_got():
    core = core_after(Begin(), EMPTY)
    assert core.step(Leave()) == ()
    assert core.step(CLAIMED) == (ReturnPorts(BLOCKS),)
    assert core.step(Leave()) == ()
    assert core.step(PortsReturned()) == (End(None),)


@pytest.mark.parametrize("story", ["expired", "left", "taken", "taken and left"])
def test_who_is_over_when_it_leaves_gives_back_what_is_still_its_own(story):
    core = core_after(*REGISTERED, Leave(), Conflicted(CONFLICT))
    assert core.step(read(story)) == (ReturnPorts(BLOCKS),)
    assert core.step(PortsReturned()) == (End(None),)


def test_a_farewell_that_a_port_refused_is_said_again():
    core = core_after(*REGISTERED, Leave(), Conflicted(CONFLICT))
    unchanged = msgspec.structs.replace(answer(), last=1)
    (append,) = core.step(unchanged)
    assert isinstance(append.draft, WorkerDeregistered)
    assert append.blocks == BLOCKS


# ---- expired -----------------------------------------------------------------------
def test_an_expired_life_begins_anew_with_the_same_ports():
    core = core_after(*REGISTERED, notice("expired"))
    append = core.step(read("expired"))[-1]
    assert append.draft.incarnation == FRESH
    assert append.blocks == BLOCKS
    core.step(Appended(30))
    assert (core.incarnation, core.blocks) == (FRESH, BLOCKS)


def test_whose_ports_another_holds_by_then_is_lost_and_touches_nothing():
    core = core_after(*REGISTERED, notice("expired"), read("expired"))
    assert core.step(TAKEN) == (End(TAKEN.error),)


def test_ports_that_rest_after_another_are_waited_for():
    core = core_after(*REGISTERED, notice("expired"), read("expired"))
    assert core.step(PortsRest()) == (Pause(None),)
    assert core.phase is Phase.REGISTERING_AGAIN
    (ask,) = core.step(Resumed())
    assert isinstance(ask, ReadSubject)
    append = core.step(read("expired"))[-1]
    assert append.blocks == BLOCKS


def test_who_leaves_while_its_ports_rest_asks_no_longer():
    core = core_after(*REGISTERED, notice("expired"), read("expired"))
    core.step(PortsRest())
    core.step(Leave())
    effects = core.step(Conflicted(CONFLICT))
    assert isinstance(effects[0], ReadSubject)
    assert core.step(read("expired")) == (ReturnPorts(BLOCKS),)


def test_whoever_is_superseded_falls_silent_and_keeps_its_ports_for_a_while():
    core = core_after(*REGISTERED, notice("superseded"))
    (end,) = core.step(read("taken"))
    assert isinstance(end.error, IncarnationSupersededError)
    assert core.blocks == BLOCKS


# ---- a log that lost something -----------------------------------------------------
def test_told_unknown_the_same_life_registers_with_its_ports():
    core = core_after(*REGISTERED, notice("unknown"))
    append = core.step(gone())[-1]
    assert (append.draft.incarnation, append.expected) == (OURS, 0)
    assert append.blocks == BLOCKS


def test_who_registered_while_the_log_lost_its_claims_registers_once_more():
    core = core_after(Begin(), EMPTY, CLAIMED)
    (ask,) = core.step(Appended(3, "reg", holds=False))
    assert isinstance(ask, ReadSubject)
    assert core.phase is Phase.REGISTERING_AGAIN
    unchanged = msgspec.structs.replace(answer(), last=3)
    append = core.step(unchanged)[-1]
    assert (append.draft.incarnation, append.expected) == (OURS, 3)
    assert append.blocks == BLOCKS
    beat = core.step(Appended(12, "again"))[0]
    assert beat == KeepBeating(OURS, LOG, 12)
    assert core.phase is Phase.REGISTERED


def test_who_leaves_without_being_sure_of_its_ports_says_its_farewell():
    core = core_after(Begin(), EMPTY, CLAIMED, Leave())
    (append,) = core.step(Appended(3, "reg", holds=False))
    assert isinstance(append.draft, WorkerDeregistered)


def test_a_registration_that_only_a_read_found_is_said_once_more_with_the_ports():
    core = core_after(Begin(), EMPTY, CLAIMED, Conflicted(CONFLICT))
    append = core.step(read("intact"))[-1]
    assert isinstance(append, Append)
    assert (append.draft.incarnation, append.blocks) == (OURS, BLOCKS)
