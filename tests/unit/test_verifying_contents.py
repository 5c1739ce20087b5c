"""What no digest covers is held against the log too: changes, snapshots, names."""

from datetime import UTC, datetime

import msgspec
import pytest

from controlplane.cli.verification_lines import OTHER_SIDE, WORDS
from controlplane.verifying import Gathered, verify
from controlplane.verifying.claims import (
    claim_of_entry,
    claim_of_head,
    claim_of_snapshot,
)
from controlplane.verifying.findings import What
from controlplane.viewfeed import entry
from projections import AnomalyCounts, Rest, encode_view, restore
from tests.golden.stories import STORIES
from tests.support.fleet_builder import given, held, ready, registered
from tests.support.histories import StoryHistory
from tests.support.port_cell import STORY as PORT_STORY
from tests.support.view_line import LOG, ViewLine

UPDATE = STORIES["rolling_update"]()
REST = msgspec.msgpack.Decoder(Rest)
ENCODED = msgspec.msgpack.Encoder(order="deterministic").encode


def line_of(story):
    line = ViewLine()
    line.publish(story)
    line.take_snapshot()
    return line


def altered(line, ordinal, **fields):
    """The entries of ``line``, stored anew with another delta of that ordinal."""
    return [
        entry(
            one.view_seq,
            encode_view(msgspec.structs.replace(one.message, **fields))
            if getattr(one.message, "ordinal", None) == ordinal
            else one.payload,
        )
        for one in line.entries
    ]


async def verified(records, claims, **gathered):
    history = StoryHistory(records, last=gathered.pop("last", None))
    history.log_id = LOG
    return await verify(history, Gathered(claims=claims, **gathered))


async def of_entries(entries, line=None, records=UPDATE):
    claims = [*map(claim_of_entry, entries)]
    if line is not None:
        claims.append(claim_of_head(line.head()))
    return await verified(records, claims)


# ---- deltas --------------------------------------------------------------------------
async def test_a_delta_that_does_not_make_its_change_is_found_by_its_number():
    line = line_of(UPDATE)
    found = await of_entries(altered(line, 3, changes=()))
    (finding,) = found.findings
    delta = line.entries[3].message
    assert found.verdict == "diverged"
    assert finding.what == "changes"
    assert finding.who == f"delta 3 of epoch {line.epoch}"
    assert finding.revision == delta.revision
    assert finding.said == "no change"
    assert finding.found.startswith("2 changes with checksum ")
    assert found.counts["delta"].different == 1


async def test_a_delta_that_sends_a_router_elsewhere_is_found():
    story = given(registered("w1"), ready("w1"), held("w1"))
    line = line_of(story)
    (put, *others) = line.entries[1].message.changes
    evil = msgspec.structs.replace(put.worker, address="http://evil:1")
    changes = (msgspec.structs.replace(put, worker=evil), *others)
    found = await of_entries(altered(line, 1, changes=changes), records=story)
    assert [(one.what, one.revision) for one in found.findings] == [("changes", 1)]


async def test_what_a_delta_changes_is_compared_in_its_order():
    story = given(registered("w1"))
    line = line_of(story)
    changes = line.entries[1].message.changes
    assert len(changes) > 1
    found = await of_entries(altered(line, 1, changes=changes[::-1]), records=story)
    assert [one.what for one in found.findings] == ["changes"]


async def test_a_delta_of_a_record_that_changes_nothing_is_none():
    """Its digest is that of the delta before: nothing else tells."""
    story = given(registered("w1"), ready("w1"), ready("w1"), held("w1"))
    line = line_of(story[:2])
    before = line.entries[-1].message
    empty = msgspec.structs.replace(
        before,
        ordinal=before.ordinal + 1,
        revision=3,
        previous_revision=before.revision,
        fingerprint=story[2].fingerprint,
        changes=(),
        anomalies=AnomalyCounts(no_op=1),
    )
    entries = [*line.entries, entry(len(line.entries) + 1, encode_view(empty))]
    found = await of_entries(entries, records=story[:3])
    assert [(one.what, one.revision) for one in found.findings] == [("changes", 3)]


@pytest.mark.parametrize("kind", AnomalyCounts.__struct_fields__)
async def test_other_counts_of_anomalies_are_found(kind):
    line = line_of(UPDATE)
    found = await of_entries(altered(line, 3, anomalies=AnomalyCounts(**{kind: 77})))
    (finding,) = found.findings
    assert finding.what == "anomalies"
    assert f"77 {kind}" in finding.said
    assert f"0 {kind}" in finding.found


@pytest.mark.parametrize("kind", ["epoch", "head"])
async def test_other_counts_of_an_epoch_s_start_or_a_head_are_found(kind):
    line = line_of(UPDATE)
    claims = [*map(claim_of_entry, line.entries), claim_of_head(line.head())]
    at = next(i for i, claim in enumerate(claims) if claim.kind == kind)
    claims[at] = msgspec.structs.replace(claims[at], anomalies=AnomalyCounts(stale=9))
    found = await verified(UPDATE, claims)
    assert [one.what for one in found.findings] == ["anomalies"]


async def test_behind_a_hole_a_delta_is_proven_by_the_right_one_before_it():
    """Ports that were purged change no fleet, and excuse nobody who alters one."""
    line = line_of(UPDATE)
    kept = [record for record in UPDATE if record.revision not in {2, 4, 5}]
    assert (await of_entries(line.entries, records=kept)).findings == ()
    found = await of_entries(altered(line, 6, changes=()), records=kept)
    assert [one.what for one in found.findings] == ["changes"]


async def test_behind_a_hole_that_changed_the_fleet_no_delta_is_wrong():
    line = line_of(UPDATE)
    kept = [record for record in UPDATE if record.revision != 3]
    found = await of_entries(line.entries, records=kept)
    assert found.findings == ()


# ---- names of records ----------------------------------------------------------------
async def test_one_wrong_name_among_those_who_agree_is_no_fork():
    line = line_of(UPDATE)
    found = await of_entries(altered(line, 3, fingerprint="x"), line)
    (finding,) = found.findings
    assert (found.verdict, finding.what) == ("diverged", "fingerprint")
    assert finding.who == f"delta 3 of epoch {line.epoch}"
    assert found.counts["delta"].different == 1


async def test_the_last_delta_s_wrong_name_is_no_fork_if_the_head_says_better():
    story = given(registered("w1"), ready("w1"))
    line = line_of(story)
    entries = altered(line, line.ordinal, fingerprint="x")
    assert (await of_entries(entries, line, story)).verdict == "diverged"
    assert (await of_entries(entries, None, story)).verdict == "forked"


async def test_a_wrong_name_with_a_wrong_digest_is_a_fork():
    """A record that was put in another's place: its delta is of a piece."""
    line = line_of(UPDATE)
    entries = altered(line, 3, fingerprint="x", digest="f" * 32)
    found = await of_entries(entries, line)
    assert (found.verdict, found.findings[0].what) == ("forked", "record")


async def test_those_who_agree_in_a_later_numbering_do_not_vouch_for_an_earlier():
    line = ViewLine()
    line.publish(UPDATE[:6])
    entries = altered(line, line.ordinal, fingerprint="x")
    line.begin()
    line.publish(UPDATE)
    later = line.entries[len(entries) :]
    assert (await of_entries([*entries, *later])).verdict == "forked"


# ---- snapshots -----------------------------------------------------------------------
def forged(snapshot, what):
    """A snapshot whose digests are right and which holds something else."""
    replace = msgspec.structs.replace
    rest = REST.decode(snapshot.rest)
    match what:
        case "anomalies":
            counts = AnomalyCounts(stale=12345)
            anomalies = replace(snapshot.anomalies, counts=counts)
            return replace(snapshot, anomalies=anomalies)
        case "skipped tags":
            anomalies = replace(snapshot.anomalies, skipped_tags=frozenset({"x.v7"}))
            return replace(snapshot, anomalies=anomalies)
        case "recorded time":
            return replace(snapshot, recorded_at=datetime(2001, 1, 1, tzinfo=UTC))
        case "entities":
            return replace(snapshot, fleet=snapshot.fleet + snapshot.fleet[:1])
        case "lives":
            rest = replace(rest, lives=())
        case "port revisions":
            revisions = tuple((host, port, 7) for host, port, _ in rest.port_revisions)
            rest = replace(rest, port_revisions=revisions)
        case "drains":
            rest = replace(rest, drains=())
    return replace(snapshot, rest=msgspec.Raw(ENCODED(rest)))


def of_snapshot(line, snapshot):
    return [
        *map(claim_of_entry, line.entries),
        claim_of_snapshot(snapshot, restore(snapshot, frozenset()).ports),
    ]


DRAINED = PORT_STORY.then(registered("w1"), held("w1", drain=True))


@pytest.mark.parametrize(
    "what",
    [
        "anomalies",
        "skipped tags",
        "recorded time",
        "entities",
        "lives",
        "port revisions",
        "drains",
    ],
)
async def test_a_snapshot_with_right_digests_and_other_contents_is_found(what):
    line = line_of(DRAINED)
    honest = await verified(DRAINED, of_snapshot(line, line.snapshot))
    assert honest.findings == ()
    other = forged(line.snapshot, what)
    assert other != line.snapshot
    found = await verified(DRAINED, of_snapshot(line, other))
    (finding,) = found.findings
    assert (found.verdict, finding.what) == ("diverged", "contents")
    assert finding.said.startswith(f"{what}: ")
    assert finding.found.startswith(f"{what}: ")
    assert finding.revision == line.snapshot.revision


async def test_a_snapshot_that_words_an_anomaly_otherwise_is_right():
    """Their wording is another version's or another library's."""
    story = given(registered("w1"), ready("w2"))
    line = line_of(story)
    anomalies = line.snapshot.anomalies
    (one,) = anomalies.latest
    worded = msgspec.structs.replace(one, reason="in other words")
    anomalies = msgspec.structs.replace(anomalies, latest=(worded,))
    other = msgspec.structs.replace(line.snapshot, anomalies=anomalies)
    assert (await verified(story, of_snapshot(line, other))).findings == ()


@pytest.mark.parametrize(
    "fields", [{"ordinal": 2}, {"ordinal": 99}, {"delta_revision": 1}]
)
async def test_a_snapshot_that_names_another_place_in_the_view_is_found(fields):
    line = ViewLine()
    line.publish(UPDATE[:12])
    line.take_snapshot()
    line.publish(UPDATE)
    place = msgspec.structs.replace(line.snapshot.position, **fields)
    other = msgspec.structs.replace(line.snapshot, position=place)
    assert (await verified(UPDATE, of_snapshot(line, line.snapshot))).findings == ()
    found = await verified(UPDATE, of_snapshot(line, other))
    assert [one.what for one in found.findings] == ["position"]


async def test_a_snapshot_ahead_of_the_view_is_right():
    """It is taken of what the fold knows, published or not."""
    line = line_of(UPDATE)
    claims = of_snapshot(line, line.snapshot)
    del claims[-4:-1]
    assert (await verified(UPDATE, claims)).findings == ()


async def test_behind_a_hole_the_rest_of_a_snapshot_is_not_provable():
    line = line_of(UPDATE)
    kept = [record for record in UPDATE if record.revision != 3]
    found = await verified(kept, of_snapshot(line, line.snapshot))
    assert found.findings == ()
    assert found.counts["snapshot"].unproven == 1


# ---- words ---------------------------------------------------------------------------
def test_every_finding_has_its_words():
    assert set(WORDS) == set(What.__args__)
    assert set(OTHER_SIDE) <= set(WORDS)
