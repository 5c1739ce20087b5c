"""The oracle notices a router that steps back, and lets it leave what is lost."""

import msgspec
import pytest

from tests.simulation.forward import Forward
from tests.simulation.telling import (
    DELTAS,
    NEW,
    OLD,
    epoch,
    replica_of,
    told_all,
    violation,
)

LAST = len(DELTAS)


def at(ordinal, **fields):
    replica = replica_of(OLD, epoch(), ordinals=ordinal)
    return msgspec.structs.replace(replica, **fields)


@pytest.fixture
def told():
    return told_all()


@pytest.fixture
def forward(told):
    return Forward(told.histories, told.views)


def cut(told, forward, last):
    """The view stream loses all after ``last``."""
    told.views.view_truncated(last)
    forward.cut(last)


def test_a_router_goes_forward_place_by_place(forward):
    for ordinal in (0, 1, LAST, LAST):
        forward.moved("r1", at(ordinal))
    assert forward.place_of("r1").position.ordinal == LAST
    assert forward.place_of("r2") is None


def test_another_life_may_begin_lower_and_only_it(forward):
    forward.moved("r1", at(LAST))
    forward.moved("r2", at(LAST))
    forward.began("r1")
    forward.moved("r1", at(1))
    violation("backwards", forward.moved, "r2", at(1))


def test_an_earlier_place_is_a_step_back(forward):
    forward.moved("r1", at(LAST))
    violation("backwards", forward.moved, "r1", at(LAST - 1))


def test_a_lower_revision_at_the_same_place_is_a_step_back(forward):
    forward.moved("r1", at(1, revision=2))
    violation("backwards", forward.moved, "r1", at(1))


def test_a_lost_tail_that_comes_again_is_no_reason_to_step_back(told, forward):
    forward.moved("r1", at(LAST))
    cut(told, forward, 2)
    violation("backwards", forward.moved, "r1", at(1))


def test_what_log_and_view_both_lost_may_be_left(told, forward):
    forward.moved("r1", at(LAST))
    told.forks(3)
    cut(told, forward, 3)
    forward.moved("r1", at(1))


def test_a_place_is_not_lost_with_a_revision_that_a_head_told(told, forward):
    last = at(LAST)
    forward.moved("r1", msgspec.structs.replace(last, revision=len(OLD) + 1))
    cut(told, forward, LAST)
    violation("backwards", forward.moved, "r1", at(1))
    forward.began("r1")
    forward.moved("r1", msgspec.structs.replace(last, revision=len(OLD) + 1))
    forward.moved("r1", last)


def test_what_the_view_still_holds_is_not_left_though_the_log_lost_it(told, forward):
    forward.moved("r1", at(LAST))
    told.forks(3)
    violation("backwards", forward.moved, "r1", at(1))


def test_what_another_history_shares_is_not_lost(told, forward):
    forward.moved("r1", at(2))
    told.forks(4, NEW)
    cut(told, forward, 2)
    violation("backwards", forward.moved, "r1", at(1))


def test_an_epoch_before_ones_own_is_a_step_back_while_the_stream_holds_both(forward):
    later = replica_of(OLD, epoch(2, 3), base=9)
    forward.epoch_began(1, str(epoch()))
    forward.epoch_began(9, str(epoch(2, 3)))
    forward.moved("r1", later)
    violation("backwards", forward.moved, "r1", at(LAST))
    forward.began("r1")
    forward.moved("r1", later)
    forward.cut(5)
    forward.moved("r1", at(LAST))
