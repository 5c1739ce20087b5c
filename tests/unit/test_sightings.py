"""What a router saw at a moment, from what it reported around it."""

from datetime import timedelta

import pytest

from controlplane.playback import RouterUnseenError, sighting
from controlplane.playback.sightings import said_at
from controlplane.presence import KeptReport, Presence, RouterReport
from tests.support.fleet_builder import START

EPOCH = "log-a.1.1@0"


def after(seconds):
    return START + timedelta(seconds=seconds)


def kept(stored_s, reason="regular", *, made_s=None, clock_off_s=0, ejected=(), **said):
    """A report stored at that second; made then, too, unless ``made_s`` says so."""
    usual = {"name": "r1", "epoch": EPOCH, "revision": 10, "digest": "d" * 32}
    usual |= {"source": "live", "stale_for_s": 0.5}
    made_s = stored_s if made_s is None else made_s
    return KeptReport(
        after(stored_s),
        RouterReport(
            presence=Presence(**{**usual, **said}),
            at=after(made_s + clock_off_s),
            ejected=tuple(name for name, _ in ejected),
            reason=reason,
            ejected_for_s=tuple(left_s for _, left_s in ejected),
        ),
    )


def seconds(reports):
    return [(time - START).total_seconds() for time in said_at(reports)]


def test_the_last_report_before_a_moment_tells():
    reports = [kept(0, revision=1), kept(10, revision=2), kept(20, revision=3)]
    found = sighting(reports, after(15))
    assert found.said.revision == 2
    assert found.report_age_s == 5
    assert found.next.presence.revision == 3
    assert sighting(reports, after(10)).said.revision == 2
    last = sighting(reports, None)
    assert (last.said.revision, last.next, last.at) == (3, None, after(20))


def test_before_its_first_report_a_router_is_not_known():
    for reports in ([kept(10)], []):
        with pytest.raises(RouterUnseenError):
            sighting(reports, after(5))


# ---- time --------------------------------------------------------------------------
@pytest.mark.parametrize("clock_off_s", [-3600, 0, 3600])
def test_times_are_the_broker_s_whatever_the_router_s_clock_says(clock_off_s):
    """S19."""
    reports = [kept(s, clock_off_s=clock_off_s) for s in (0, 10, 20)]
    assert seconds(reports) == [0, 10, 20]


@pytest.mark.parametrize("clock_off_s", [-3600, 0, 3600])
def test_what_was_held_back_was_made_when_contact_was_lost(clock_off_s):
    off = {"clock_off_s": clock_off_s}
    reports = [
        kept(0, **off),
        kept(60.0, "contact lost", made_s=4, **off),
        kept(60.1, "ejected", made_s=9, **off),
        kept(60.2, "resync: gap", **off),
        kept(70, **off),
    ]
    assert seconds(reports) == pytest.approx([0, 4, 9, 60.2, 70])


def test_a_resync_that_comes_a_little_later_tells_as_well():
    reports = [
        kept(0),
        kept(60, "contact lost", made_s=4),
        kept(65, "resync: gap"),
    ]
    assert seconds(reports) == [0, 4, 65]


def test_what_was_made_before_anybody_noticed_is_dated_back_too():
    """Nothing got through, and the connection did not break."""
    reports = [kept(0), kept(60, made_s=10), kept(60.1, "resync: gap"), kept(70)]
    assert seconds(reports) == pytest.approx([0, 10.1, 60.1, 70], abs=0.2)


def test_a_clock_that_jumps_while_reports_come_regularly_moves_none():
    """S19."""
    reports = [
        kept(0),
        kept(10),
        kept(20, clock_off_s=600),
        kept(30, clock_off_s=600),
        kept(40, clock_off_s=-600),
    ]
    assert seconds(reports) == [0, 10, 20, 30, 40]


def test_contact_that_is_lost_and_told_at_once_is_told_when_it_is_stored():
    assert seconds([kept(0), kept(5, "contact lost")]) == [0, 5]
    later = [kept(0), kept(5, "contact lost"), kept(300, "resync: gap")]
    assert seconds(later) == [0, 5, 300]


def test_a_clock_that_jumped_meanwhile_puts_nothing_before_what_was_said_before():
    reports = [
        kept(50),
        kept(60, "contact lost", made_s=55, clock_off_s=-600),
        kept(61, "resync: gap"),
    ]
    assert seconds(reports) == [50, 50, 61]
    reports = [
        kept(50),
        kept(60, "contact lost", made_s=55, clock_off_s=600),
        kept(61, "resync: gap"),
    ]
    assert seconds(reports) == [50, 60, 61]


# ---- staleness ---------------------------------------------------------------------
def test_the_next_report_tells_how_old_the_picture_was():
    reports = [kept(0), kept(10, stale_for_s=8.0)]
    found = sighting(reports, after(6))
    assert found.stale == (4.0, True)


def test_a_picture_that_was_renewed_later_was_no_older_than_that():
    reports = [kept(0), kept(10, stale_for_s=0.5)]
    assert sighting(reports, after(6)).stale == (6.5, False)


def test_without_contact_a_picture_only_gets_older():
    reports = [kept(0), kept(3, "contact lost", stale_for_s=1.0)]
    found = sighting(reports, after(63))
    assert found.stale == (61.0, True)
    assert found.out_of_contact


def test_who_heard_nothing_for_long_stayed_where_it_was_until_it_resynced():
    reports = [kept(0), kept(10, stale_for_s=9.0), kept(60, "resync: gap", revision=99)]
    found = sighting(reports, after(40))
    assert found.was_cut_off
    assert found.stale == (39.0, True)
    assert found.revision_at_most(99) == 10
    assert sighting(reports[:2], after(15)).was_cut_off
    followed = [*reports[:2], kept(20, revision=99)]
    assert not sighting(followed, after(15)).was_cut_off


def test_silence_is_not_a_goodbye():
    assert sighting([kept(0)], after(60)).silent
    assert not sighting([kept(0)], after(15)).silent
    gone = sighting([kept(0), kept(5, "stopped")], after(60))
    assert gone.stopped
    assert not gone.silent


# ---- position ----------------------------------------------------------------------
@pytest.mark.parametrize(
    ("following", "log_then", "most"),
    [
        ({}, 14, 14),
        ({"revision": 12}, 14, 12),
        ({"revision": 30}, 14, 14),
        ({"revision": 3, "epoch": "log-a.1.2@0"}, 14, 14),
        ({}, 8, 10),
    ],
)
def test_between_two_reports_it_was_somewhere_between_them(following, log_then, most):
    reports = [kept(0)] + ([kept(10, **following)] if following else [])
    found = sighting(reports, after(5))
    assert found.said.revision == 10
    assert found.revision_at_most(log_then) == most


@pytest.mark.parametrize("reason", ["contact lost", "stopped"])
def test_without_contact_it_stayed_where_it_was(reason):
    reports = [kept(0, reason), kept(60, "resync: gap", revision=99)]
    assert sighting(reports, after(30)).revision_at_most(99) == 10


# ---- ejections ---------------------------------------------------------------------
def test_an_ejection_ends_by_itself_between_two_reports():
    reports = [kept(0, "ejected", ejected=[("prod/a", 5.0), ("prod/b", 30.0)])]
    assert sighting(reports, after(4)).ejected == ("prod/a", "prod/b")
    found = sighting(reports, after(6))
    assert found.ejected == ("prod/b",)
    assert found.has_ejected(("prod", "b"))
    assert not found.has_ejected(("prod", "a"))


def test_a_report_of_an_older_version_does_not_say_for_how_long():
    report = kept(0, "ejected", ejected=[("prod/a", 5.0)])
    old = RouterReport(
        presence=report.report.presence, at=START, ejected=("prod/a",), reason="ejected"
    )
    assert sighting([KeptReport(START, old)], after(9)).ejected == ("prod/a",)


def test_a_sighting_is_one_document():
    document = sighting([kept(0), kept(10)], after(5)).document()
    assert document["router"] == "r1"
    assert document["revision"] == document["next_revision"] == 10
    assert (document["stale_for_s"], document["stale_is_exact"]) == (5.5, False)
