"""What the commands that look into a log show of it."""

from collections.abc import Iterable
from datetime import timedelta

from rich.text import Text

from controlplane.cli.record_lines import record_lines
from controlplane.cli.statistics_lines import statistics_lines
from controlplane.playback import Ends, Statistics, Storage
from events import StoredRecord
from tests.golden.stories import STORIES, every_event
from tests.support.fleet_builder import Story

WIDTH = 80
LOG_ID = "01a22c22-d59f-77fc-8202-b8df97cee4a0"
FULL = Storage(bytes=912_345_678, max_bytes=1_000_000_000)


def shown() -> list[Text]:
    """A registration with everything, what no version knows, and what is no JSON."""
    poison = STORIES["poison"]()
    records = [every_event()[0], poison[5], poison[2], poison[13]]
    return [text for r in records for text in (*record_lines(r, WIDTH), Text())]


def _stored(story: Story) -> Iterable[StoredRecord]:
    for record, payload in zip(story, story.payloads, strict=True):
        yield StoredRecord(record.revision, record.recorded_at, record.subject, payload)


def counted() -> list[Text]:
    """A log near its limit."""
    story = STORIES["poison"]()
    statistics = Statistics(Ends(1, len(story), None))
    statistics.add(_stored(story))
    return list(statistics_lines(statistics, FULL, LOG_ID, WIDTH))


def counted_long() -> list[Text]:
    """Two days, of which much was removed, in a narrow terminal."""
    statistics = Statistics(Ends(12_345, 2_012_344, None))
    for record in _stored(STORIES["rolling_update"]()):
        for hour in range(record.revision % 3, 48, record.revision % 5 + 1):
            later = record.recorded_at + timedelta(hours=hour)
            statistics.add([StoredRecord(1, later, record.subject, record.payload)])
    return list(statistics_lines(statistics, None, LOG_ID, 60))


def counted_empty() -> list[Text]:
    """Nothing at all."""
    storage = Storage(bytes=0, max_bytes=-1)
    return list(statistics_lines(Statistics(Ends(1, 0, None)), storage, LOG_ID, WIDTH))
