"""However messages are lost, repeated and delayed: a router is the fold of a prefix.

A leader publishes an arbitrary log, begins epochs and writes snapshots; the stream is
trimmed; live messages get lost, come twice or late; heads come late; contact is lost;
reading takes time. At every moment the router's fleet is one that the leader had at
that very place, and its place never steps back. When the faults stop, it gets to the
end by the next head.
"""

from hypothesis import given
from hypothesis import strategies as st

from projections import DivergenceError, SequenceGapError
from tests.property.logs import logs
from tests.support.view_line import Shell, ViewLine

STEPS = st.lists(
    st.sampled_from(
        [
            *["publish"] * 6,
            *["deliver"] * 6,
            "lose",
            "repeat",
            "delay",
            "epoch",
            "snapshot",
            "trim",
            "foreign",
            *["head"] * 2,
            "old head",
            "time",
            "reconnect",
            *["look"] * 3,
            *["finish"] * 3,
        ]
    ),
    min_size=20,
    max_size=120,
)


class World:
    """A leader, a network and a router; `do` one step of any of them."""

    def __init__(self, log, data):
        self.log, self.data = log, data
        self.line = ViewLine()
        self.line.begin()
        self.line.take_snapshot()
        self.shell = Shell(self.line)
        self.shell.begin()
        self.published = 0
        self.in_flight = list(self.line.entries)
        self.delivered = []
        self.heads = [self.line.head()]
        self.end = None
        self.place = None

    def do(self, step):
        getattr(self, step.replace(" ", "_"))()
        self.check()

    def check(self):
        replica = self.shell.core.replica
        if replica is None:
            return
        position = replica.position
        folded = self.line.states[position.epoch, position.ordinal]
        assert replica.fleet == folded.fleet_state
        assert replica.fleet.digest == folded.fleet_state.digest
        assert replica.revision >= folded.revision
        place = (position.epoch, position.ordinal)
        assert self.place is None or place >= self.place
        self.place = place
        assert not self.shell.diverged

    # ---- the leader ------------------------------------------------------------
    def publish(self):
        self.published += 1
        self.in_flight += self.line.publish(self.log[: self.published])
        self.heads.append(self.line.head())

    def epoch(self):
        self.in_flight.append(self.line.begin())
        self.line.take_snapshot()

    def snapshot(self):
        self.line.take_snapshot()

    def trim(self):
        """No further than the last snapshot, as a leader sees to it."""
        place = self.line.pointer.position.view_seq + 1
        self.line.first = self.data.draw(st.integers(self.line.first, place))

    def foreign(self):
        """A foreign message breaks the numbering: a new epoch begins."""
        self.in_flight.append(self.line.foreign())
        self.epoch()

    # ---- the network -----------------------------------------------------------
    def deliver(self):
        if self.in_flight:
            self._arrive(self.in_flight.pop(0))

    def _arrive(self, entry):
        self.delivered.append(entry)
        self.shell.live(entry)

    def lose(self):
        if self.in_flight:
            self.in_flight.pop(0)

    def repeat(self):
        if self.delivered:
            self._arrive(self.data.draw(st.sampled_from(self.delivered)))

    def delay(self):
        if len(self.in_flight) > 1:
            self.in_flight.append(self.in_flight.pop(0))

    def head(self):
        self._hear(self.heads[-1])

    def old_head(self):
        self._hear(self.data.draw(st.sampled_from(self.heads)))

    def _hear(self, head):
        self.shell.do(self.shell.core.head(head, self.shell.now))

    # ---- the router ------------------------------------------------------------
    def time(self):
        self.shell.pass_time(self.data.draw(st.sampled_from([0.1, 1.5])))

    def reconnect(self):
        self.shell.core.disconnected()
        self.in_flight.clear()
        self.shell.do(self.shell.core.reconnected())

    def look(self):
        if self.shell.wanted is not None:
            self.end = self.shell.look()

    def finish(self):
        if self.shell.wanted is None or self.end is None:
            return
        end, self.end = self.end, None
        try:
            self.shell.catch_up(end)
        except (SequenceGapError, DivergenceError):
            self.shell.wanted = type(self.shell.wanted)("gap", anew=True)

    def calm(self):
        """The faults stop: heads come, and time passes."""
        for _ in range(4):
            self.heads.append(self.line.head())
            self.head()
            self.shell.pass_time(1.5)
            self.end = None
            self.shell.settle()
            self.check()


@given(logs(), STEPS, st.data())
def test_a_router_is_always_the_fold_of_a_prefix_and_gets_to_the_end(log, steps, data):
    world = World(log, data)
    for step in steps:
        world.do(step)
    world.calm()
    assert world.shell.place == (world.line.epoch, world.line.ordinal)
    assert world.shell.core.revision == world.line.fold.revision
    assert world.shell.core.source == "live"
    assert len(world.shell.caught) <= 2 * len(steps)
