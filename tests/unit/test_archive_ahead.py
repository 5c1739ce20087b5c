"""While an item is used the next one is made, in a thread, and no more than that."""

import threading

import pytest

from controlplane.archive.ahead import read_ahead

DEADLINE_S = 10.0


class Source:
    """Numbers, each made in whatever thread asks for it."""

    def __init__(self, end=5, fails_at=None):
        self.closed = False
        self._made = [threading.Event() for _ in range(end)]
        self._threads = set()
        self._end, self._fails_at = end, fails_at

    def items(self):
        try:
            for number in range(self._end):
                self._threads.add(threading.current_thread())
                self._made[number].set()
                if number == self._fails_at:
                    message = "torn"
                    raise ValueError(message)
                yield number
        finally:
            self.closed = True

    def is_made(self, number):
        return self._made[number].wait(DEADLINE_S)

    @property
    def elsewhere(self):
        return threading.current_thread() not in self._threads


def test_all_come_in_their_order_from_another_thread():
    source = Source()
    assert list(read_ahead(source.items())) == [0, 1, 2, 3, 4]
    assert source.closed
    assert source.elsewhere


def test_the_next_is_made_while_one_is_used():
    source = Source()
    ahead = read_ahead(source.items())
    assert next(ahead) == 0
    assert source.is_made(1)
    ahead.close()
    assert not source._made[2].is_set()
    assert source.closed


def test_an_error_comes_in_its_turn():
    source = Source(fails_at=2)
    ahead = read_ahead(source.items())
    assert [next(ahead), next(ahead)] == [0, 1]
    with pytest.raises(ValueError, match="torn"):
        next(ahead)
    assert source.closed
