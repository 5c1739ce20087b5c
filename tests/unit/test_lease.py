"""Leases: who is overdue, what the judge's own blindness forgives, what brakes do."""

import pytest

from projections import Guard, LeaseBook
from tests.support.fleet_builder import (
    NAMESPACE,
    claimed,
    deregistered,
    incarnation,
    registered,
    state_after,
)
from tests.support.judging import TTL, Watch, key, lives, names


def test_a_life_that_beats_is_never_overdue():
    watch = Watch(3)
    assert names(watch.run(100, beating=["w0", "w1", "w2"])) == []


def test_the_silent_one_is_overdue_after_its_lease_and_not_before():
    watch = Watch(3)
    watch.run(5, beating=["w0", "w1", "w2"])
    assert names(watch.run(10, beating=["w1", "w2"])) == []
    verdict = watch.run(0.5, beating=["w1", "w2"])
    assert names(verdict) == ["w0"]
    assert verdict.expire[0].silent_for_s == 10.5
    assert not verdict.guard_engaged


def test_a_life_that_never_beat_has_a_full_lease_from_the_first_look():
    watch = Watch(1)
    assert names(watch.run(10)) == []
    assert names(watch.run(0.5)) == ["w0"]
    later = Watch(0)
    later.run(30)
    later.lives = lives(1)
    assert names(later.run(10)) == []
    assert names(later.run(0.5)) == ["w0"]


def test_without_a_canary_nobody_is_expired():
    watch = Watch(1)
    assert names(watch.run(100, canary=False)) == []


def test_a_canary_sent_before_the_deadline_proves_nothing():
    book, one = LeaseBook(Guard()), lives(1)
    book.judge(one, 0.0)
    book.canary_sent(9.9)
    book.canary_returned(9.9, 10.2)
    assert names(book.judge(one, 11.0)) == []
    book.canary_returned(10.1, 11.1)
    assert names(book.judge(one, 11.2)) == ["w0"]


@pytest.mark.parametrize("blind_s", [1.5, 20.0])
def test_blind_time_extends_every_lease(blind_s):
    watch = Watch(2)
    watch.run(5, beating=["w0", "w1"])
    watch.run(blind_s - 0.5, canary=False)
    watch.run(0.5)
    assert watch.run(10, beating=["w1"]).expire == ()
    assert watch.book.blind_s == blind_s
    assert names(watch.run(0.5, beating=["w1"])) == ["w0"]


@pytest.mark.parametrize("missed_s", [0.0, 20.0])
def test_blindness_before_a_beat_does_not_forgive_the_silence_after_it(missed_s):
    """It is heard before the canary that tells of the blindness returns."""
    watch = Watch(1)
    watch.run(1)
    watch.run(missed_s, canary=False)
    watch.run(1, beating=["w0"], canary=False)
    assert watch.run(10).expire == ()
    assert names(watch.run(1.0)) == ["w0"]


def test_after_blindness_everybody_may_beat_once_more():
    """Beat after beat fell into a short blindness; the next is awaited."""
    watch = Watch(2)
    watch.run(3, beating=["w0", "w1"])
    for _ in range(8):
        watch.run(1.0, canary=False)
        assert watch.run(2.0).expire == ()
    assert watch.run(3.5).expire == ()
    assert names(watch.run(0.5, beating=["w0"])) == ["w1"]


@pytest.mark.parametrize("blink", ["blind", "contact"])
def test_a_judge_who_blinks_again_and_again_expires_the_dead_all_the_same(blink):
    """Within two leases, not counting what was blind; the living go on."""
    watch, silent_s = Watch(4), 0.0
    alive = ["w1", "w2", "w3"]
    watch.run(3, beating=[*alive, "w0"])
    while not (verdict := watch.run(2.0, beating=alive)).expire:
        silent_s += 2.0
        assert silent_s < 3 * TTL
        if blink == "blind":
            watch.run(1.0, canary=False)
        else:
            watch.book.sighted(watch.now)
    assert names(verdict) == ["w0"]


def test_a_hold_ends_though_the_judge_blinks():
    """Eight of ten are dead: held for as long as was said, and then let go."""
    watch, alive = Watch(10, hold_s=30.0), ["w8", "w9"]
    watch.run(3, beating=[f"w{n}" for n in range(10)])
    for _ in range(20):
        if names(watch.run(6.0, beating=alive)) == [f"w{n}" for n in range(8)]:
            break
        watch.book.sighted(watch.now)
    assert watch.now < 3 + TTL + 30 + 2 * TTL


def test_contact_found_again_counts_as_sight_found_again():
    watch = Watch(2)
    watch.run(8)
    watch.book.sighted(watch.now)
    assert watch.run(5).expire == ()
    assert names(watch.run(0.5, beating=["w0"])) == ["w1"]


def test_a_gap_of_a_second_is_not_blind():
    watch = Watch(1)
    watch.run(5, beating=["w0"])
    watch.run(0.5, canary=False)
    watch.run(0.5)
    assert watch.book.blind_s == 0.0


def test_starting_over_gives_every_life_a_full_lease():
    watch = Watch(1)
    watch.run(9)
    watch.book.start_over(watch.now)
    assert names(watch.run(10)) == []
    assert names(watch.run(0.5)) == ["w0"]


def test_the_canarys_silence_is_counted_from_its_last_return_or_first_sending():
    book = LeaseBook(Guard())
    assert book.canary_silent_s(100.0) == 0.0
    book.canary_sent(0.0)
    book.canary_sent(2.0)
    assert book.canary_silent_s(3.0) == 3.0
    book.canary_returned(0.0, 0.0)
    assert book.canary_silent_s(4.0) == 4.0
    book.canary_sent(5.0)
    book.canary_returned(5.0, 5.5)
    assert book.canary_silent_s(6.0) == 0.5


def test_beats_of_ended_lives_are_forgotten():
    book = LeaseBook(Guard())
    book.beat(key("w0"), 1.0)
    book.judge(state_after(registered("w0"), deregistered("w0")).lives, 1.0)
    assert not book._pulses


def test_a_mass_falling_silent_is_held_and_then_let_go():
    watch = Watch(10, hold_s=30.0)
    alive = ["w8", "w9"]
    watch.run(5, beating=[f"w{n}" for n in range(10)])
    verdict = watch.run(10.5, beating=alive)
    assert (names(verdict), verdict.held, verdict.guard_engaged) == ([], 8, True)
    assert names(watch.run(29.5, beating=alive)) == []
    verdict = watch.run(0.5, beating=alive)
    assert names(verdict) == [f"w{n}" for n in range(8)]
    assert (verdict.held, verdict.guard_engaged) == (0, False)


def test_a_mass_that_comes_back_is_not_expired():
    watch = Watch(10)
    everyone = [f"w{n}" for n in range(10)]
    watch.run(5, beating=everyone)
    assert watch.run(15).guard_engaged
    verdict = watch.run(0.5, beating=everyone)
    assert (verdict.held, verdict.guard_engaged) == (0, False)
    assert watch.run(15).held == 10


@pytest.mark.parametrize(("count", "silent"), [(10, 5), (4, 4), (10, 4)])
def test_few_silent_lives_are_no_mass(count, silent):
    watch = Watch(count)
    everyone = [f"w{n}" for n in range(count)]
    watch.run(5, beating=everyone)
    verdict = watch.run(10.5, beating=everyone[silent:])
    assert names(verdict) == everyone[:silent]
    assert not verdict.guard_engaged


def test_a_mass_that_thins_out_is_a_mass_no_longer():
    watch = Watch(10)
    everyone = [f"w{n}" for n in range(10)]
    watch.run(5, beating=everyone)
    assert watch.run(10.5, beating=everyone[6:]).held == 6
    verdict = watch.run(0.5, beating=everyone[3:])
    assert names(verdict) == ["w0", "w1", "w2"]


def of_servers(own_server):
    """Six workers, of which w0 and w1 beat through server b and fall silent."""
    watch = Watch(6)
    watch.server = own_server
    everyone = [f"w{n}" for n in range(6)]
    watch.servers = {w: "b" if w in {"w0", "w1"} else "a" for w in everyone}
    watch.run(5, beating=everyone)
    return watch, everyone[2:]


def test_those_of_one_server_that_fall_silent_together_are_held_for_a_while():
    watch, others = of_servers("a")
    verdict = watch.run(10.5, beating=others)
    assert (names(verdict), verdict.held, verdict.guard_engaged) == ([], 2, True)
    assert names(watch.run(29.5, beating=others)) == []
    assert names(watch.run(0.5, beating=others)) == ["w0", "w1"]


def test_on_the_judges_own_server_they_are_not_held():
    watch, others = of_servers("b")
    assert names(watch.run(10.5, beating=others)) == ["w0", "w1"]


def test_one_of_several_on_a_server_is_not_held():
    watch, others = of_servers("a")
    assert names(watch.run(10.5, beating=[*others, "w1"])) == ["w0"]


def test_the_only_one_on_a_server_is_not_held():
    watch, others = of_servers("a")
    watch.servers["w1"] = "c"
    watch.run(0.5, beating=["w1"])
    assert names(watch.run(10.5, beating=[*others, "w1"])) == ["w0"]


def test_both_brakes_together_hold_no_longer_than_one():
    """A machine with a server and most of the workers dies: that is both at once."""
    watch = Watch(10)
    watch.server = "a"
    everyone = [f"w{n}" for n in range(10)]
    watch.servers = {w: "a" if w in {"w8", "w9"} else "b" for w in everyone}
    watch.run(5, beating=everyone)
    verdict = watch.run(10.5, beating=["w8", "w9"])
    assert (verdict.held, verdict.guard_engaged) == (8, True)
    assert names(watch.run(29.5, beating=["w8", "w9"])) == []
    assert names(watch.run(0.5, beating=["w8", "w9"])) == everyone[:8]


def test_a_hold_ends_at_a_proven_moment_too():
    """A judge who was stopped wakes: beats wait for him that he has not heard."""
    watch = Watch(10, hold_s=5.0)
    watch.run(3, beating=[f"w{n}" for n in range(10)])
    verdict = watch.run(10.5)
    assert (verdict.held, verdict.guard_engaged) == (10, True)
    watch.now += 6.0  # stopped, for less than counts as blind elsewhere or more
    late = watch.book.judge(watch.lives, watch.now)
    assert (late.expire, late.held) == ((), 10)


def test_a_judge_who_was_stopped_goes_on_with_nothing_that_he_knew_before():
    """He would have expired somebody in the next moment; that was a while ago."""
    watch = Watch(2)
    watch.run(10, beating=["w1"])
    watch.book.canary_returned(watch.now, watch.now)
    watch.now += 1.5
    assert watch.book.judge(watch.lives, watch.now).expire == ()
    assert watch.run(5).expire == ()
    assert names(watch.run(1.0, beating=["w1"])) == ["w0"]


def test_replacing_the_killed_thirty_times_does_not_wear_the_guard_out():
    """S18b: ten of twenty die at once, again and again; each time they are held."""
    watch = Watch(20, share=0.4, hold_s=5.0)
    generation = {f"w{n}": 1 for n in range(20)}

    def fold(expired=()):
        for worker in expired:
            generation[worker] += 1
        steps = [
            registered(w, life=life, lease_ttl_s=TTL) for w, life in generation.items()
        ]
        watch.lives = state_after(*steps).lives

    def beat(workers):
        for worker in workers:
            place = (NAMESPACE, worker, incarnation(worker, generation[worker]))
            watch.book.beat(place, watch.now)

    fold()
    for _ in range(30):
        held_for_s, overdue = 0.0, []
        for _ in range(10):
            watch.run(0.5)
            beat(generation)
        living = list(generation)[10:]
        while not overdue:
            verdict = watch.run(0.5)
            beat(living)
            overdue = names(verdict)
            held_for_s += 0.5 * verdict.guard_engaged
        assert len(overdue) == 10
        assert held_for_s == 5.0
        fold(expired=overdue)
    assert len(watch.book._pulses) == 20


def test_who_takes_over_judges_by_what_he_heard_himself():
    """A follower that listened all along expires in time; one that just came waits."""
    warm = Watch(1)
    warm.run(9, beating=["w0"])
    assert names(warm.run(10.5)) == ["w0"]
    cold = Watch(0)
    cold.run(9.5)
    cold.lives = warm.lives
    assert names(cold.run(10)) == []
    assert names(cold.run(0.5)) == ["w0"]


# ---- quiet -------------------------------------------------------------------------
def looked_at(count: int, at: float = 1.0) -> LeaseBook:
    """A book that looked at so many lives, all heard of at that moment."""
    book = LeaseBook(Guard())
    proven(book, at)
    book.judge(lives(count), at)
    return book


def proven(book: LeaseBook, at: float) -> LeaseBook:
    book.canary_returned(at, at)
    return book


def test_it_is_quiet_until_the_first_of_all_can_be_silent():
    assert not LeaseBook(Guard()).is_quiet
    book = looked_at(2)
    assert proven(book, 1.0 + TTL * 0.66).is_quiet
    assert not proven(book, 1.0 + TTL * 0.67).is_quiet


def test_somebody_silent_ends_the_quiet_until_he_is_heard():
    book = looked_at(1)
    for now in (1.9, 2.8, 3.7, 4.6, 5.5, 6.4, 7.3, 8.2):
        proven(book, now)
    book.judge(lives(1), 8.2)
    assert not book.is_quiet
    book.beat(key("w0"), 8.3)
    book.judge(lives(1), 8.4)
    assert book.is_quiet


def test_a_life_that_begins_or_gets_a_shorter_lease_shortens_the_quiet():
    book = looked_at(1)
    book.welcome(key("w1"), 5.0, 2.0)
    assert proven(book, 2.0 + 5.0 * 0.66).is_quiet
    assert not proven(book, 2.0 + 5.0 * 0.67).is_quiet
    book = looked_at(1)
    book.welcome(key("w0"), 5.0, 4.0)
    assert not proven(book, 1.0 + 5.0 * 0.67).is_quiet


def test_with_nobody_there_it_stays_quiet_until_somebody_comes():
    book = looked_at(0)
    assert proven(book, 1e6).is_quiet
    book.welcome(key("w0"), 5.0, 1e6)
    assert not proven(book, 1e6 + 5.0).is_quiet


def test_an_ended_life_that_lives_again_has_a_full_lease():
    """The log lost what ended it; while it was over nobody noted its beats."""
    steps = (claimed("w0", 20000), registered("w0", life=1), registered("w1"))
    watch = Watch(0)
    before = state_after(*steps, registered("w0", life=2)).lives
    watch.lives = before
    watch.run(9, beating=["w1"])
    watch.lives = state_after(*steps).lives
    watch.book.come_back(before, watch.lives, watch.now)
    assert names(watch.run(10)) == []
    assert names(watch.run(0.5)) == ["w0", "w1"]


def test_who_is_still_over_gets_no_more_time():
    steps = (claimed("w0", 20000), registered("w0", life=1), registered("w0", life=2))
    watch = Watch(0)
    watch.lives = state_after(*steps).lives
    watch.run(9)
    watch.book.come_back(watch.lives, watch.lives, watch.now)
    watch.book.come_back(watch.lives, watch.lives.delete(key("w0")), watch.now)
    assert names(watch.run(1.5)) == ["w0", "w0"]
