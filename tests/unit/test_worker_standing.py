"""Whose a worker's subject is, by its records."""

from controlplane.worker.standing import Over, Standing, Superseded, Vacant, judge
from tests.support.fleet_builder import expired, given, incarnation, registered

FIRST, SECOND = incarnation("w1", 1), incarnation("w1", 2)


def verdict(*steps, newest=SECOND, ours=(FIRST, SECOND)):
    return judge(given(*steps), ours=frozenset(ours), newest=newest, before=None)


def test_the_end_of_the_newest_life_is_its_end():
    assert verdict(registered("w1"), expired("w1"), newest=FIRST) == Over()
    both = (registered("w1"), expired("w1"), registered("w1", life=2))
    assert verdict(*both, expired("w1", life=2)) == Over()
    assert verdict(registered("w1"), expired("w1", life=2)).incarnation == FIRST


def test_the_end_of_an_earlier_life_is_not_the_newest_one_s():
    """Its registration may be lost with the log's tail, and its claims not."""
    assert verdict(registered("w1"), expired("w1")) == Vacant()
    before = (registered("w1"), expired("w1"), expired("w1", life=2))
    assert verdict(*before) == Over()


def test_a_life_that_is_there_stands_and_another_s_supersedes():
    found = verdict(registered("w1"), registered("w1", life=2))
    assert isinstance(found, Standing)
    assert found.incarnation == SECOND
    taken = verdict(
        registered("w1"), registered("w1", life=2), newest=FIRST, ours=(FIRST,)
    )
    assert taken == Superseded(SECOND)
