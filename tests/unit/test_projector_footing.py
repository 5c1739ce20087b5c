"""The view stream is known by what it holds: a tail that grew again is another one."""

import pytest

from controlplane.projector.effects import LookAtView, Publish
from controlplane.projector.footing import Footing
from tests.support.fleet_builder import draining, given, ready, registered
from tests.support.projecting import Bench, ViewList, settled

STORY = given(registered("w1"), draining("w1"), ready("w1"), draining("w1"))
GREW = "the view stream lost its tail and grew another"


@pytest.mark.parametrize(
    ("last", "payload", "lost"),
    [
        (5, b"five", None),
        (9, b"five", None),
        (4, None, "the view stream lost its tail"),
        (5, b"other", GREW),
        (9, b"other", GREW),
        (9, None, None),
    ],
)
def test_length_and_content_tell_what_is_lost(last, payload, lost):
    footing = Footing(5, b"five")
    assert footing.look(5) == [LookAtView(5)]
    assert footing.what_is_lost(last, payload) == lost


def test_an_end_that_nobody_has_read_is_known_by_its_length_alone():
    footing = Footing(5, None)
    assert footing.look(5) == [LookAtView(None)]
    assert footing.what_is_lost(5, None) is None
    footing.stand_on(6, b"six")
    assert footing.look(6) == [LookAtView(6)]


def test_one_looks_once_at_a_time_and_again_when_contact_went_meanwhile():
    footing = Footing(5, b"five")
    assert footing.look(5)
    footing.doubted = True
    assert footing.look(5) == []
    assert footing.what_is_lost(5, b"five") is None
    assert not footing.sure
    assert footing.look(5) == [LookAtView(5)]
    assert not footing.doubted
    assert footing.looking


def test_in_doubt_what_was_known_before_is_what_tells():
    footing = Footing(5, b"five")
    footing.doubted = True
    footing.stand_on(6, b"of another tail")
    assert footing.look(6) == [LookAtView(5)]
    assert footing.what_is_lost(6, b"other") == GREW


def two_leaders():
    """An old leader that is level, and another one that knows nothing of it yet."""
    records, view = [], ViewList()
    old = settled(records, view)
    records += STORY[:2]
    old.settle()
    return old, records, view


def lose_and_grow(records, view):
    """The view stream loses all; a new projector fills it to the same length."""
    last = view.last
    view.payloads.clear()
    new = settled(records, view, name="b")
    while view.last < last:
        view.payloads.append(b"foreign")
    return new


def test_nothing_is_published_after_lost_contact_before_a_look():
    old, records, view = two_leaders()
    lose_and_grow(records, view)
    old.do(old.core.contact_lost())
    records.append(STORY[2])
    old.read_log()
    assert [type(effect) for effect in old.asked] == [LookAtView]
    old.answer()
    assert old.rebuilds == [GREW]
    old.settle()
    assert old.core.line.epoch.revision >= 2
    assert old.core.line.level


def test_without_a_loss_one_goes_on_as_before():
    old, records, view = two_leaders()
    old.do(old.core.contact_lost())
    records.append(STORY[2])
    old.settle()
    assert old.rebuilds == []
    assert view.last == 4
    assert old.core.line.level


def test_a_follower_looks_too_and_audits_nothing_before():
    _old, records, view = two_leaders()
    follower = Bench(records, view, name="c")
    follower.settle()
    lose_and_grow(records, view)
    view.payloads.append(b"foreign")
    follower.do(follower.core.contact_lost())
    follower.read_view()
    assert follower.alarms == []
    follower.answer()
    assert follower.rebuilds == [GREW]


@pytest.mark.parametrize("stored", [True, False])
def test_contact_lost_while_something_is_on_its_way_is_looked_into_after(stored):
    old, records, view = two_leaders()
    records.append(STORY[2])
    old.read_log()
    assert old.core.line.doubted is False
    old.do(old.core.contact_lost())
    assert old.core.line.doubted
    records.append(STORY[3])
    old.read_log()
    assert [type(effect) for effect in old.asked] == [Publish]
    old.answer(lose_answer=not stored)
    assert [type(effect) for effect in old.asked] == [LookAtView]
    assert old.core.line.doubted is False
    old.settle()
    assert view.last == 5
    assert old.core.line.level


def test_contact_lost_while_looking_is_looked_into_again():
    old, records, view = two_leaders()
    old.win()
    old.do(old.core.contact_lost())
    lose_and_grow(records, view)
    view.payloads[-1] = view.payloads[-1] + b" "
    late = old.take(LookAtView)
    payload = old.core.line._footing._payload
    old.do(old.core.view_ends(1, view.last, old.now, payload))
    assert late is not None
    assert [type(effect) for effect in old.asked] == [LookAtView]
    old.answer()
    assert old.rebuilds == [GREW]
