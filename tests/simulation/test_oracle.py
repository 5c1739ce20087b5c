"""The oracle is right about logs: against the fold, and for each rule that it keeps."""

import json
import sys
from contextlib import suppress

import msgspec
import pytest
from hypothesis import given as for_all
from hypothesis import settings

from events import WorkerHeld, WorkerRegistered
from projections import FoldState, PlaneState, Resting, WorkerGone, fold_all, step
from tests.golden.files import GOLDEN, read_log
from tests.property.logs import logs
from tests.simulation.comparing import disagreements, fleet_facts
from tests.simulation.dumb import Dumb
from tests.simulation.history import VERSIONS, Folding, Histories
from tests.simulation.outcome import Violation
from tests.simulation.pristine import PRISTINE, private_codec
from tests.support.fleet_builder import (
    C1,
    C2,
    claimed,
    deregistered,
    draining,
    expired,
    forked,
    given,
    held,
    loaded,
    poison,
    ready,
    registered,
    released,
    silent_for,
)

LOG_ID = "log-a"
TRUE_SHAPE = ("models", "known_models", "anomalies", "digest", "revision")


def told(records, log_id=LOG_ID, **settled):
    """Histories that were told of a log with these records."""
    histories = Histories(**settled)
    histories.log_created(log_id)
    for record in records:
        histories.log_stored(record)
    return histories


def agreeing(records):
    """The dumb model after the records, compared with the fold after each."""
    dumb, state = Dumb(), FoldState()
    for record in records:
        state = step(state, record).state
        dumb.feed(record)
        assert disagreements(dumb, state) == []
    return dumb, state


def shown(state):
    document = PlaneState(state).fleet.document()
    return json.loads(msgspec.json.encode({k: document[k] for k in TRUE_SHAPE}))


def violation(invariant, act, *arguments, **more):
    with pytest.raises(Violation) as caught:
        act(*arguments, **more)
    assert caught.value.invariant == invariant, caught.value
    return caught.value.what


# ---- the dumb model ------------------------------------------------------------
@pytest.mark.parametrize("name", ["rolling_update", "poison"])
def test_the_dumb_model_tells_the_golden_logs_as_they_were_pinned(name):
    records = read_log((GOLDEN / "logs" / f"{name}.jsonl").read_bytes())
    pinned = json.loads((GOLDEN / "logs" / f"{name}.json").read_bytes())
    dumb = Dumb()
    for record, digests in zip(records, pinned["digests"], strict=True):
        dumb.feed(record)
        assert dumb.fleet_digest() == digests["fleet"], record
        assert dumb.ports_digest() == digests["ports"], record
    facts = json.loads(msgspec.json.encode(fleet_facts(dumb)))
    assert facts == {name: pinned["view"][name] for name in TRUE_SHAPE}


@settings(max_examples=80)
@for_all(logs())
def test_the_dumb_model_and_the_fold_agree_on_any_log(story):
    dumb, state = agreeing(story)
    assert json.loads(msgspec.json.encode(fleet_facts(dumb))) == shown(state)


def test_the_pristine_copy_is_not_the_product():
    assert PRISTINE.step is not step
    assert PRISTINE.FoldState is not FoldState
    assert PRISTINE.encode_view is not sys.modules["projections"].encode_view


# ---- folds with a fault --------------------------------------------------------
def product(module):
    """A module of the product; `projections.fold` by attribute is the function."""
    return sys.modules[f"projections.{module}"]


def incarnations_not_compared(patch):
    decide = product("deciding").decide_worker

    def decide_anyhow(state, event, current, recorded_at):
        if current is not None:
            event = msgspec.structs.replace(event, incarnation=current.incarnation)
        return decide(state, event, current, recorded_at)

    patch(product("fold"), "decide_worker", decide_anyhow)


def digest_keeps_what_is_removed(patch):
    patch(product("digest"), "remove", lambda total, _: total)


def quarantine_does_not_take_over(patch):
    def leave(_, old):
        return (WorkerGone(old.namespace, old.worker_id),)

    patch(product("deciding"), "decide_leaving", leave)


def a_release_by_anybody_counts(patch):
    def release(_, event, recorded_at):
        return Resting(
            host=event.host,
            port=event.port,
            claim_id=event.claim_id,
            cause=event.cause,
            since=recorded_at,
        )

    patch(product("port"), "decide_release", release)


def a_registration_forgets_its_ports(patch):
    patch(product("life"), "registered", lambda lives, life: lives.set(life.key, life))


def known_names_are_not_learnt(patch):
    patch(product("deciding"), "_learn", lambda *_: ())


EVENTFUL = given(
    claimed("w1", 20000, 2),
    registered("w1", card=C1),
    registered("w2", card=C2),
    loaded("w2", "lora"),
    registered("w1", card=C1),
    draining("w1", life=1),
    deregistered("w1"),
)


@pytest.mark.parametrize(
    "fault",
    [
        incarnations_not_compared,
        digest_keeps_what_is_removed,
        quarantine_does_not_take_over,
        a_release_by_anybody_counts,
        a_registration_forgets_its_ports,
        known_names_are_not_learnt,
    ],
)
def test_a_faulty_fold_is_found_by_the_dumb_model_and_by_the_histories(
    fault, monkeypatch
):
    wrong = EVENTFUL.then(released(20001, claim="another's"))
    fault(monkeypatch.setattr)
    dumb, state, found = Dumb(), FoldState(), []
    for record in wrong:
        state = step(state, record).state
        dumb.feed(record)
        found = found or disagreements(dumb, state)
    assert found

    histories = Histories()
    histories.log_created(LOG_ID)
    state, caught = FoldState(), 0
    for record in wrong:
        state = step(state, record).state
        with suppress(Violation):
            histories.log_stored(record)
        try:
            histories.check_fold("p1", LOG_ID, state)
        except Violation as error:
            caught += error.invariant == "fold"
    assert caught
    assert histories.violations


def test_the_oracle_itself_does_not_change_with_the_product(monkeypatch):
    quarantine_does_not_take_over(monkeypatch.setattr)
    digest_keeps_what_is_removed(monkeypatch.setattr)
    histories = told(EVENTFUL)
    histories.check_end()
    assert not histories.violations


# ---- rules of the log ----------------------------------------------------------
@pytest.mark.parametrize("end", [deregistered, expired])
def test_an_ended_life_must_not_register_again(end):
    story = given(registered("w1"), end("w1"), registered("w1", life=1))
    assert "'w1'" in violation("ended_life", told, story)


def test_a_superseded_life_must_not_register_again():
    story = given(registered("w1"), registered("w1"), registered("w1", life=1))
    violation("ended_life", told, story)


def test_a_life_may_come_back_in_a_history_that_lost_its_end():
    base = given(registered("w1"))
    histories = told(base.then(deregistered("w1")))
    histories.log_truncated(1)
    for record in base.then(forked("b"), registered("w1", life=1, address="b"))[1:]:
        histories.log_stored(record)
    end = base.then(registered("w2"), deregistered("w1"), registered("w1", life=1))
    violation("ended_life", told, end)


def test_an_upsert_and_late_words_of_old_lives_are_no_violation():
    told(
        given(
            claimed("w1", 20000, claim="a"),
            registered("w1"),
            registered("w1", life=1, address="b"),
            claimed("w1", 20000, life=1, claim="a"),
            registered("w1"),
            released(20000, cause="expired"),
            deregistered("w1", life=1),
            draining("w1", life=1),
            held("w1"),
            poison("log.worker.prod.w1", b"?"),
        )
    )


@pytest.mark.parametrize(
    "story",
    [
        given(claimed("w1", 20000), claimed("w2", 20000)),
        given(claimed("w1", 20000), released(20000, claim="another's")),
        given(poison("log.port.10%2E0%2E0%2E1.20000", b"?"), claimed("w1", 20000)),
        given(
            claimed("w1", 20000, 2, life=1),
            released(20001, cause="expired"),
            registered("w1"),
        ),
        given(claimed("w1", 20000), released(20000), claimed("w2", 20000)),
    ],
    ids=[
        "two claims",
        "another's release",
        "unreadable",
        "taken meanwhile",
        "unrested",
    ],
)
def test_ports_have_one_holder_who_alone_lets_go(story):
    violation("ports", told, story)


def test_a_port_that_was_let_go_or_claimed_anew_is_no_violation():
    told(
        given(
            claimed("w1", 20000, 2, life=1),
            released(20000, cause="unusable"),
            released(20001, cause="expired"),
            silent_for(s=4.0),
            claimed("w1", 20001, life=1),
            registered("w1"),
        )
    )


def test_what_one_let_go_oneself_needs_no_rest():
    told(
        given(
            claimed("w1", 20000, claim="a"),
            released(20000, cause="expired"),
            claimed("w1", 20000, life=2, claim="a"),
        )
    )


@pytest.mark.parametrize(
    "story",
    [
        given(registered("w1"), expired("w1")),
        given(claimed("w1", 20000), released(20000, cause="expired")),
    ],
    ids=["worker", "port"],
)
def test_nobody_expires_who_beats(story):
    told(story)
    violation("expired_alive", told, story, is_beating=lambda *_: True)


def test_ports_of_a_life_that_is_over_expire_even_if_it_beats():
    story = given(claimed("w1", 20000, life=1), registered("w1"), registered("w1"))
    after = story.then(released(20000, cause="expired"))
    told(after, is_beating=lambda *_: True)


# ---- lineages ------------------------------------------------------------------
def test_each_history_keeps_its_places_and_times():
    now = [0.0]
    base = given(registered("w1"), ready("w1"))
    old = base.then(registered("w2"), registered("w3"))
    new = base.then(forked("b"), registered("w4"))
    histories = told(old, now=lambda: now[0])
    now[0] = 7.0
    histories.log_truncated(2)
    histories.log_stored(new[2])
    shared = histories.find(LOG_ID, 2, base[1].fingerprint)
    lost = histories.find(LOG_ID, 3, old[2].fingerprint)
    found = histories.find(LOG_ID, 3, new[2].fingerprint)
    assert histories.find(LOG_ID, 4, new[2].fingerprint) is None
    assert histories.find("log-b", 2, base[1].fingerprint) is None
    assert histories.is_current(shared)
    assert histories.is_current(found)
    assert not histories.is_current(lost)
    times = [0.0, 6.9, 7.0]
    was = histories.was_current
    assert [was(lost, LOG_ID, at) for at in times] == [True, True, False]
    assert [was(found, LOG_ID, at) for at in times] == [False, False, True]
    assert [was(shared, LOG_ID, at) for at in times] == [True, True, True]


def test_a_fold_must_stand_on_a_history_that_was():
    base = given(registered("w1"))
    histories = told(base.then(held("w1")))
    histories.log_truncated(1)
    lost, never = base.then(held("w1")), base.then(forked("b"), held("w1"))
    histories.check_fold("p1", LOG_ID, fold_all(FoldState(), lost))
    state = fold_all(FoldState(), never)
    violation("fold", histories.check_fold, "p1", LOG_ID, state)


def test_what_was_acknowledged_is_there_or_its_loss_was_announced():
    now = [0.0]
    base = given(registered("w1"))
    histories = told(base.then(held("w1")), now=lambda: now[0])
    histories.acknowledged("w1", base[0].event.event_id)
    gone = base.then(held("w1"))[1].event.event_id
    histories.acknowledged("op", gone)
    histories.check_acknowledged([])
    now[0] = 5.0
    histories.log_truncated(1)
    violation("acknowledged", histories.check_acknowledged, [4.0])
    histories.check_acknowledged([6.0])
    histories.check_acknowledged([], known_to_somebody=lambda _: False)
    histories.log_deleted()
    violation("acknowledged", histories.check_acknowledged, [4.0])
    violation("acknowledged", histories.acknowledged, "w1", "never stored")


# ---- versions ------------------------------------------------------------------
def test_each_version_folds_what_it_can_read(monkeypatch):
    old = private_codec(without={WorkerHeld}).decode_record
    versions = {**VERSIONS, 0: Folding(decode_record=old)}
    story = given(registered("w1"), held("w1"), poison("log.worker.prod.w1", b"?"))
    # Whoever's version the broker is called in: the oracle reads with its own.
    monkeypatch.setattr("events.codec._EVENT", msgspec.json.Decoder(WorkerRegistered))
    histories = Histories(versions=versions)
    histories.log_created(LOG_ID)
    for record, payload in zip(story, story.payloads, strict=True):
        place = (record.revision, record.recorded_at, record.subject)
        histories.log_message(*place, payload)
    histories.check_end()
    one, two = (histories.current.moments[3].folded[v].state for v in (1, 0))
    assert (len(one.fleet_state.settings), one.anomalies.unknown) == (1, 0)
    assert (len(two.fleet_state.settings), two.anomalies.unknown) == (0, 1)
    assert one.anomalies.undecodable == two.anomalies.undecodable == 1
    assert two.anomalies.skipped_tags == {"worker_held.v1"}
    histories.log_truncated(2)
    histories.check_end()
    state = fold_all(FoldState(), story[:2])
    histories.check_fold("p1", LOG_ID, state)
    violation("fold", histories.check_fold, "p2", LOG_ID, state, version=0)
