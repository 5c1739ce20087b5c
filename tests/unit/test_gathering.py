"""What is gathered to be held against a log: every snapshot that may be used."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest

from controlplane.broker import Outgoing
from controlplane.broker.memory import MemoryBroker, MemoryServer
from controlplane.cli.verification_lines import verification_lines
from controlplane.settings import Settings
from controlplane.topology import init
from controlplane.verifying import gather, verify
from controlplane.viewfeed import ViewFeed
from projections import FOLD_VERSION, build, encode_view
from tests.golden.stories import STORIES
from tests.support.histories import StoryHistory
from tests.support.view_line import LOG, ViewLine

NOW = datetime(2026, 1, 1, tzinfo=UTC)
UPDATE = STORIES["rolling_update"]()
PIECE = 400


class Kept:
    """A view with two snapshots of it, taken at revision 8 and at the end."""

    def __init__(self, broker: MemoryBroker) -> None:
        self.broker = broker
        self.feed = ViewFeed(broker, "c", chunk_bytes=PIECE)
        self.line = ViewLine()

    async def tell(self, *, older=None, latest=None) -> None:
        """Store it, the snapshots with these fields instead of theirs."""
        self.line.publish(UPDATE[:8])
        self.line.take_snapshot()
        await self.write(self.line.snapshot, older)
        self.line.publish(UPDATE)
        self.line.take_snapshot()
        await self.write(self.line.snapshot, latest)
        await self.feed.publish([one.payload for one in self.line.entries], after=0)

    async def write(self, snapshot, fields=None) -> None:
        snapshot = msgspec.structs.replace(snapshot, **(fields or {}))
        assert await self.feed.write_snapshot(snapshot, NOW)

    async def store(self, subject: str, payload: bytes) -> None:
        stream = self.feed.names.snapshot_stream
        await self.broker.store(stream, Outgoing(subject=subject, payload=payload))

    async def verified(self):
        gathered = await gather(self.broker, self.feed, LOG)
        history = StoryHistory(UPDATE)
        history.log_id = LOG
        # The log itself is a story: the broker has none.
        gathered.log = None
        return await verify(history, gathered)


@pytest.fixture
async def kept():
    broker = MemoryBroker(MemoryServer())
    await broker.start()
    await init(broker, "c", Settings())
    yield Kept(broker)
    await broker.stop()


def less(snapshot):
    """A smaller fleet with the digest of just that."""
    fleet = snapshot.fleet[1:]
    return {"fleet": fleet, "fleet_digest": build(fleet).digest}


async def test_every_kept_snapshot_is_compared(kept):
    await kept.tell()
    found = await kept.verified()
    assert found.findings == ()
    count = found.counts["snapshot"]
    assert (count.said, count.equal) == (2, 2)


async def test_a_forged_older_snapshot_is_found(kept):
    """A replay to a moment before the latest begins with it."""
    line = ViewLine()
    line.publish(UPDATE[:8])
    line.take_snapshot()
    await kept.tell(older=less(line.snapshot))
    (finding,) = (await kept.verified()).findings
    assert (finding.what, finding.revision) == ("digest", 8)
    assert finding.who == f"an older snapshot of epoch {line.epoch}"


async def test_an_older_snapshot_that_cannot_be_read_is_found(kept):
    await kept.tell()
    older = min(await kept.feed.snapshot_ids())
    await kept.store(kept.feed.names.snapshot_chunk(older, 0), b"damaged")
    (finding,) = (await kept.verified()).findings
    assert finding.what == "unreadable"
    assert older in finding.who


async def test_a_snapshot_that_is_being_written_is_not_judged(kept):
    await kept.tell()
    later = f"f{max(await kept.feed.snapshot_ids())[1:]}"
    await kept.store(kept.feed.names.snapshot_chunk(later, 0), b"its first piece")
    found = await kept.verified()
    assert found.findings == ()
    assert found.counts["snapshot"].said == 2


async def test_an_older_snapshot_of_another_version_is_counted_only(kept):
    version = FOLD_VERSION + 1
    await kept.tell(older={"fold_version": version, "fleet_digest": "f" * 32})
    found = await kept.verified()
    assert found.findings == ()
    count = found.counts["snapshot"]
    assert (count.equal, count.incomparable) == (1, 1)


async def test_a_snapshot_of_two_logs_is_not_taken_for_one_of_another(kept):
    """Whoever asks it for its log would believe it."""
    line = ViewLine()
    line.publish(UPDATE[:8])
    line.take_snapshot()
    place = line.snapshot.position
    epoch = msgspec.structs.replace(place.epoch, log_id="log-b")
    place = msgspec.structs.replace(place, epoch=epoch)
    await kept.tell(older={"position": place})
    (finding,) = (await kept.verified()).findings
    assert finding.what == "unreadable"
    assert "names epoch log-b." in finding.found


@pytest.mark.parametrize("fields", [{"revision": 25}, {"position": None}])
async def test_a_pointer_to_another_place_is_found(kept, fields):
    await kept.tell()
    pointer = await kept.feed.snapshot_pointer()
    if "position" in fields:
        place = msgspec.structs.replace(pointer.position, ordinal=3)
        fields = {"position": place}
    pointer = msgspec.structs.replace(pointer, **fields)
    await kept.store(kept.feed.names.snapshot_pointer, msgspec.json.encode(pointer))
    (finding,) = (await kept.verified()).findings
    assert finding.what == "unreadable"
    assert finding.found == "its pointer says another place"


async def test_a_snapshot_that_knows_another_beginning_of_its_epoch_is_found(kept):
    line = ViewLine()
    line.publish(UPDATE)
    line.take_snapshot()
    place = msgspec.structs.replace(line.snapshot.position, base=7)
    await kept.tell(latest={"position": place})
    (finding,) = (await kept.verified()).findings
    assert (finding.what, finding.revision) == ("numbering", len(UPDATE))
    assert finding.said.endswith("at sequence 7 of the view")
    assert finding.found == "it at sequence 1"


# ---- the numbering, in words ---------------------------------------------------------
async def told(kept, change):
    """What people read when delta 4 is another by these fields."""
    kept.line.publish(UPDATE)
    payloads = [
        encode_view(msgspec.structs.replace(one.message, **change))
        if getattr(one.message, "ordinal", 0) == 4
        else one.payload
        for one in kept.line.entries
    ]
    await kept.feed.publish(payloads, after=0)
    found = await kept.verified()
    assert found.findings[0].what == "numbering"
    return " ".join(
        " ".join(line.plain for line in verification_lines(found, 200)).split()
    )


async def test_a_delta_that_names_another_one_before_it_is_told_in_words(kept):
    text = await told(kept, {"previous_revision": 1})
    before = kept.line.entries[3].message.revision
    assert (
        f"delta 4 of epoch {kept.line.epoch} has revision 1 for the delta before it "
        f"the view has revision {before} there"
    ) in text


async def test_a_delta_with_another_number_is_told_in_words(kept):
    text = await told(kept, {"ordinal": 9})
    assert (
        f"delta 9 of epoch {kept.line.epoch} has ordinal 9 "
        "the view has it in the place of ordinal 4"
    ) in text
