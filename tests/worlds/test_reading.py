"""Routers are slow, cut off, or robbed of their consumers; replicas agree."""

from tests.worlds import reading


def test_a_slow_reader_ends_where_a_fast_one_does(world):
    world.run(reading.slow_reader)


def test_routers_go_on_when_their_consumers_are_killed(world):
    world.run(reading.consumers_are_killed)


def test_silence_is_called_stale_and_quiet_is_not(world):
    world.run(reading.silence)


def test_a_resync_is_a_diff(world):
    world.run(reading.resync_is_a_diff)


def test_replicas_agree(world):
    world.run(reading.replicas_agree)


def test_nothing_is_lost_between_catching_up_and_live(world):
    world.run(reading.seam_between_catching_up_and_live)
