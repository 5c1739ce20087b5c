"""What ``log verify`` says: of a log that is whole, and of what differs from it."""

import asyncio
from collections.abc import Sequence

import msgspec
from rich.text import Text

from controlplane.cli.verification_lines import verification_lines
from controlplane.presence import KeptReport, Presence, RouterReport
from controlplane.verifying import Claim, Gathered, Verification, verify
from controlplane.verifying.claims import (
    claim_of_entry,
    claim_of_head,
    claim_of_report,
    claim_of_snapshot,
)
from events import Record
from tests.golden.stories import STORIES
from tests.support.fleet_builder import START
from tests.support.histories import StoryHistory
from tests.support.view_line import ViewLine

WIDTH = 80
LOG_ID = "01a22c22-d59f-77fc-8202-b8df97cee4a0"


def _claims(records: Sequence[Record]) -> list[Claim]:
    line = ViewLine(log_id=LOG_ID)
    line.publish(records)
    line.take_snapshot()
    presence = Presence(
        name="router-a",
        epoch=str(line.epoch),
        revision=line.fold.revision,
        digest=line.fold.fleet_state.digest,
        source="live",
        stale_for_s=0.2,
    )
    report = RouterReport(presence=presence, at=START, ejected=(), reason="regular")
    found = [
        *map(claim_of_entry, line.entries),
        claim_of_head(line.head()),
        claim_of_snapshot(line.snapshot, line.fold.ports),
        claim_of_report(KeptReport(START, report)),
    ]
    return [claim for claim in found if claim is not None]


def _lines(
    records: Sequence[Record], gathered: Gathered, width: int = WIDTH
) -> list[Text]:
    history = StoryHistory(records)
    history.log_id = LOG_ID
    found: Verification = asyncio.run(verify(history, gathered))
    return [*verification_lines(found, width), Text()]


def verifications() -> list[Text]:
    """Whole, trimmed with holes, diverged, forked, an archive; the last one narrow."""
    story = STORIES["rolling_update"]()
    claims = _claims(story)
    routers = {"router-a"}
    holes = [record for record in story if record.revision != 3]
    wrong = list(claims)
    wrong[9] = msgspec.structs.replace(wrong[9], digest="f" * 32)
    wrong[-1] = msgspec.structs.replace(wrong[-1], digest="f" * 32)
    trimmed = {"view": 7, "reports": 123}
    return [
        *_lines(story, Gathered(claims=claims, routers=routers)),
        *_lines(holes, Gathered(claims=claims[7:], routers=routers, trimmed=trimmed)),
        *_lines(story, Gathered(claims=wrong, routers=routers)),
        *_lines(story[:20], Gathered(claims=claims, routers=routers)),
        *_lines(story, Gathered()),
        *_lines(story, Gathered(claims=wrong, routers=routers, foreign=2), 60),
    ]
