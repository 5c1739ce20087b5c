"""A pick to the dead is one made after the worker should have been out."""

import pytest

from controlplane.demo.picks import (
    Answered,
    CutOff,
    Death,
    GivenUp,
    Notebook,
    Picked,
    PickFailed,
    Unreachable,
    judge_notes,
    picks_to_dead,
    read_notes,
)

DEATH = Death(at_s=100.0, incarnation="life-1", lease_ttl_s=5.0)


def picked(at_s: float, incarnation: str = "life-1") -> Picked:
    return Picked(at_s=at_s, model="m", worker="prod/w1", incarnation=incarnation)


@pytest.mark.parametrize(
    ("at_s", "count"),
    [(99.0, 0), (100.1, 0), (106.9, 0), (107.0, 0), (107.001, 1), (200.0, 1)],
)
def test_a_pick_counts_from_the_lease_and_two_seconds_on(at_s, count):
    assert picks_to_dead([picked(at_s)], [DEATH]) == count


def test_each_pick_to_the_dead_counts():
    assert picks_to_dead([picked(108.0), picked(99.0), picked(109.0)], [DEATH]) == 2


def test_the_next_life_of_the_same_worker_is_not_dead():
    assert picks_to_dead([picked(150.0, "life-2")], [DEATH]) == 0


def test_each_death_has_its_own_time():
    later = Death(at_s=120.0, incarnation="life-2", lease_ttl_s=10.0)
    notes = [picked(110.0), picked(110.0, "life-2"), picked(132.5, "life-2")]
    assert picks_to_dead(notes, [DEATH, later]) == 2


def test_without_a_death_nobody_is_dead():
    assert picks_to_dead([picked(1e9)], []) == 0


def test_notes_come_back_and_are_counted(tmp_path):
    notes = [
        picked(1.0),
        Unreachable(at_s=1.1, model="m", worker="prod/w1", reason="refused"),
        picked(108.0),
        Answered(at_s=108.1, model="m"),
        PickFailed(at_s=2.0, model="m", reason="nobody"),
        GivenUp(at_s=3.0, model="m"),
        CutOff(at_s=3.1, model="m"),
    ]
    path = tmp_path / "notes"
    for half in (notes[:3], notes[3:]):  # a router that was killed goes on in its file
        book = Notebook(path)
        for note in half:
            book.write(note)
        book.close()
    assert read_notes(path) == notes
    traffic = judge_notes(notes, [DEATH])
    assert (traffic.picks, traffic.answered, traffic.retried) == (2, 1, 1)
    assert (traffic.failed_picks, traffic.picks_to_dead) == (1, 1)
    assert (traffic.failed_requests, traffic.cut_off) == (1, 1)


def test_a_line_that_a_kill_cut_off_is_left_out(tmp_path):
    path = tmp_path / "notes"
    book = Notebook(path)
    book.write(picked(1.0))
    book.close()
    with path.open("ab") as file:
        file.write(b'{"type":"picked","at_s":2.')
    assert read_notes(path) == [picked(1.0)]


def test_no_file_is_no_notes(tmp_path):
    assert read_notes(tmp_path / "notes") == []
