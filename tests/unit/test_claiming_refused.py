"""What `PortsExhaustedError` says: the numbers, and what to do next."""

import pytest

from controlplane import ControlPlaneError, PortRange, PortsExhaustedError

NUMBERS = {"wanted": 8, "free": 20, "largest_hole": 3, "resting": 0}


def refusal(**other):
    return PortsExhaustedError(**{**NUMBERS, **other})


def test_the_numbers_are_attributes_and_in_the_text():
    error = refusal(resting=4)
    assert isinstance(error, ControlPlaneError)
    assert {name: getattr(error, name) for name in NUMBERS} == {**NUMBERS, "resting": 4}
    assert "no block of 8 ports: 20 free, largest hole 3, 4 resting" in str(error)


def test_it_says_where_and_what_for():
    within = PortRange(20000, 20399)
    error = refusal(host="10.0.0.1", within=within, reason="nixl")
    start = "no block of 8 ports for nixl in 20000-20399 of host 10.0.0.1: "
    assert str(error).startswith(start)
    assert (error.host, error.within, error.reason) == ("10.0.0.1", within, "nixl")
    assert str(refusal(wanted=1, free=0, largest_hole=0)).startswith("no port: ")


@pytest.mark.parametrize(
    ("numbers", "fragmented"),
    [
        ({}, True),
        ({"free": 8}, True),
        ({"free": 7}, False),
        ({"free": 0, "largest_hole": 0}, False),
    ],
)
def test_enough_ports_in_pieces_are_called_fragmented(numbers, fragmented):
    error = refusal(**numbers)
    assert error.fragmented == fragmented
    assert ("fragmented" in str(error)) == fragmented


def test_the_next_step_is_to_wait_only_if_something_rests():
    assert "wait for those that rest" in str(refusal(resting=1))
    assert "release what nobody needs" in str(refusal())


def test_ports_in_use_outside_the_log_are_no_matter_of_releasing():
    within = PortRange(20000, 20007)
    error = refusal(free=0, largest_hole=0, within=within, busy=8)
    assert error.busy == 8
    assert "0 resting, 8 in use outside the log; end the programs" in str(error)
    assert "release" not in str(error)
    error = refusal(free=0, largest_hole=0, within=within, busy=7)
    assert "end the programs that sit there" in str(error)
    assert "release what nobody needs, or widen" in str(error), "one is held"


def test_what_cannot_be_read_is_to_be_looked_at():
    within = PortRange(20000, 20007)
    error = refusal(free=0, largest_hole=0, within=within, unreadable=8)
    assert (error.busy, error.unreadable) == (0, 8)
    assert "8 unreadable; look at what cannot be read" in str(error)
    assert "release" not in str(error)


def test_what_rests_is_waited_for_whatever_else_is_there():
    error = refusal(resting=1, busy=2, unreadable=3)
    assert str(error).endswith("or widen the range")
    steps = ("wait for those that rest", "end the programs", "look at what")
    places = [str(error).index(step) for step in steps]
    assert places == sorted(places)
