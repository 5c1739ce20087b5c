"""How a demo is judged: by what differs, what failed, and how long it took."""

import pytest

from controlplane.demo import Standing, Traffic
from controlplane.demo.outcome import SECONDS_MAX, judge

WHO = ("projector-a", "projector-b", "router-a", "router-b", "replay")
AGREED = tuple(Standing(who, 28, "d1") for who in WHO)
GOOD = Traffic(picks=100, answered=99, retried=1)


def with_standing(who: str, **fields) -> list[Standing]:
    changed = {"who": who, "revision": 28, "digest": "d1", **fields}
    return [Standing(**changed) if row.who == who else row for row in AGREED]


def test_a_demo_in_which_all_agree_is_ok_and_says_where():
    result = judge(standings=AGREED, traffic=GOOD, seconds=14.236, leader="projector-b")
    assert result.ok
    assert result.document() == {
        "ok": True,
        "digests": dict.fromkeys(("projector", "router-a", "router-b", "replay"), "d1"),
        "revision": 28,
        "picks": 100,
        "failed_picks": 0,
        "picks_to_dead": 0,
        "seconds": 14.24,
    }


@pytest.mark.parametrize("who", WHO[:-1])
@pytest.mark.parametrize("fields", [{"digest": "d2"}, {"revision": 27}])
def test_whoever_differs_is_named(who, fields):
    result = judge(standings=with_standing(who, **fields), traffic=GOOD, seconds=14.0)
    assert not result.ok
    assert result.document()["ok"] is False
    (problem,) = result.problems
    assert problem.startswith(who)
    assert str(next(iter(fields.values()))) in problem


def test_a_replay_that_differs_from_all_is_not_ok():
    standings = with_standing("replay", digest="d2")
    result = judge(standings=standings, traffic=GOOD, seconds=14.0)
    assert len(result.problems) == len(WHO) - 1


def test_the_document_shows_the_leader_as_the_projector():
    standings = with_standing("projector-b", digest="d2")
    result = judge(standings=standings, traffic=GOOD, seconds=1.0, leader="projector-b")
    assert result.document()["digests"]["projector"] == "d2"


@pytest.mark.parametrize(
    "traffic",
    [
        Traffic(picks=5, failed_picks=1),
        Traffic(picks=5, picks_to_dead=1),
        Traffic(picks=5, failed_requests=1),
        Traffic(),
    ],
)
def test_traffic_that_went_wrong_is_not_ok(traffic):
    result = judge(standings=AGREED, traffic=traffic, seconds=14.0)
    assert len(result.problems) == 1


def test_a_demo_that_took_too_long_is_not_ok():
    assert not judge(standings=AGREED, traffic=GOOD, seconds=SECONDS_MAX + 1).ok


def test_a_demo_that_broke_off_says_why_and_nothing_besides():
    result = judge(
        standings=(), traffic=Traffic(), seconds=3.0, problems=("it broke off",)
    )
    assert result.problems == ("it broke off",)
    assert set(result.document()["digests"].values()) == {""}
