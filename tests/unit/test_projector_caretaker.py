"""Lives: whose beats count, who is told what, and that nobody is told too much."""

import pytest

from controlplane.beats import Beat
from controlplane.projector.caretaker import Caretaker, Inquiry
from controlplane.projector.effects import Expire, Inquire, Tell
from projections import FoldState, Guard, LeaseBook, fold_all
from tests.support.fleet_builder import (
    C2,
    NAMESPACE,
    claimed,
    deregistered,
    draining,
    expired,
    given,
    held,
    incarnation,
    ready,
    registered,
    released,
)

LOG = "log-1"
W1 = (NAMESPACE, "w1")


class Care:
    """A caretaker who has folded a story."""

    def __init__(self, *steps, answers=True):
        self.book = LeaseBook(Guard())
        self.care = Caretaker(self.book, LOG)
        self.story = given(*steps)
        self.fold = fold_all(FoldState(), self.story)
        for record in self.story:
            self.care.note(record, 0.0)
        self.answers = answers
        self.book.judge(self.fold.lives, 0.0)

    def beat(self, worker="w1", life=1, *, revision=1, log_id=LOG, now=1.0):
        beat = Beat(
            incarnation=incarnation(worker, life), log_id=log_id, revision=revision
        )
        where = (NAMESPACE, worker)
        return self.care.beat(self.fold, where, beat, now, answers=self.answers)

    def inquire(self, life=1, *, revision=1, last=None, own=None, **fields):
        """What is said after the log was asked of a beat that does not fit."""
        beat = Beat(incarnation=incarnation("w1", life), log_id=LOG, revision=revision)
        inquiry = Inquiry(
            namespace=NAMESPACE,
            worker_id="w1",
            beat=beat,
            last=last,
            own=own,
            log_id=fields.get("log_id", LOG),
            log_end=fields.get("log_end", self.fold.revision),
        )
        return told(self.care.inquired(self.fold, inquiry))

    def heard(self, worker="w1", life=1):
        return self.book._pulses[
            (NAMESPACE, worker, incarnation(worker, life))
        ].heard_at


def told(effects):
    assert all(isinstance(effect, Tell) for effect in effects), effects
    return [effect.notice.kind for effect in effects]


def test_a_beat_renews_its_life_for_leader_and_follower():
    for answers in (True, False):
        care = Care(registered("w1"), answers=answers)
        assert care.beat(now=7.0) == []
        assert care.heard() == 7.0


def test_a_port_only_life_is_renewed():
    care = Care(registered("w1"), deregistered("w1"), claimed("w1", 20000, life=2))
    assert care.beat(life=2, revision=3, now=7.0) == []
    assert care.heard(life=2) == 7.0


def test_beats_of_an_ended_life_renew_nothing_though_it_holds_ports():
    care = Care(registered("w1"), claimed("w1", 20000), registered("w1"))
    assert told(care.beat(revision=1, now=7.0)) == ["superseded"]
    assert care.heard() == 0.0


def test_superseded_only_if_the_current_registration_is_above_the_beat():
    care = Care(registered("w1"), registered("w1"))
    (tell,) = care.beat(life=1, revision=1)
    assert (tell.notice.kind, tell.notice.revision) == ("superseded", 2)
    assert isinstance(care.beat(life=3, revision=9)[0], Inquire)


def test_an_expired_life_is_told_so():
    care = Care(registered("w1"), expired("w1"))
    (tell,) = care.beat()
    assert (tell.notice.kind, tell.notice.revision) == ("expired", 2)


def test_a_beat_of_another_log_is_unknown_at_once():
    assert told(Care().beat(log_id="log-0", revision=99)) == ["unknown"]
    care = Care(registered("w1", life=2))
    assert told(care.beat(log_id="log-0", revision=99)) == ["superseded"]


def test_what_is_not_known_here_is_asked_of_the_log_first():
    care = Care()
    (inquire,) = care.beat()
    assert (inquire.namespace, inquire.worker_id) == W1


def test_a_notice_is_repeated_but_not_with_every_beat():
    care = Care(registered("w1"), expired("w1"))
    said = [len(care.beat(now=t / 2)) for t in range(1, 14)]
    assert said == [1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1]
    asked = [len(Care().beat(now=1.0)), len(care.beat(life=2, now=1.0))]
    assert asked == [1, 1]
    assert care.beat(life=2, now=2.0) == []


def test_a_follower_says_nothing():
    care = Care(registered("w1"), expired("w1"), answers=False)
    assert care.beat() == care.beat(life=2) == care.beat(log_id="log-0") == []


def test_a_quarantined_life_is_told_both_checksums():
    care = Care(registered("w1"), registered("w2", card=C2))
    (tell,) = care.beat("w2", revision=2)
    workers = care.fold.fleet_state.workers
    assert tell.notice.kind == "quarantined"
    for worker in ("w1", "w2"):
        assert workers[(NAMESPACE, worker)].checksum in tell.notice.reason
    assert care.beat("w1") == []
    assert care.heard("w2") == 1.0


@pytest.mark.parametrize("revision", [1, 2, 3])
def test_a_known_life_ahead_of_the_fold_is_looked_into(revision):
    care = Care(registered("w1"), ready("w1", life=1))
    assert bool(care.beat(revision=revision)) is (revision == 3)
    assert care.inquire(revision=3, log_end=9) == []


def test_the_log_that_knows_no_such_life_makes_it_unknown():
    assert Care().inquire() == ["unknown"]
    care = Care(registered("w1"), deregistered("w1"))
    assert care.inquire(revision=2, last=care.story[1]) == ["unknown"]


def test_a_fold_behind_the_log_says_nothing():
    care = Care()
    assert care.inquire(revision=5, log_end=7) == []
    later = given(registered("w1"))[0]
    assert care.inquire(revision=0, last=later, log_end=1) == []


def test_a_log_that_ends_below_the_beat_lost_the_registration():
    assert Care().inquire(revision=5, log_end=0) == ["unknown"]


def test_the_log_remembers_an_expiry_that_the_leader_forgot():
    care = Care(registered("w1"), expired("w1"))
    care.care = Caretaker(care.book, LOG)
    assert care.inquire(last=care.story[1]) == ["expired"]


def test_a_life_whose_record_is_there_was_superseded_not_lost():
    care = Care(registered("w1"), registered("w1"), ready("w1", life=1))
    own = care.story[2]
    assert care.inquire(revision=3, own=own, last=own) == ["superseded"]
    assert care.inquire(life=3, revision=3, own=own, last=own) == ["unknown"]


def test_an_ended_life_with_ports_is_not_unknown():
    care = Care(registered("w1"), claimed("w1", 20000), deregistered("w1"))
    assert care.inquire(revision=1, last=care.story[2]) == []


def test_a_life_that_holds_ports_only_is_asked_about_what_else_it_knows():
    care = Care(claimed("w1", 20000, life=1), claimed("w2", 20001))
    assert care.beat(revision=1) == []
    assert isinstance(care.beat(revision=2)[0], Inquire)
    assert isinstance(care.beat(revision=1, log_id="another", now=9.0)[0], Inquire)


def test_a_life_whose_registration_was_lost_is_unknown_though_its_claims_stayed():
    care = Care(claimed("w1", 20000, life=1), claimed("w2", 20001))
    stranger = care.story[1]
    assert care.inquire(revision=2, own=stranger) == ["unknown"]
    assert care.inquire(revision=1, own=care.story[0]) == []
    assert care.inquire(revision=9, own=None, log_end=9) == []


def test_an_answer_of_another_log_is_not_used():
    assert Care().inquire(log_id="log-2") == []


def judged(care, now):
    care.book.canary_sent(now)
    care.book.canary_returned(now, now)
    return care.care.judge(care.fold, now, "")


def test_the_overdue_are_expired_and_again_if_it_did_not_come_true():
    care = Care(registered("w1"))
    assert judged(care, 10.0) == []
    (expire,) = judged(care, 10.5)
    assert isinstance(expire, Expire)
    assert expire.silent_for_s == 10.5
    assert judged(care, 11.0) == judged(care, 12.0) == []
    assert len(judged(care, 12.5)) == 1


def test_ports_that_outlive_a_life_are_due_when_their_lease_is():
    care = Care(registered("w1"), claimed("w1", 20000), registered("w1"))
    for now in (5.0, 10.5):
        care.beat(life=1, now=now)
        care.beat(life=2, revision=3, now=now)
    (expire,) = judged(care, 10.6)
    assert expire.life.ended
    assert expire.life.ports


def test_released_ports_end_a_port_only_life():
    care = Care(claimed("w1", 20000), released(20000))
    assert not care.fold.lives


def test_looking_at_everybody_is_left_out_only_while_nobody_can_be_silent():
    """A life that begins after the first look is judged by its own lease."""
    care = Care(registered("w1", lease_ttl_s=60.0))
    book, fold = care.book, care.fold
    book.canary_returned(0.5, 0.5)
    assert care.care.judge(fold, 0.5, "") == []
    story = care.story.then(registered("w2", lease_ttl_s=5.0))
    care.care.note(story[-1], 1.0)
    fold = fold_all(FoldState(), story)
    for step in range(1, 20):
        now = 0.5 + 0.5 * step
        book.canary_returned(now, now)
        found = care.care.judge(fold, now, "")
        if found:
            break
    (expire,) = found
    assert expire.life.worker_id == "w2"
    assert 6.0 < now <= 7.0


def test_who_is_to_drain_is_reminded_until_he_does():
    care = Care(registered("w1"), held("w1", drain=True, reason="rollout"))
    said = [care.care.remind(care.fold, t / 2) for t in range(2, 15)]
    assert [len(effects) for effects in said] == [1, 0, 0, 0, 0, 0] * 2 + [1]
    ((tell,), *_) = said
    assert (tell.namespace, tell.worker_id) == W1
    notice = tell.notice
    assert (notice.kind, notice.reason) == ("drain_requested", "rollout")
    assert (notice.incarnation, notice.revision) == (incarnation("w1"), 2)
    heard = Care(registered("w1"), held("w1", drain=True), draining("w1"))
    assert heard.care.remind(heard.fold, 1.0) == []


def test_the_next_life_of_who_is_to_drain_is_told_too():
    care = Care(registered("w1"), held("w1", drain=True), expired("w1"))
    assert care.care.remind(care.fold, 1.0) == []
    again = Care(registered("w1"), held("w1", drain=True), registered("w1"))
    (tell,) = again.care.remind(again.fold, 1.0)
    assert tell.notice.incarnation == incarnation("w1", 2)
    assert tell.notice.reason == "asked by builder"
