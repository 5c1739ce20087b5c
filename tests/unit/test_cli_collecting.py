"""While a history is folded the garbage collector rests, and only then."""

import gc

import pytest

from controlplane.cli.collecting import THRESHOLDS, rarely_collecting


def _fails_while_it_rests():
    with rarely_collecting():
        assert gc.get_threshold() == THRESHOLDS
        assert gc.isenabled()
        raise KeyError


def test_the_collector_rests_and_is_as_it_was_after():
    before = gc.get_threshold()
    assert before != THRESHOLDS
    with pytest.raises(KeyError):
        _fails_while_it_rests()
    assert gc.get_threshold() == before
    assert gc.get_freeze_count() == 0
