"""The stage by itself: its verbs do what they say, and it fails when it should."""

import pytest

from tests.worlds import staging


def test_verbs_do_what_they_say(world):
    world.run(staging.verbs)


def test_an_absent_broker_is_no_answer_yet(world):
    world.run(staging.absent_broker, connect_timeout_s=0.2)


def test_what_never_comes_about_fails_and_names_the_last_answer(world, capsys):
    with pytest.raises(AssertionError, match=r"the last answer was \[\]"):
        world.run(staging.never_comes_about)
    assert "seed 7" in capsys.readouterr().out


def test_who_asks_a_process_that_is_killed_is_told(world):
    world.run(staging.killed_while_asked)


def test_a_store_that_goes_back_holds_what_it_held(world):
    world.run(staging.store_goes_back)
