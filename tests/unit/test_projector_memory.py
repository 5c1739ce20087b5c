"""Who knew what the log lost says so: once, whatever ended the term."""

import pytest
from prometheus_client import CollectorRegistry

from controlplane.projector.memory import Memory
from controlplane.projector.recovery import decide_start
from controlplane.telemetry import HISTORY_LOSSES, ProjectorMetrics
from tests.support.fleet_builder import draining, forked, given, ready, registered
from tests.support.projecting import ViewList, find_in, record_at, settled

STORY = given(registered("w1"), draining("w1"), ready("w1"))
OTHER = given(registered("w1"), draining("w1"), forked("b"), ready("w1"))


class Past:
    """A projector folded three records; then the log is looked at again."""

    def __init__(self):
        self.metrics = ProjectorMetrics(CollectorRegistry())
        self.memory = Memory(self.metrics)
        self.view = ViewList()
        self.core = settled(list(STORY), self.view).core
        self.memory.keep(self.core)

    def begin(self, records):
        known = self.memory.remembered
        record = record_at(records, known.revision)
        other = {"remembered": known, "remembered_record": record}
        begin = decide_start(find_in(records, self.view, None, **other))
        self.memory.compare(begin)
        return begin

    @property
    def counted(self):
        losses = {}
        for reason in HISTORY_LOSSES:
            count = self.metrics.history_losses.labels(reason=reason)._value.get()
            losses |= {reason: count} if count else {}
        return losses


@pytest.fixture
def past():
    return Past()


def lines(caplog):
    return [r.getMessage() for r in caplog.records if r.levelname == "ERROR"]


@pytest.mark.parametrize(
    ("records", "reason"),
    [(list(STORY[:2]), "log_lost_tail"), (list(OTHER), "log_forked")],
)
def test_a_loss_is_said_and_counted_whatever_ended_the_term(
    past, caplog, records, reason
):
    past.begin(records)
    (line,) = lines(caplog)
    assert line.startswith(f"history lost or forked: reason='{reason}' revision=3")
    assert past.counted == {reason: 1}


def test_a_loss_that_the_reader_noticed_is_not_said_twice(past, caplog):
    past.memory.say_lost("it ends at 2 now")
    past.begin(list(STORY[:2]))
    assert len(lines(caplog)) == 1
    assert past.counted == {"log_lost_tail": 1}
    past.begin(list(STORY[:2]))
    assert len(lines(caplog)) == 2


def test_while_nothing_is_lost_nothing_is_said(past, caplog):
    past.begin(list(STORY))
    past.memory.keep(None)
    past.begin(list(STORY))
    assert lines(caplog) == []
    assert past.counted == {}
    assert past.memory.remembered.revision == 3


def test_who_remembers_nothing_says_nothing(caplog):
    memory = Memory(ProjectorMetrics(CollectorRegistry()))
    memory.compare(decide_start(find_in(list(STORY), ViewList(), None)))
    assert lines(caplog) == []
