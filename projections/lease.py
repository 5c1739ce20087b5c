"""Who is overdue: leases judged by arrival, forgiving what the judge did not see.

Time is the judge's own monotonic clock, handed in with each call. A life is overdue
when it has been silent for longer than its lease, not counting the judge's blind time,
at a moment that a canary has proven: one sent after the deadline came back the way
that beats come, so a beat sent before would have come too.

Whoever is blind judges nobody, and cannot know which beats he missed: when he sees
again, nobody is expired before he could have beaten once more, or two leases are over.

Two brakes delay, with a bound, and never forgive:
- the guard: if more than a share of all lives, and at least so many, fall silent
  together, they are held for ``hold_s`` (a network is likelier than so many deaths);
- the server rule: lives that beat through one NATS server and fell silent all
  together, while the judge's own way is sound, are held as long at most.
A hold ends at a moment that a canary has proven, too: who was stopped meanwhile has
beats to hear first.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from typing import Final

import msgspec

from .life import Life, LifeKey, Lives

NEXT_BEAT_SHARE: Final = 1 / 2
"""Within this share of its lease a life beats at least once: twice in one at least."""
LEASES_MAX: Final = 2
"""After so many leases of silence nobody is awaited, however often sight was lost."""
SILENT_SHARE: Final = 2 / 3
"""After this share of its lease without a beat (two missed) a life counts as silent."""


class Guard(msgspec.Struct, frozen=True, kw_only=True):
    """When expiry is held, and for how long at most."""

    share: float = 0.5
    least: int = 5
    hold_s: float = 30.0
    blind_gap_s: float = 1.0
    """A longer gap between canary returns counts as blind."""


class Overdue(msgspec.Struct, frozen=True):
    """A life to expire, and how long it was silent, blind time not counted."""

    life: Life
    silent_for_s: float


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What to do now."""

    expire: tuple[Overdue, ...] = ()
    """In order of their lives' keys."""
    held: int = 0
    """Overdue lives that a brake keeps, or whose next beat is awaited."""
    guard_engaged: bool = False


class _Pulse:
    __slots__ = ("blind_s", "heard_at", "server_id")

    def __init__(self, heard_at: float, blind_s: float, server_id: str) -> None:
        self.heard_at, self.blind_s, self.server_id = heard_at, blind_s, server_id


class LeaseBook:
    """Remembers each life's last beat. One per projector, leader or not."""

    def __init__(self, guard: Guard) -> None:
        """Judge by ``guard``."""
        self._guard = guard
        self._pulses: dict[LifeKey, _Pulse] = {}
        self._returned_at: float | None = None
        self._proven_at: float | None = None
        self._watching_from: float | None = None
        self._guard_since: float | None = None
        self._servers_since: dict[str, float] = {}
        self._quiet_until: float | None = None
        self._sighted_at = -math.inf
        self._last = Verdict()
        self.blind_s = 0.0
        """All blind time so far."""

    def welcome(self, key: LifeKey, lease_ttl_s: float, now: float) -> None:
        """A life registered, began or has another lease: it is watched from here on."""
        pulse = self._pulses.setdefault(key, _Pulse(now, self.blind_s, ""))
        if self._quiet_until is not None:
            silent_at = pulse.heard_at + lease_ttl_s * SILENT_SHARE
            self._quiet_until = min(self._quiet_until, silent_at)

    @property
    def is_quiet(self) -> bool:
        """Whether nobody can have fallen silent since the last look at everybody.

        Provided that every life which began since then was welcomed: beats only move
        silence away.
        """
        quiet_until, at = self._quiet_until, self._proven_at
        return quiet_until is not None and at is not None and at <= quiet_until

    def beat(self, key: LifeKey, now: float, server_id: str = "") -> None:
        """Note a beat of a life, arrived ``now``. Unknown lives are noted too."""
        pulse = self._pulses.get(key)
        if pulse is None:
            self._pulses[key] = _Pulse(now, self.blind_s, server_id)
        else:
            pulse.heard_at, pulse.blind_s = now, self.blind_s
            pulse.server_id = server_id

    def canary_sent(self, now: float) -> None:
        """Note that a canary was sent: from the first on, they should return."""
        if self._watching_from is None:
            self._watching_from = now

    def canary_returned(self, sent_at: float, now: float) -> None:
        """Note that what was sent at ``sent_at`` the way of beats came back ``now``."""
        if self._returned_at is not None:
            gap = now - self._returned_at
            if gap > self._guard.blind_gap_s:
                self.blind_s += gap
                for pulse in self._pulses.values():
                    # What came before the pulse is no excuse for silence after it.
                    pulse.blind_s += max(0.0, pulse.heard_at - self._returned_at)
                self.sighted(now)
        self._returned_at = now
        self._proven_at = sent_at

    def sighted(self, now: float) -> None:
        """Note that beats can be heard again from ``now`` on, after some were lost."""
        self._sighted_at = now

    def come_back(self, before: Lives, lives: Lives, now: float) -> None:
        """Give a full lease to each of ``lives`` that had ended ``before``.

        The log lost what had ended it. Beats of an ended life are not noted, so its
        silence since then is none.
        """
        for key, was in before.items():
            life = lives.get(key) if was.ended else None
            if life is not None and not life.ended:
                self._pulses[key] = _Pulse(now, self.blind_s, "")

    def start_over(self, now: float) -> None:
        """Give every life a full lease: beats were lost on the judge's own side."""
        for pulse in self._pulses.values():
            pulse.heard_at, pulse.blind_s = now, self.blind_s

    def canary_silent_s(self, now: float) -> float:
        """How long ago the last canary returned; 0 before the first was sent."""
        since = self._watching_from if self._returned_at is None else self._returned_at
        return 0.0 if since is None else now - since

    def judge(self, lives: Lives, now: float, own_server: str = "") -> Verdict:
        """Who is overdue ``now``. Lives not seen before start with a full lease.

        ``own_server``: the NATS server that the canary came through.
        """
        self._forget(lives)
        self._quiet_until = None
        at = self._proven_at
        if at is None or self._is_blind(now):
            self._welcome(lives, now)
            return msgspec.structs.replace(self._last, expire=())
        earliest = math.inf
        overdue: list[Overdue] = []
        silent: list[Life] = []
        for key, life in lives.items():
            pulse = self._pulses.get(key)
            if pulse is None:
                pulse = self._pulses[key] = _Pulse(now, self.blind_s, "")
            silence_s = at - pulse.heard_at - (self.blind_s - pulse.blind_s)
            left_s = life.lease_ttl_s * SILENT_SHARE - silence_s
            earliest = min(earliest, at + left_s)
            if left_s < 0:
                silent.append(life)
                if silence_s > life.lease_ttl_s:
                    overdue.append(Overdue(life, silence_s))
        if not silent:
            self._quiet_until = earliest
        verdict = self._brake(lives, overdue, silent, (at, now), own_server)
        self._last = _without_those_to_await(verdict, at - self._sighted_at)
        return self._last

    def _is_blind(self, now: float) -> bool:
        """Whether what was proven is old: beats may wait that nobody has looked at."""
        returned_at = self._returned_at
        return returned_at is None or now - returned_at > self._guard.blind_gap_s

    def _brake(
        self,
        lives: Lives,
        overdue: list[Overdue],
        silent: list[Life],
        times: tuple[float, float],
        own_server: str,
    ) -> Verdict:
        """What the brakes leave. ``times``: up to when silence is proven, and now."""
        proven_at, now = times
        if not overdue:
            self._guard_since = None
            self._servers_since.clear()
            return Verdict()
        guard = self._guard
        # Both brakes begin at once, so that together they hold no longer than one.
        kept = self._kept_servers(lives, silent, times, own_server)
        mass = len(silent) >= guard.least and len(silent) > guard.share * len(lives)
        if not mass:
            self._guard_since = None
        elif self._guard_since is None:
            self._guard_since = now
        since = self._guard_since
        if since is not None and proven_at - since < guard.hold_s:
            return Verdict(held=len(overdue), guard_engaged=True)
        expire = [o for o in overdue if self._server_of(o.life) not in kept]
        expire.sort(key=_key)
        return Verdict(
            expire=tuple(expire),
            held=len(overdue) - len(expire),
            guard_engaged=bool(kept),
        )

    def _kept_servers(
        self,
        lives: Lives,
        silent: Iterable[Life],
        times: tuple[float, float],
        own_server: str,
    ) -> set[str]:
        """Servers whose clients fell silent all together, a short while ago."""
        total: defaultdict[str, int] = defaultdict(int)
        for life in lives.values():
            total[self._server_of(life)] += 1
        quiet: defaultdict[str, int] = defaultdict(int)
        for life in silent:
            quiet[self._server_of(life)] += 1
        stopped = {
            server
            for server, count in quiet.items()
            if server not in ("", own_server) and count == total[server] and count > 1
        }
        proven_at, now = times
        since = {s: self._servers_since.get(s, now) for s in stopped}
        self._servers_since = since
        return {s for s in stopped if proven_at - since[s] < self._guard.hold_s}

    def _server_of(self, life: Life) -> str:
        pulse = self._pulses.get(life.key)
        return "" if pulse is None else pulse.server_id

    def _welcome(self, lives: Lives, now: float) -> None:
        for key in lives:
            if key not in self._pulses:
                self._pulses[key] = _Pulse(now, self.blind_s, "")

    def _forget(self, lives: Lives) -> None:
        if len(self._pulses) > len(lives):
            gone = [key for key in self._pulses if key not in lives]
            for key in gone:
                del self._pulses[key]


def _without_those_to_await(verdict: Verdict, sighted_s: float) -> Verdict:
    """Only who had a chance to beat since the judge sees again, or long enough."""
    expire = tuple(
        overdue
        for overdue in verdict.expire
        if sighted_s > overdue.life.lease_ttl_s * NEXT_BEAT_SHARE
        or overdue.silent_for_s > overdue.life.lease_ttl_s * LEASES_MAX
    )
    awaited = len(verdict.expire) - len(expire)
    return msgspec.structs.replace(verdict, expire=expire, held=verdict.held + awaited)


def _key(overdue: Overdue) -> LifeKey:
    return overdue.life.key
