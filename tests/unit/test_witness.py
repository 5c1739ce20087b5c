"""Why a router still picked a worker: what it had, and what the log already said."""

from datetime import timedelta

import pytest

from controlplane.playback import (
    EventNotFoundError,
    RouterElsewhereError,
    recall,
    sighting,
    sighting_in,
    time_of,
    why_picked,
)
from controlplane.presence import KeptReport, Presence, RouterReport
from events import WorkerExpired
from projections import FoldState, fold_all
from tests.support.fleet_builder import (
    START,
    draining,
    expired,
    given,
    ready,
    registered,
    silent_for,
)
from tests.support.histories import StoryHistory

STORY = given(  # a record a second
    registered("a"),  # 1, at 0 s
    registered("b"),  # 2, at 1 s
    silent_for(s=18),
    expired("a"),  # 3, at 20 s
    registered("a"),  # 4, at 21 s
    draining("a"),  # 5, at 22 s
    ready("a"),  # 6, at 23 s
)


def after(seconds):
    return START + timedelta(seconds=seconds)


def history():
    return StoryHistory(STORY, now=after(60))


def kept(stored_s, revision, reason="regular", *, ejected=(), log="story", **said):
    digest = fold_all(FoldState(), STORY[:revision]).fleet_state.digest
    usual = {"name": "r1", "epoch": f"{log}.1.1@0", "revision": revision}
    usual |= {"digest": digest, "source": "live", "stale_for_s": 0.2}
    report = RouterReport(
        presence=Presence(**{**usual, **said}),
        at=after(stored_s),
        ejected=tuple(ejected),
        reason=reason,
        ejected_for_s=(5.0,) * len(ejected),
    )
    return KeptReport(after(stored_s), report)


async def why(reports, at_s, worker="prod/a", following=None):
    found = await sighting_in(history(), reports, after(at_s))
    return await why_picked(history(), worker, found, following)


@pytest.mark.parametrize(
    ("reports", "at_s", "picked"),
    [
        ([kept(5, 2)], 10, "yes"),
        ([kept(5, 2, "contact lost")], 20.5, "yes"),
        ([kept(5, 2), kept(25, 6)], 20.5, "maybe"),
        ([kept(15, 2), kept(20.2, 3)], 20.5, "no"),
        ([kept(22.5, 5)], 22.7, "no"),
        ([kept(5, 2, "stopped")], 10, "no"),
        ([kept(5, 0, epoch=None, source="none")], 10, "maybe"),
        ([kept(8, 2, "ejected", ejected=["prod/a"])], 10, "no"),
        ([kept(2, 2, "ejected", ejected=["prod/a"])], 10, "yes"),
        ([kept(8, 2, "ejected", ejected=["prod/b"])], 10, "yes"),
    ],
)
async def test_what_a_router_would_do_follows_from_what_it_had(reports, at_s, picked):
    found = await why(reports, at_s)
    assert found.picked == picked
    document = found.document()
    assert document["would_pick"] == picked
    assert document["router"]["router"] == "r1"


async def test_each_side_is_shown_as_it_stood():
    """It lost contact before the worker expired, and knew nothing of it."""
    found = await why([kept(5, 2, "contact lost"), kept(40, 6)], 20.5)
    assert (found.had.revision, found.had.state) == (2, "routable")
    assert (found.at_most.revision, found.at_most.state) == (2, "routable")
    assert (found.log.revision, found.log.state, found.log.since) == (3, "gone", 3)


async def test_between_two_reports_it_got_no_further_than_the_log():
    found = await why([kept(5, 2), kept(40, 6)], 21.5)
    assert (found.had.revision, found.at_most.revision) == (2, 4)
    assert found.log.revision == 4


async def test_a_router_was_never_behind_what_it_had_reported():
    """Also where the broker's clock stepped back between two records."""
    found = await why([kept(5, 4)], 20.5)
    assert (found.had.revision, found.at_most.revision) == (4, 4)
    assert found.log.revision == 3


async def test_nobody_knew_of_a_death_that_the_lease_had_not_shown_yet():
    """The expiry comes later and says since when the worker was silent."""
    record = STORY[2]
    assert isinstance(record.event, WorkerExpired)
    found = await why([kept(5, 2)], 19, following=record)
    assert found.picked == "yes"
    assert found.log.state == "routable"
    silent_s = record.event.silent_for_s
    assert found.silent_since == record.recorded_at - timedelta(seconds=silent_s)
    early = await why([kept(1.5, 2)], 2, following=record)
    assert early.silent_since is None, "it still beat then"
    assert (await why([kept(5, 2)], 19)).silent_since is None


async def test_a_router_s_fleet_is_that_of_its_revision():
    found = await sighting_in(history(), [kept(5, 2), kept(40, 6)], after(20.5))
    seen = await recall(history(), found)
    assert seen.agrees
    assert (seen.had.revision, seen.log.revision, seen.lag) == (2, 3, 1)
    assert [one.name for one in seen.difference.removed] == ["prod/a"]
    assert seen.difference.removed[0].revision == 3
    document = seen.document()
    assert document["fleet"]["revision"] == 2
    assert document["revision_at_most"] == 3
    assert document["log"]["differences"]["removed"][0]["worker"] == "prod/a"


async def test_a_router_whose_digest_is_wrong_is_not_believed():
    found = sighting([kept(5, 2, digest="f" * 32)], after(10))
    assert not (await recall(history(), found)).agrees


async def test_a_router_without_a_view_had_nothing():
    found = sighting([kept(5, 0, epoch=None, digest="")], after(10))
    seen = await recall(history(), found)
    assert seen.agrees
    assert len(seen.had.fleet.models) == 0
    assert seen.lag == 2


async def test_a_router_of_another_log_or_of_a_lost_part_is_told_apart():
    with pytest.raises(RouterElsewhereError, match="followed log other"):
        await sighting_in(history(), [kept(5, 2, log="other")], after(10))
    with pytest.raises(RouterElsewhereError, match=r"revision 99.*ends at 6"):
        await sighting_in(history(), [kept(5, 99)], after(10))


@pytest.mark.parametrize(
    ("moment", "at_s"),
    [
        (3, 20),
        (STORY[2].event.event_id, 20),
        (after(7.5), 7.5),
        (timedelta(seconds=-10), 50),
        (None, 60),
    ],
)
async def test_any_moment_is_a_time(moment, at_s):
    assert await time_of(history(), moment) == after(at_s)


async def test_a_moment_that_is_not_there_is_no_time():
    with pytest.raises(EventNotFoundError):
        await time_of(history(), "00000000-0000-0000-0000-000000000000")
