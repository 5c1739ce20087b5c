"""What load reports mean: who is fuller, who is busy, and how a report fades."""

import pytest

from events import Capacity
from projections import Load, believed_for_s, is_busy, pressure, slots_of
from projections.entities import Thresholds
from projections.load import SLOTS


def full(slots=100, **said):
    return pressure(Load(**said), slots)[0]


def limits(**said):
    nothing = {"busy_kv_usage": None, "busy_running": None, "busy_waiting": None}
    return Thresholds(model="llama", reason="", by="", **{**nothing, **said})


def test_the_scarcer_of_cache_and_slots_says_how_full_a_worker_is():
    assert full(kv_usage=0.4, running=20) == 0.4
    assert full(kv_usage=0.1, running=20) == 0.2
    assert full(kv_usage=0.5) == 0.5
    assert full(running=50) == 0.5


def test_each_request_that_waits_adds_what_a_running_one_takes_up():
    """Long contexts: 20 requests fill 95 %, and 30 wait for as much again and more."""
    queued = full(kv_usage=0.95, running=20, waiting=30)
    assert queued == pytest.approx(0.95 + 30 * 0.0475)
    assert queued > full(kv_usage=0.97, running=20)


def test_one_more_request_takes_up_a_slot_at_least():
    assert pressure(Load(kv_usage=0.0, running=10), 100)[1] == 1 / 100
    assert pressure(Load(kv_usage=0.5, running=10), 100)[1] == 0.05
    assert pressure(Load(kv_usage=0.3), 100)[1] == 1 / 100
    assert pressure(Load(waiting=2), 100) == (2 / 100, 1 / 100)


@pytest.mark.parametrize(
    ("capacity", "slots"),
    [
        (Capacity(), 256),
        (Capacity(max_num_seqs=64), 64),
        (Capacity(max_num_seqs=64, data_parallel_size=4), 256),
        (Capacity(data_parallel_size=2), 512),
        (Capacity(max_num_seqs=0), 256),
    ],
)
def test_slots_come_from_the_capacity_that_a_worker_states(capacity, slots):
    assert slots_of(capacity) == slots


@pytest.mark.parametrize(
    ("said", "limit", "busy"),
    [
        ({"kv_usage": 0.9}, {"busy_kv_usage": 0.9}, True),
        ({"kv_usage": 0.89}, {"busy_kv_usage": 0.9}, False),
        ({"running": 8}, {"busy_running": 8}, True),
        ({"running": 8}, {"busy_waiting": 1}, False),
        ({"waiting": 1}, {"busy_waiting": 1, "busy_kv_usage": 0.9}, True),
        ({"waiting": 0}, {"busy_waiting": 0}, True),
        ({"kv_usage": 1.0, "running": 900, "waiting": 900}, {}, False),
    ],
)
def test_a_worker_is_busy_from_any_limit_on(said, limit, busy):
    assert is_busy(Load(**said), limits(**limit)) is busy


def test_a_report_is_believed_while_fresh_and_then_ever_more_seldom():
    assert believed_for_s(0.999999, 5, 15) == pytest.approx(5, abs=1e-4)
    assert believed_for_s(0.5, 5, 15) == 10
    assert believed_for_s(0.0, 5, 15) == 15
    assert believed_for_s(0.5, 5, 5) == believed_for_s(0.5, 5, 3) == 5


def test_a_load_that_says_nothing_knows_it():
    assert not Load().says_something
    assert Load(waiting=0).says_something


@pytest.mark.parametrize("number", [-1, 0, None])
def test_a_number_that_cannot_be_says_nothing_of_slots(number):
    """An old log may have one; the worker must not look empty for ever."""
    assert slots_of(Capacity(max_num_seqs=number)) == SLOTS
    assert slots_of(Capacity(max_num_seqs=8, data_parallel_size=number)) == 8
