"""A walk through a log stands where it should, whichever way it came."""

import random

import pytest

from controlplane.cli.keys import Keys
from controlplane.cli.lens import CLEAR, Lens, lens_of
from controlplane.cli.step_lines import changes_of
from controlplane.cli.walker import Walker
from controlplane.errors import HistoryTruncatedError
from controlplane.playback import Walk
from events import InvalidIdentityError, Role
from projections import FoldState, evolve
from tests.golden.stories import STORIES
from tests.support.fleet_builder import (
    deregistered,
    fleet_after,
    given,
    registered,
)
from tests.support.histories import StoryHistory

UPDATE = STORIES["rolling_update"]()
LAST = len(UPDATE)
STATES = [FoldState()]
for each in UPDATE:
    STATES.append(evolve(STATES[-1], each))


@pytest.fixture(params=[1, 2, 5, 256])
def chunk(request, monkeypatch):
    monkeypatch.setattr("controlplane.playback.walk.CHUNK", request.param)
    monkeypatch.setattr("controlplane.playback.walk.CHUNKS_KEPT", 2)


async def begun(records, at=None):
    walk = Walk(StoryHistory(records))
    await walk.begin(at)
    return walk


def stands_right(walk):
    revision = walk.stop.record.revision
    assert walk.stop.record == UPDATE[revision - 1]
    assert (
        walk.stop.before.fleet_state.digest == STATES[revision - 1].fleet_state.digest
    )
    assert walk.stop.after.fleet_state.digest == STATES[revision].fleet_state.digest
    return revision


@pytest.mark.usefixtures("chunk")
async def test_each_step_is_one_record_to_the_end_and_back():
    walk = await begun(UPDATE)
    seen = [stands_right(walk)]
    while await walk.forward():
        seen.append(stands_right(walk))
    assert seen == [*range(1, LAST + 1)]
    assert stands_right(walk) == LAST, "one stays at the last"
    while await walk.back():
        seen.append(stands_right(walk))
    assert seen == [*range(1, LAST + 1), *range(LAST - 1, 0, -1)]


@pytest.mark.usefixtures("chunk")
async def test_wherever_one_comes_from_the_state_is_that_of_the_place():
    walk = await begun(UPDATE)
    chance = random.Random(7)
    for _ in range(100):
        match chance.randrange(5):
            case 0:
                wanted = chance.randint(0, LAST + 5)
                await walk.to(wanted)
                assert stands_right(walk) == max(1, min(wanted, LAST))
            case 1:
                await walk.forward(chance.randint(1, 9))
            case 2:
                await walk.back(chance.randint(1, 9))
            case 3:
                await walk.home()
                assert stands_right(walk) == 1
            case 4:
                await walk.end()
                assert stands_right(walk) == LAST
        stands_right(walk)


@pytest.mark.usefixtures("chunk")
async def test_holes_are_stepped_over_both_ways():
    """S47b."""
    kept = [UPDATE[at] for at in (0, 1, 9, 10, 20)]
    walk = await begun(kept)
    seen = [walk.stop.record.revision]
    while await walk.forward():
        seen.append(walk.stop.record.revision)
    while await walk.back():
        seen.append(walk.stop.record.revision)
    assert seen == [1, 2, 10, 11, 21, 11, 10, 2, 1]
    await walk.to(9)
    assert walk.stop.record.revision == 2


async def test_a_walk_may_begin_anywhere_and_a_log_may_be_empty():
    assert (await begun(UPDATE, 7)).stop.record.revision == 7
    assert (await begun([])).stop is None
    with pytest.raises(HistoryTruncatedError):
        await begun(UPDATE[5:])


async def test_looking_for_what_is_not_there_leaves_one_where_one_is():
    walk = await begun(UPDATE, 7)
    for back in (False, True):
        assert not await walk.find(lambda _: False, back=back)
        assert walk.stop.record.revision == 7


# ---- keys --------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("typed", "keys"),
    [
        (b"\x1b[C\x1b[D", ["right", "left"]),
        (b"\x1bOC", ["right"]),
        (b"\x1b[5~\x1b[6~", ["page up", "page down"]),
        (b"\x1b[H\x1b[F\x1b[1~\x1b[4~", ["home", "end", "home", "end"]),
        (b"q?/", ["q", "?", "/"]),
        ("größe\r".encode(), [*"größe", "enter"]),
        (b"\x7f\x03", ["backspace", "quit"]),
        (b"\x1b[1;5C", []),
        (b"\x1b[200~", []),
        (b"\x01\x02", []),
        (b"\x1bx", []),
        (b"\x1b\x1b[C", ["escape", "right"]),
        (b"\x1b[" + b"1" * 40 + b"q", [*"1" * 26, "q"]),
    ],
)
def test_keys_are_told_apart_however_they_are_cut(typed, keys):
    for size in (1, 2, 3, 100):
        reader = Keys()
        found = []
        for start in range(0, len(typed), size):
            found += reader.feed(typed[start : start + size])
        assert found == keys, size
        assert not reader.is_open


def test_an_escape_that_nothing_follows_is_the_key_itself():
    reader = Keys()
    assert reader.feed(b"\x1b") == []
    assert reader.is_open
    assert reader.close() == ["escape"]
    assert not reader.is_open
    assert reader.close() == []


# ---- what keys do ------------------------------------------------------------------
async def walked(*keys, records=UPDATE, lens=CLEAR):
    walker = Walker(await begun(records), lens)
    stays = True
    for key in keys:
        assert stays
        stays = await walker.press(key)
    lines = [line.plain for line in walker.screen(80, 24)]
    assert len(lines) == 24
    return lines, stays


async def place(*keys, **options):
    lines, _ = await walked(*keys, **options)
    return int(lines[0].split()[1])


@pytest.mark.parametrize(
    ("keys", "revision"),
    [
        ([], 1),
        (["right", "right"], 3),
        (["l", " ", "h"], 2),
        (["page down"], 21),
        (["page down", "page down"], LAST),
        (["end", "page up"], LAST - 20),
        (["end", "left", "home"], 1),
        (["G", "g"], 1),
        (["c", "c"], 6),
        (["end", "C"], 24),
        ([":", "1", "2", "3", "backspace", "enter"], 12),
        ([":", "9", "9", "enter"], LAST),
        ([":", "9", "escape"], 1),
        (["/", *"EXPIRED", "enter"], 19),
        (["/", *"w4", "enter", "n", "n", "N"], 18),
        (["?", "right", "right"], 2),
        (["down", "up", "tab"], 1),
    ],
)
async def test_keys_lead_to_a_record(keys, revision):
    assert await place(*keys) == revision


@pytest.mark.parametrize("key", ["q", "quit", "escape"])
async def test_there_are_ways_to_leave(key):
    assert not (await walked(key))[1]
    assert (await walked(":", "escape"))[1]


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        (["left"], "the first record"),
        (["end", "right"], "the last record"),
        (["end", "c"], "no record behind this one changed"),
        (["p"], "every record behind this one can be read"),
        (["P"], "every record before this one can be read"),
        (["n"], "search for what?"),
        (["/", "x", "y", "enter"], "'xy' is not in any record behind"),
        (["N"], "search for what?"),
        ([":", "x", "enter"], "'x' is no revision"),
        (["/", "a", "b"], "search: ab_"),
        (["?"], "any key: back"),
    ],
)
async def test_what_cannot_be_done_is_said(keys, said):
    lines, stays = await walked(*keys)
    assert said in lines[-1]
    assert stays


async def test_poison_is_found_and_marked():
    story = STORIES["poison"]()
    lines, _ = await walked("p", records=story)
    assert lines[1].startswith("! undecodable")
    assert lines[3].startswith("! changes nothing, undecodable")
    assert await place("p", "p", records=story) == 4
    assert await place("end", "P", records=story) == 14


async def test_an_empty_log_is_shown_as_such():
    lines, stays = await walked("right", "end", "/", "x", "enter", records=[])
    assert lines[0] == "the log has no record"
    assert stays


async def test_the_worker_that_changed_is_always_on_the_screen():
    """Also where there are more than fit, and in a terminal of any size."""
    crowd = [registered(f"w{number:03}") for number in range(200)]
    story = given(*crowd, deregistered("w100"))
    for height in (3, 5, 10, 24, 60):
        for width in (20, 60, 80, 200):
            walker = Walker(await begun(story, len(story)), CLEAR)
            lines = walker.screen(width, height)
            assert len(lines) == height
            assert all(line.cell_len <= width for line in lines)
    marked = [line for line in lines if line.plain.startswith("-  ")]
    assert len(marked) == 1
    assert "prod/w100" in marked[0].plain
    assert "gone" in marked[0].plain
    assert any("reverse" in str(span.style) for span in marked[0].spans)


# ---- the lens ----------------------------------------------------------------------
MIXED = fleet_after(
    registered("p", role=Role.PREFILL),
    registered("d", role=Role.DECODE, needs=[[Role.PREFILL]]),
    registered("d", role=Role.DECODE, needs=[[Role.PREFILL]], namespace="other"),
    registered("q", model="qwen", adapters=("sql",)),
    registered("g", model="gone"),
    deregistered("g"),
)


def shown(lens):
    return {
        f"{worker.namespace}/{worker.worker_id}": worker.routable
        for model in lens.over(MIXED).models.values()
        for worker_set in model.worker_sets.values()
        for worker in worker_set.workers.values()
    }


@pytest.mark.parametrize(
    ("namespaces", "models", "workers"),
    [
        ((), (), {"prod/p": True, "prod/d": True, "other/d": False, "prod/q": True}),
        (("other",), (), {"other/d": False}),
        ((), ("llama",), {"prod/p": True, "prod/d": True, "other/d": False}),
        (("prod",), ("llama",), {"prod/p": True, "prod/d": True}),
        ((), ("sql",), {"prod/q": True}),
        (("other", "prod"), ("qwen",), {"prod/q": True}),
        (("nobody",), (), {}),
        ((), ("gone",), {}),
    ],
)
def test_a_lens_leaves_out_and_changes_nothing(namespaces, models, workers):
    lens = lens_of(namespaces, models)
    assert shown(lens) == workers
    seen = lens.over(MIXED)
    assert (seen.digest, seen.revision) == (MIXED.digest, MIXED.revision)
    document = lens.document(MIXED)
    assert document["known_models"] == list(MIXED.known_models)
    assert document["digest"] == MIXED.digest


def test_a_lens_does_not_call_dead_what_lives_elsewhere():
    assert "qwen" not in lens_of(("other",), ()).over(MIXED).known_models
    assert "gone" in lens_of(("other",), ()).over(MIXED).known_models
    assert lens_of((), ("llama",)).over(MIXED).known_models == ("llama",)


def test_a_lens_that_no_name_can_have_is_refused():
    for wrong in ((("a.b",), ()), ((), ("*",))):
        with pytest.raises(InvalidIdentityError):
            lens_of(*wrong)


async def test_through_a_lens_only_what_it_shows_changes():
    walk = await begun(UPDATE)
    lens = Lens(frozenset({"prod-v2"}))
    found = set()
    while await walk.forward():
        found.update(change.worker.namespace for change in changes_of(walk.stop, lens))
    assert found == {"prod-v2"}
