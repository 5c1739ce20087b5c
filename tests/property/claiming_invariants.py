"""What holds whatever is claimed, let go, lost or garbled, in whatever order."""

from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from events import decode_record
from projections import (
    FoldState,
    Held,
    HostPorts,
    PortBlock,
    Resting,
    Unreadable,
    fold_all,
    host_ports,
)
from tests.property.claiming_world import HOST, PORTS, Batch, Life, Log, Writer
from tests.property.invariants import check_state


class Holding(RuleBasedStateMachine):
    """The log, its claimants, and the rules that no rule of theirs may break."""

    def __init__(self) -> None:
        super().__init__()
        self.log, self.writer = Log(), Writer()
        self.lives = [Life(f"w{n}", 1) for n in range(4)]
        self.under_way: list[Batch] = []
        self.ended: set[str] = set()
        self.granted: dict[str, PortBlock] = {}

    @invariant()
    def the_table_is_what_the_dumb_one_says(self):
        table, dumb = self.log.state.ports, self.log.table
        for port in PORTS:
            match table.ports.get((HOST, port)):
                case None:
                    assert port not in dumb.holder
                    assert port not in dumb.released_at
                    assert port not in dumb.unreadable
                case Held(claim_id=claim_id):
                    assert dumb.holder.get(port) == claim_id
                case Resting(since=since):
                    assert dumb.released_at.get(port) == since
                    assert port not in dumb.holder
                case Unreadable():
                    assert port in dumb.unreadable
                    assert port not in dumb.holder

    @invariant()
    def who_believes_to_hold_a_block_holds_it(self):
        for life in self.lives:
            if life.up or life.incarnation not in self.ended:
                for block in life.blocks:
                    holders = {self.log.table.holder.get(port) for port in block}
                    assert holders == {block.claim_id}

    @invariant()
    def a_block_is_held_whole_or_not_at_all(self):
        whole: dict[str, set[int]] = {}
        for port, claim_id in self.log.table.holder.items():
            whole.setdefault(claim_id, set()).add(port)
        for claim_id, ports in whole.items():
            held = self.log.state.ports.ports[HOST, min(ports)]
            assert isinstance(held, Held)
            assert held.block_start == min(ports)
            assert len(ports) == held.block_size
            assert max(ports) == min(ports) + held.block_size - 1
            assert claim_id not in self.granted or set(self.granted[claim_id]) == ports

    @invariant()
    def a_life_s_ports_are_those_it_holds(self):
        lives = self.log.state.lives.values()
        listed = {port for life in lives for _, port in life.ports}
        assert listed == set(self.log.table.holder)

    @precondition(lambda self: self.log.records)
    @rule()
    def replay(self):
        """A fresh fold of the bytes, and what one host's reader made of them."""
        records = [
            decode_record(n, at, subject, payload)
            for n, (at, subject, payload) in enumerate(self.log.stored, start=1)
        ]
        assert records == self.log.records
        check_state(self.log.state)
        fresh = fold_all(FoldState(), records).ports
        assert fresh.digest == self.log.state.ports.digest
        assert fresh == self.log.state.ports
        known, whole = HostPorts(host=HOST), host_ports(fresh, HOST)
        for record in records:
            known = known.after(record)
        assert known == whole

    def teardown(self):
        if self.log.records:
            self.replay()

    def check_lacking(self, life, lacking, *, single):
        """A life that knows everything counts right."""
        if life.read < len(self.log.records) or life.now is None or not single:
            return
        free = self.log.table.free(life.now) - life.reserved()
        runs = [
            start
            for start in PORTS
            if set(range(start, start + lacking.wanted)) <= free
        ]
        assert not runs
        assert lacking.free == len(free)
        asleep = set(self.log.table.released_at) - self.log.table.free(life.now)
        assert lacking.resting == len(asleep - life.reserved())
