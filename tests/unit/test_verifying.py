"""A log, and all that was said of it: what agrees, what differs first, what is lost."""

import msgspec
import pytest

from controlplane.broker import StreamState
from controlplane.errors import HistoryTruncatedError
from controlplane.presence import KeptReport, Presence, RouterReport
from controlplane.verifying import Gathered, verify
from controlplane.verifying.claims import (
    claim_of_entry,
    claim_of_head,
    claim_of_report,
    claim_of_snapshot,
)
from projections import FOLD_VERSION, Epoch
from tests.golden.stories import STORIES
from tests.support.fleet_builder import START, expired, given, registered
from tests.support.histories import StoryHistory
from tests.support.view_line import ViewLine

UPDATE = STORIES["rolling_update"]()
LAST = len(UPDATE)


class OfLog(StoryHistory):
    """The story as the log that the view line is of."""

    def __init__(self, records, **options):
        super().__init__(records, **options)
        self.log_id = "log-a"


def line_of(story):
    line = ViewLine()
    line.publish(story)
    return line


def report_of(line, revision=None, **said):
    """What router r1 reports where the line stands, or ``said`` otherwise."""
    presence = Presence(
        name="r1",
        epoch=str(line.epoch),
        revision=line.fold.revision if revision is None else revision,
        digest=line.fold.fleet_state.digest,
        source="live",
        stale_for_s=0.1,
        fingerprint=line.fold.fingerprint,
        fingerprint_at=line.fold.revision,
    )
    presence = msgspec.structs.replace(presence, **said)
    report = RouterReport(presence=presence, at=START, ejected=(), reason="regular")
    return claim_of_report(KeptReport(START, report))


def claims_of(line):
    """Everything that a projector and a router say of it."""
    line.take_snapshot()
    return [
        *map(claim_of_entry, line.entries),
        claim_of_head(line.head()),
        claim_of_snapshot(line.snapshot, line.fold.ports),
        report_of(line),
    ]


async def verified(records, claims, **gathered):
    return await verify(OfLog(records), Gathered(claims=claims, **gathered))


def changed(claim, **fields):
    return msgspec.structs.replace(claim, **fields)


# ---- whole -------------------------------------------------------------------------
@pytest.mark.parametrize("name", STORIES)
async def test_what_is_said_of_a_log_agrees_with_it(name):
    story = STORIES[name]()
    line = line_of(story)
    found = await verified(story, claims_of(line))
    assert found.findings == ()
    assert found.verdict == "whole"
    assert (found.records, found.removed) == (len(story), 0)
    assert found.digest == line.fold.fleet_state.digest
    assert found.ports_digest == line.fold.ports.digest
    for count in found.counts.values():
        assert count.said == count.equal > 0


async def test_a_log_of_which_nothing_was_said_is_only_read():
    found = await verified(UPDATE, [])
    assert found.verdict == "whole"
    assert found.records == LAST
    empty = await verified([], [])
    assert (empty.verdict, empty.records, empty.last) == ("whole", 0, 0)


async def test_whoever_stands_between_two_deltas_is_right_too():
    """A head's revision is the log's, whose last records may change nothing."""
    line = ViewLine()
    for until in range(1, LAST + 1):
        line.publish(UPDATE[:until])
        found = await verified(UPDATE, [report_of(line)])
        assert found.findings == (), until


async def test_a_second_epoch_is_compared_as_the_first():
    line = line_of(UPDATE[:10])
    line.begin()
    line.publish(UPDATE)
    assert (await verified(UPDATE, claims_of(line))).findings == ()


async def test_who_knew_nothing_says_nothing():
    assert report_of(line_of(UPDATE), epoch=None) is None
    assert report_of(line_of(UPDATE), epoch="x") is None


# ---- divergence --------------------------------------------------------------------
@pytest.mark.parametrize("kind", ["delta", "epoch", "snapshot", "head", "report"])
async def test_the_first_who_differs_is_named_with_what_each_side_had(kind):
    line = line_of(UPDATE)
    claims = claims_of(line)
    at = next(i for i, claim in enumerate(claims) if claim.kind == kind)
    claims[at] = changed(claims[at], digest="f" * 32)
    found = await verified(UPDATE, claims)
    assert found.verdict == "diverged"
    first = found.findings[0]
    assert (first.what, first.said) == ("digest", "f" * 32)
    assert first.who == claims[at].who
    assert first.revision == claims[at].revision
    states = {state.revision: state for state in line.states.values()}
    assert first.found == states[first.revision].fleet_state.digest
    assert found.counts[kind].different == 1
    assert found.document()["first_divergence"]["found"] == first.found


async def test_of_many_who_differ_the_earliest_comes_first():
    claims = claims_of(line_of(UPDATE))
    claims = [changed(claim, digest="f" * 32) for claim in claims]
    found = await verified(UPDATE, claims)
    revisions = [finding.revision for finding in found.findings]
    assert revisions == sorted(revisions)
    assert revisions[0] == 0


async def test_a_snapshot_with_other_ports_differs():
    claims = claims_of(line_of(UPDATE))
    at = next(i for i, claim in enumerate(claims) if claim.kind == "snapshot")
    claims[at] = changed(claims[at], ports_digest="f" * 32)
    found = await verified(UPDATE, claims)
    assert [finding.what for finding in found.findings] == ["ports"]


async def test_a_delta_that_is_missing_between_two_is_noticed():
    """A leader that dropped a change and numbered on: each digest it published fits."""
    claims = [*map(claim_of_entry, line_of(UPDATE).entries)]
    dropped = claims.pop(5)
    claims = [
        changed(claim, ordinal=claim.ordinal - (claim.ordinal > dropped.ordinal))
        for claim in claims
    ]
    found = await verified(UPDATE, claims)
    assert [finding.what for finding in found.findings] == ["missing_delta"]
    assert found.findings[0].revision == claims[5].revision


async def test_what_retention_trimmed_is_missed_by_nobody():
    claims = [*map(claim_of_entry, line_of(UPDATE).entries)][7:]
    assert (await verified(UPDATE, claims)).findings == ()


async def test_records_that_the_broker_counts_and_nobody_reads_are_missed():
    found = await verified(UPDATE, [], log=stream_of(LAST + 1))
    assert [finding.what for finding in found.findings] == ["incomplete"]
    assert found.verdict == "diverged"
    assert (await verified(UPDATE, [], log=stream_of(LAST))).verdict == "whole"


async def test_a_log_that_has_no_identity_is_none_of_ours():
    history = OfLog(UPDATE)
    history.log_id = ""
    found = await verify(history, Gathered(log=stream_of(LAST)))
    assert found.verdict == "forked"


def stream_of(messages):
    return StreamState(
        first_sequence=1,
        last_sequence=LAST,
        messages=messages,
        bytes=1,
        max_bytes=-1,
        metadata={},
        now=START,
    )


# ---- loss --------------------------------------------------------------------------
async def test_a_claim_beyond_the_log_s_end_shows_that_its_tail_was_lost():
    claims = claims_of(line_of(UPDATE))
    found = await verified(UPDATE[:12], claims)
    assert found.verdict == "forked"
    assert found.findings[0].what == "beyond_end"
    assert "end at revision 12" in found.findings[0].found
    beyond = [claim for claim in claims if claim.revision > 12]
    assert len(found.findings) == len(beyond), "each is told of once"


async def test_another_record_in_the_place_of_one_shows_a_fork():
    story = given(registered("a"), registered("b"), registered("c"))
    other = given(registered("a"), registered("b"))
    other.branch = "other"
    other = other.then(expired("a"))
    claims = claims_of(line_of(story))
    found = await verified(other, claims)
    assert found.verdict == "forked"
    assert found.findings[0].what == "record"
    assert found.findings[0].revision == 3
    assert story[2].fingerprint in found.findings[0].said
    assert other[2].fingerprint in found.findings[0].found


async def test_what_was_said_of_another_log_or_by_another_version_is_not_compared():
    line = line_of(UPDATE)
    claims = claims_of(line)
    for epoch in (
        Epoch(1, FOLD_VERSION, "log-b", 0),
        Epoch(1, FOLD_VERSION + 1, "log-a", 0),
    ):
        others = [changed(c, epoch=epoch, digest="f" * 32) for c in claims]
        found = await verified(UPDATE, [*claims, *others])
        assert found.findings == ()
        assert found.counts["delta"].incomparable == found.counts["delta"].equal


async def test_a_log_without_its_beginning_is_refused():
    with pytest.raises(HistoryTruncatedError):
        await verified(UPDATE[3:], [])


# ---- holes -------------------------------------------------------------------------
def without(story, *revisions):
    return [record for record in story if record.revision not in revisions]


async def test_what_was_purged_is_counted_as_removed_and_is_no_loss():
    """S47b: of ports that changed nothing in the fleet."""
    kept = without(UPDATE, 2, 4, 5, LAST)
    claims = claims_of(line_of(UPDATE))
    claims = [claim for claim in claims if claim.kind != "snapshot"]
    found = await verify(OfLog(kept, last=LAST), Gathered(claims=claims))
    assert found.findings == ()
    assert (found.records, found.removed) == (LAST - 4, 4)


async def test_behind_a_hole_another_digest_proves_nothing():
    """S47b: a registration was removed on purpose; what was published of it was not."""
    line = line_of(UPDATE)
    kept = without(UPDATE, 3)
    found = await verified(kept, claims_of(line))
    assert found.findings == ()
    assert found.removed == 1
    delta = found.counts["delta"]
    assert delta.unproven > 0
    assert delta.equal + delta.unproven == delta.said


async def test_right_before_a_hole_a_divergence_is_one():
    line = line_of(UPDATE[:9])
    found = await verified(without(UPDATE, 10), [report_of(line, digest="f" * 32)])
    assert [finding.what for finding in found.findings] == ["digest"]


async def test_before_a_hole_a_divergence_is_one():
    claims = claims_of(line_of(UPDATE))
    first = next(i for i, claim in enumerate(claims) if claim.kind == "delta")
    claims[first] = changed(claims[first], digest="f" * 32)
    found = await verified(without(UPDATE, 10), claims)
    assert [finding.what for finding in found.findings] == ["digest"]
