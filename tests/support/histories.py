"""A history in memory: the records of a story, in batches as small as one wants."""

from controlplane.errors import HistoryTruncatedError
from controlplane.playback import Ends
from events import StoredRecord, encode


class StoryHistory:
    """Records as a `History`; its ends and ``now`` as a test wants them."""

    def __init__(self, records, *, size=3, now=None, first=None, last=None):
        self.records, self.size, self.now = list(records), size, now
        self.first, self.last = first, last
        self.cell, self.log_id = "default", "story"

    async def ends(self):
        last = self.records[-1].revision if self.records else 0
        first = self.records[0].revision if self.records else last + 1
        return Ends(self.first or first, self.last or last, self.now)

    async def batches(self, after=0, until=None):
        wanted = [
            record
            for record in self.records
            if record.revision > after and (until is None or record.revision <= until)
        ]
        for start in range(0, len(wanted), self.size):
            yield wanted[start : start + self.size]

    async def stored(self, after=0, until=None):
        async for records in self.batches(after, until):
            yield [self.as_stored(record) for record in records]

    def as_stored(self, record):
        payload = getattr(record.event, "payload", None)
        if payload is None:
            payload = encode(record.event)
        return StoredRecord(
            record.revision, record.recorded_at, record.subject, payload
        )

    def beheaded(self, first):
        return HistoryTruncatedError(first=first)

    async def start(self, end):
        """There is no snapshot."""
        del end

    async def at(self, revision):
        found = (r for r in self.records if r.revision == revision)
        return next(found, None)
