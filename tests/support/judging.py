"""A judge of leases and his clock: half seconds pass as a test wants them to."""

from projections import Guard, LeaseBook
from tests.support.fleet_builder import (
    NAMESPACE,
    incarnation,
    registered,
    state_after,
)

TTL = 10.0


def key(worker):
    return (NAMESPACE, worker, incarnation(worker))


def lives(count, **fields):
    steps = [registered(f"w{n}", lease_ttl_s=TTL, **fields) for n in range(count)]
    return state_after(*steps).lives


class Watch:
    """A judge and his clock: beats and canaries come each half second, or do not."""

    def __init__(self, count=1, **guard):
        self.lives = lives(count)
        self.book = LeaseBook(Guard(**guard))
        self.now = 0.0
        self.servers = {}
        self.server = ""
        self.book.judge(self.lives, 0.0)

    def run(self, s, beating=(), *, canary=True):
        """Half seconds pass until ``s`` have; the last verdict."""
        verdict = self.book.judge(self.lives, self.now, self.server)
        for _ in range(int(s * 2)):
            self.now += 0.5
            for worker in beating:
                self.book.beat(key(worker), self.now, self.servers.get(worker, ""))
            if canary:
                self.book.canary_sent(self.now)
                self.book.canary_returned(self.now, self.now)
            verdict = self.book.judge(self.lives, self.now, self.server)
        return verdict


def names(verdict):
    return sorted(overdue.life.worker_id for overdue in verdict.expire)
