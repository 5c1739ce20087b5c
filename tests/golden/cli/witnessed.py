"""What a router had, why it picked somebody, and a walk, as they are shown."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta

from rich.text import Text

from controlplane.cli.lens import CLEAR, Lens
from controlplane.cli.seeing_lines import testimony_lines, why_picked_lines
from controlplane.cli.step_lines import Frame, help_screen, moment_screen
from controlplane.playback import (
    Sighting,
    Testimony,
    Walk,
    WhyPicked,
    recall,
    sighting_in,
    why_picked,
)
from controlplane.presence import KeptReport, Presence, RouterReport
from events import Record
from projections import FoldState, fold_all
from tests.golden.stories import STORIES
from tests.support.fleet_builder import START
from tests.support.histories import StoryHistory

WIDTH = 80
LOG_ID = "01a22c22-d59f-77fc-8202-b8df97cee4a0"
UPDATE = STORIES["rolling_update"]()
"""Its workers w2 expires with revision 19, recorded at 38 s."""


def _history() -> StoryHistory:
    history = StoryHistory(UPDATE, now=START + timedelta(minutes=5))
    history.log_id = LOG_ID
    return history


def _kept(
    stored_s: float, revision: int, reason: str, *ejected: str, **said: object
) -> KeptReport:
    digest = fold_all(FoldState(), UPDATE[:revision]).fleet_state.digest
    usual = {"name": "router-a", "epoch": f"{LOG_ID}.1.1@0", "revision": revision}
    usual |= {"digest": digest, "source": "live", "stale_for_s": 0.4}
    report = RouterReport(
        presence=Presence(**{**usual, **said}),
        at=START + timedelta(seconds=stored_s),
        ejected=ejected,
        reason=reason,
        ejected_for_s=(30.0,) * len(ejected),
    )
    return KeptReport(START + timedelta(seconds=stored_s), report)


REGULAR = [_kept(10.25, 11, "regular"), _kept(45.5, 26, "regular")]
CUT_OFF = [_kept(16.5, 17, "contact lost"), _kept(90.0, 26, "resync: gap")]
EJECTING = [_kept(30.0, 17, "ejected", "prod/w2"), _kept(40.0, 21, "regular")]
WRONG = [_kept(36.0, 17, "regular", digest="f" * 32)]
STOPPED = [_kept(12.0, 13, "stopped")]
FRESH = [_kept(12.0, 0, "regular", epoch=None, digest="", source="none")]


def _sighting(reports: list[KeptReport], at_s: float) -> Sighting:
    at = START + timedelta(seconds=at_s)
    return asyncio.run(sighting_in(_history(), reports, at))


def _testimony(
    reports: list[KeptReport], at_s: float, lens: Lens = CLEAR, width: int = WIDTH
) -> list[Text]:
    found: Testimony = asyncio.run(recall(_history(), _sighting(reports, at_s)))
    return [*testimony_lines(found, lens, width), Text("=" * 8)]


def testimonies() -> list[Text]:
    """Level, cut off, wrong, fresh and narrow."""
    return [
        *_testimony(REGULAR, 12),
        *_testimony(CUT_OFF, 60),
        *_testimony(EJECTING, 37.5, Lens(frozenset({"prod"}))),
        *_testimony(WRONG, 36.5),
        *_testimony(FRESH, 12.5, width=60),
    ]


def _why(
    reports: list[KeptReport],
    at_s: float,
    following: Record | None = None,
    width: int = WIDTH,
) -> list[Text]:
    found: WhyPicked = asyncio.run(
        why_picked(_history(), "prod/w2", _sighting(reports, at_s), following)
    )
    return [*why_picked_lines(found, width), Text("=" * 8)]


def whys() -> list[Text]:
    """Cut off, perhaps, dead but not expired, ejected, known, stopped."""
    return [
        *_why(CUT_OFF, 60),
        *_why(REGULAR, 39.5),
        *_why(REGULAR, 36.5, UPDATE[18]),
        *_why(EJECTING, 37.5, UPDATE[18]),
        *_why(REGULAR, 46),
        *_why(STOPPED, 60, width=60),
    ]


async def _screens(places: Sequence[tuple[int, Frame]]) -> list[Text]:
    walk = Walk(_history())
    await walk.begin()
    lines: list[Text] = []
    for revision, frame in places:
        await walk.to(revision)
        assert walk.stop is not None
        lines += [*moment_screen(walk.stop, frame), Text("=" * 8)]
    return lines


def _frame(width: int = WIDTH, height: int = 14, **more: object) -> Frame:
    return Frame(width=width, height=height, last=len(UPDATE), **more)


def steps() -> list[Text]:
    """A port, a worker that comes, drains, goes and is refused; narrow; the keys."""
    lens = Lens(frozenset({"prod-v2"}))
    places = [
        (1, _frame()),
        (3, _frame()),
        (12, _frame()),
        (14, _frame()),
        (23, _frame(said="this is the last record")),
        (25, _frame(60, 10)),
        (17, _frame(lens=lens)),
        (24, _frame(height=9)),
    ]
    return [*asyncio.run(_screens(places)), *help_screen(_frame(height=17))]
