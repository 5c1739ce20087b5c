"""Claims, releases, crashes, zombies and lost answers in any order, and what holds.

Rules draw a number where they choose, so that a failing run shrinks to few and small.
"""

import random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    initialize,
    precondition,
    rule,
)

from events import PortOwner
from projections import (
    Held,
    Lacking,
    PortBlock,
    Want,
    choose,
    reclaim,
)
from tests.property.claiming_invariants import Holding
from tests.property.claiming_world import (
    COOLDOWN_S,
    HOST,
    PORTS,
    WITHIN,
    Doubt,
    Life,
    Message,
)
from tests.support.fleet_builder import uuid7

PICKS = st.integers(0, 999)
PORT = st.sampled_from(PORTS)
SIZES = st.lists(st.integers(1, 5), min_size=1, max_size=2)
FATES = st.sampled_from(["answered", "lost after", "lost after", "lost before", "late"])
GARBAGE = st.sampled_from(
    [b"garbage", b"", b'{"type":"port_released.v2"}', b'{"type":"port_released.v1"}']
)


def up(_world, life):
    return life.up


def doubting(_world, life):
    return life.up and bool(life.doubts)


def holding(_world, life):
    return life.up and bool(life.blocks)


def stopped(_world, life):
    return not life.up


def zombie(world, life):
    return not life.up and life.incarnation in world.ended and bool(life.blocks)


def there_is(wanted):
    """Only with such a life does the rule apply: no step is wasted."""
    return precondition(lambda world: any(wanted(world, one) for one in world.lives))


class Claiming(Holding):
    """Four workers on one host of twenty-four ports."""

    def one(self, pick: int, wanted) -> Life:
        """One of those that ``wanted`` takes; there is one, by the precondition."""
        some = [life for life in self.lives if wanted(self, life)]
        return some[pick % len(some)]

    # ---- claiming ------------------------------------------------------------------
    @there_is(up)
    @rule(pick=PICKS, sizes=SIZES, fate=FATES, seed=PICKS)
    def claim(self, pick, sizes, fate, seed):
        life = self.one(pick, up)
        wants = [Want("kv_events", size, WITHIN) for size in sizes]
        starts = choose(
            life.known,
            wants,
            now=life.now,
            cooldown_s=COOLDOWN_S,
            shunned=life.reserved(),
            chance=random.Random(seed),
        )
        if isinstance(starts, Lacking):
            self.check_lacking(life, starts, single=len(sizes) == 1)
            return
        blocks = [
            PortBlock(HOST, start, size, self.writer.id("claim"))
            for start, size in zip(starts, sizes, strict=True)
        ]
        batch = [
            self.writer.claim(block, port, life.owner, life.known.expected(port))
            for block in blocks
            for port in block
        ]
        free = self.log.table.free(self.log.now)
        self.send(life, Doubt(batch, blocks, claiming=True), fate, free)

    @initialize(seed=PICKS)
    def some_have_claimed(self, seed):
        for n in range(3):
            self.claim(n, [2 + n], "answered", seed)
            self.lives[n + 1].look(self.log)

    @there_is(up)
    @rule(pick=PICKS, sizes=SIZES, seed=PICKS)
    def look_and_claim(self, pick, sizes, seed):
        self.one(pick, up).look(self.log)
        self.claim(pick, sizes, "answered", seed)

    def send(self, life, doubt, fate, free=frozenset()):
        """Append it; the answer arrives, or only the sender's doubt is left."""
        if fate == "late":
            self.under_way.append(doubt.batch)
        stored = fate in ("answered", "lost after") and self.log.append(doubt.batch)
        if stored and doubt.claiming:
            wanted = {port for block in doubt.blocks for port in block}
            assert wanted <= free, "granted what was not free"
        if fate != "answered":
            life.doubts.append(doubt)
        elif stored:
            self.settle(life, doubt)
        else:
            life.look(self.log)  # a race was lost: it learns what happened

    def settle(self, life, doubt):
        if doubt.claiming:
            life.blocks += doubt.blocks
            self.granted |= {block.claim_id: block for block in doubt.blocks}
        life.follow(self.log)

    @there_is(doubting)
    @rule(pick=PICKS, which=PICKS, fate=FATES)
    def repeat(self, pick, which, fate):
        """The same bytes again. A refusal is explained by what the leader has."""
        life = self.one(pick, doubting)
        doubt = life.doubts.pop(which % len(life.doubts))
        if fate != "answered":
            self.send(life, doubt, fate, set(PORTS))
            return
        if self.log.append(doubt.batch):
            self.settle(life, doubt)
            return
        life.look(self.log)
        ports = life.known.ports
        for block in doubt.blocks:
            states = [ports.get(port) for port in block]
            mine = [
                isinstance(s, Held) and s.claim_id == block.claim_id for s in states
            ]
            assert all(mine) or not any(mine), "a block in parts"
            if doubt.claiming and all(mine):
                self.settle(life, Doubt(doubt.batch, [block], claiming=True))
            elif not doubt.claiming and all(mine):
                life.blocks.append(block)  # never released: it is held still

    @precondition(lambda self: self.under_way)
    @rule(pick=PICKS)
    def arrive_late(self, pick):
        """What was buffered on the way lands, whoever sent it."""
        self.log.append(self.under_way.pop(pick % len(self.under_way)))

    # ---- letting go ----------------------------------------------------------------
    @there_is(holding)
    @rule(pick=PICKS, which=PICKS, fate=FATES)
    def release(self, pick, which, fate):
        life = self.one(pick, holding)
        block = life.blocks.pop(which % len(life.blocks))
        life.follow(self.log)
        batch = self.releases(life, [block])
        self.send(life, Doubt(batch, [block], claiming=False), fate)
        if fate == "answered":
            assert not any(port in self.log.table.holder for port in block)

    def releases(self, life, blocks, cause="released"):
        return [
            self.writer.release(port, b.claim_id, life.known.expected(port), cause)
            for b in blocks
            for port in b
        ]

    @there_is(up)
    @rule(pick=PICKS)
    def register(self, pick):
        self.log.append([self.writer.registered(self.one(pick, up))])

    @there_is(up)
    @rule(pick=PICKS)
    def leave(self, pick):
        """Deregister and let everything go, in one batch."""
        life = self.one(pick, up)
        life.follow(self.log)
        batch = [self.writer.deregistered(life), *self.releases(life, life.blocks)]
        assert self.log.append(batch)
        self.begin_anew(life)

    def begin_anew(self, life):
        """A process that knows nothing, with the same name."""
        self.ended.add(life.incarnation)
        self.lives[self.lives.index(life)] = Life(life.worker, life.number + 1)

    # ---- dying and waking ----------------------------------------------------------
    @there_is(up)
    @rule(pick=PICKS)
    def crash(self, pick):
        """At any point: with claims, doubts and buffered bytes left behind."""
        self.begin_anew(self.one(pick, up))

    @there_is(holding)
    @rule(pick=PICKS)
    def stop(self, pick):
        self.one(pick, holding).up = False

    def silent(self):
        """The lives of the log that do not beat."""
        beating = {life.incarnation for life in self.lives if life.up}
        lives = self.log.state.lives
        return [lives[key] for key in sorted(lives) if key[2] not in beating]

    @precondition(lambda self: self.silent())
    @rule(pick=PICKS)
    def expire(self, pick):
        """The projector ends a life that does not beat, and all that it holds."""
        silent = self.silent()
        self.end(silent[pick % len(silent)])

    @there_is(holding)
    @rule(pick=PICKS)
    def oversleep(self, pick):
        life = self.one(pick, holding)
        life.up = False
        self.end(self.log.state.lives["n", life.worker, life.incarnation])

    def end(self, life):
        state = self.log.state
        owner = PortOwner(
            namespace=life.namespace,
            worker_id=life.worker_id,
            incarnation=life.incarnation,
        )
        batch: list[Message] = []
        if not life.ended:
            batch.append(self.writer.expired(owner))
        for key in sorted(life.ports):
            held = state.ports.ports[key]
            expected = state.ports.revisions[key]
            batch.append(
                self.writer.release(key[1], held.claim_id, expected, "expired")
            )
        assert self.log.append(batch)
        self.ended.add(life.incarnation)
        assert life.key not in self.log.state.lives

    @there_is(zombie)
    @rule(pick=PICKS)
    def zombie_releases(self, pick):
        """What it knew is over: its bytes change nothing."""
        life = self.one(pick, zombie)
        before = self.log.state.ports.digest
        assert not self.log.append(self.releases(life, life.blocks))
        assert self.log.state.ports.digest == before

    @there_is(stopped)
    @rule(pick=PICKS)
    def wake(self, pick):
        """If it was expired: a new life that claims the same ports, or is lost."""
        life = self.one(pick, stopped)
        life.up = True
        if life.incarnation not in self.ended:
            return
        new = Life(life.worker, life.number + 1, life.known, life.read, life.now)
        new.look(self.log)
        earlier = [uuid7("life", life.worker, n + 1) for n in range(life.number)]
        standing = reclaim(
            new.known,
            life.blocks,
            incarnation=new.incarnation,
            earlier=earlier,
            now=new.now,
            cooldown_s=COOLDOWN_S,
        )
        dumb = self.log.table
        of = {port: block for block in life.blocks for port in block}
        own = {p for p in of if dumb.released_by.get(p) == of[p].claim_id}
        others = {*dumb.holder, *dumb.unreadable}
        assert not standing.held
        assert not standing.waiting  # it was expired, and nobody revived it
        assert {port for port, _ in standing.claims} == (
            own | dumb.free(self.log.now)
        ) & set(of)
        assert set(standing.taken) == others & set(of)
        if standing.taken:
            self.begin_anew(life)  # final: nothing of the other's changed
            return
        if standing.resting:
            life.up = False  # it waits, and says nothing
            return
        batch = [
            self.writer.claim(of[port], port, new.owner, expected)
            for port, expected in standing.claims
        ]
        assert self.log.append([*batch, self.writer.registered(new)])
        new.blocks = life.blocks
        new.follow(self.log)
        self.lives[self.lives.index(life)] = new

    # ---- strangers -----------------------------------------------------------------
    @rule(port=PORT, payload=GARBAGE)
    def garbage(self, port, payload):
        subject = f"log.port.10%2E0%2E0%2E1.{port}"
        self.log.append([Message(subject, payload, None, ("garbage", port, ""))])

    @rule(port=PORT)
    def stray_claim(self, port):
        """Without an expectation, by a life that never beats."""
        block = PortBlock(HOST, port, 1, self.writer.id("claim"))
        stranger = PortOwner(
            namespace="n", worker_id="x", incarnation=uuid7("x", block.claim_id)
        )
        self.log.append([self.writer.claim(block, port, stranger, None)])
        self.granted[block.claim_id] = block

    @rule(port=PORT)
    def stray_release(self, port):
        self.log.append([self.writer.release(port, self.writer.id("claim"), None)])

    @rule(seconds=st.sampled_from([4.999, 5.0, 60.0]))
    def time_passes(self, seconds):
        self.log.pass_time(seconds)

    @there_is(up)
    @rule(pick=PICKS, count=st.integers(1, 9))
    def read_on(self, pick, count):
        self.one(pick, up).follow(self.log, count)

    @there_is(up)
    @rule(pick=PICKS)
    def look(self, pick):
        self.one(pick, up).look(self.log)


TestClaiming = Claiming.TestCase
# A zombie that wakes beside a late publish takes many steps to come about.
TestClaiming.settings = settings(
    max_examples=3 * settings.default.max_examples, stateful_step_count=80
)
