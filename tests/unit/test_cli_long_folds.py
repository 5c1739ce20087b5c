"""While a long history is folded the interpreter is set for that, and only then."""

import gc
import sys

import pytest

from controlplane.cli.long_folds import SWITCH_S, THRESHOLDS, in_a_long_fold


def _fails_amid():
    with in_a_long_fold():
        assert gc.get_threshold() == THRESHOLDS
        assert gc.isenabled()
        assert sys.getswitchinterval() == pytest.approx(SWITCH_S)
        raise KeyError


def test_all_is_as_it_was_after():
    before, switch_s = gc.get_threshold(), sys.getswitchinterval()
    assert before != THRESHOLDS
    with pytest.raises(KeyError):
        _fails_amid()
    assert gc.get_threshold() == before
    assert gc.get_freeze_count() == 0
    assert sys.getswitchinterval() == switch_s
