"""S17, S18: whoever did not see beats does not count silence; the dead die later."""

import pytest

from controlplane.beats import Beat
from controlplane.projector.effects import Expire
from tests.support.fleet_builder import NAMESPACE, given, incarnation, registered
from tests.support.projecting import LOG_ID, Bench, ViewList

TTL = 10.0
LIVES = ["w1", "w2", "w3"]


class Judge:
    """A leader, his clock, and workers who beat every second while they live."""

    def __init__(self):
        steps = [registered(w, lease_ttl_s=TTL) for w in LIVES]
        self.records, self.view = list(given(*steps)), ViewList()
        self.snapshots = []
        self.bench = self.leader(0.0)

    def leader(self, now):
        bench = Bench(self.records, self.view, snapshots=self.snapshots)
        bench.now = now
        bench.win()
        bench.settle()
        return bench

    def live(self, s, alive, *, reachable=True):
        """``s`` seconds pass; unreachable, nothing arrives. Who is expired?"""
        bench, expired = self.bench, set()
        for _ in range(int(s)):
            now = bench.now + 1.0
            bench.book.canary_sent(now)
            if reachable:
                for worker in alive:
                    beat = Beat(
                        incarnation=incarnation(worker), log_id=LOG_ID, revision=1
                    )
                    bench.do(bench.core.beat(NAMESPACE, worker, beat, now))
                bench.book.canary_returned(now, now)
            for effect in bench.tick(1.0):
                if isinstance(effect, Expire):
                    expired.add(effect.life.worker_id)
            if reachable and not bench.leads:
                bench.win()
                bench.settle()
        return expired


@pytest.mark.parametrize("outage_s", [3, 12, 30, 300])
def test_an_outage_of_the_broker_expires_nobody_however_long(outage_s):
    judge = Judge()
    judge.live(5, LIVES)
    assert judge.live(outage_s, LIVES, reachable=False) == set()
    assert judge.live(TTL * 3, LIVES) == set()


def test_who_died_in_the_outage_is_expired_after_it():
    judge = Judge()
    judge.live(5, LIVES)
    judge.live(30, LIVES, reachable=False)
    assert judge.live(TTL - 1, LIVES[1:]) == set()
    assert judge.live(3, LIVES[1:]) == {"w1"}


def test_an_outage_of_the_projection_gives_everybody_a_lease_to_speak_up():
    judge = Judge()
    judge.live(5, LIVES)
    judge.bench = judge.leader(now=500.0)
    assert judge.live(TTL - 1, LIVES[1:]) == set()
    assert judge.live(3, LIVES[1:]) == {"w1"}
    assert judge.live(TTL * 2, LIVES[1:]) == {"w1"}
