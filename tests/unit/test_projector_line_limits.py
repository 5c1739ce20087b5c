"""The line of deltas at its limits: sizes, backlogs, one stream ahead of the other."""

from controlplane.projector import drafts as drafts_module
from controlplane.projector import line as line_module
from controlplane.projector.effects import Publish
from tests.support.deriving import check_view
from tests.support.fleet_builder import draining, given, loaded, ready, registered
from tests.support.projecting import Bench, ViewList, settled

FIVE = [registered("w1"), draining("w1"), ready("w1"), registered("w2"), draining("w2")]


def leader_of(*steps, **options):
    """A leader that published all of a story, and the story's records."""
    records, view = [], ViewList()
    bench = settled(records, view, **options)
    records += given(*steps)
    bench.settle()
    return bench, records, view


def messages(view):
    return [entry.message for entry in view.entries()]


def test_a_delta_too_large_for_a_message_is_passed_by_a_new_epoch(monkeypatch):
    monkeypatch.setattr(drafts_module, "PAYLOAD_MAX", 2000)
    leader, records, view = leader_of(registered("w1"))
    story = given(registered("w1"), loaded("w1", "x" * 2000), draining("w1"))
    records += story[1:]
    leader.settle()
    last = messages(view)[-1]
    assert (last.reason, last.epoch.count, last.epoch.revision) == ("rebuild", 2, 3)
    assert leader.core.line.level


def test_a_batch_is_bounded_in_bytes(monkeypatch):
    monkeypatch.setattr(drafts_module, "BATCH_BYTES", 2000)
    bench, records, view = leader_of()
    records += given(*FIVE)
    bench.asked.clear()
    bench.read_log()
    (publish,) = [e for e in bench.asked if isinstance(e, Publish)]
    assert len(publish.payloads) == 2
    bench.settle()
    check_view(records, view.entries())


def test_a_backlog_beyond_memory_ends_in_a_new_epoch_not_in_a_loop(monkeypatch):
    monkeypatch.setattr(line_module, "PENDING_MAX", 3)
    _leader, records, view = leader_of(*FIVE[:1])
    follower = Bench(records, view, name="b")
    records += given(*FIVE)[1:]
    follower.read_log()
    assert not follower.core.line.pending
    assert follower.rebuilds == []
    follower.win()
    follower.settle()
    assert follower.core.line.level
    assert messages(view)[-1].reason == "rebuild"


def test_the_fold_waits_for_the_view_stream_to_be_read(monkeypatch):
    monkeypatch.setattr(line_module, "AHEAD_MAX", 2)
    _, records, view = leader_of(*FIVE)
    follower = Bench(records, view, name="b")
    follower.read_log(2)
    assert not follower.core.line.ahead
    follower.read_log(1)
    assert follower.core.line.ahead
    follower.read_view()
    assert not follower.core.line.ahead


def test_the_view_stream_waits_for_the_fold(monkeypatch):
    monkeypatch.setattr(line_module, "AHEAD_MAX", 2)
    _, records, view = leader_of(*FIVE)
    follower = Bench(records, view, name="b")
    follower.read_view(2)
    assert not follower.core.line.behind
    follower.read_view(1)
    assert follower.core.line.behind
    assert not follower.core.line.ahead
    follower.read_log(1)
    assert not follower.core.line.behind


def test_more_in_the_stream_than_the_log_gives_is_no_endless_wait():
    _leader, records, view = leader_of(*FIVE[:2])
    late = Bench(records, view, name="b")
    late.settle()
    view.payloads += [b"foreign"] * 3
    view.trim(view.last + 1)
    late.core.line.view_end = late.core.line.trimmed_to = view.last
    late.win()
    late.settle()
    assert late.core.line.level
    assert messages(view)[-1].reason == "foreign"
