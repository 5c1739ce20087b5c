"""What a demo shows while it runs, and how its end is judged. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

SECONDS_MAX: Final = 60.0
"""A demo that took longer is not ok, whatever it found."""


class DemoEvent(msgspec.Struct, frozen=True):
    """Something that a spectator wants to know, in plain words."""

    at_s: float
    """Seconds since the demo began."""
    kind: str
    """``start``, ``phase``, ``kill``, ``takeover``, ``restart``, ``expiry``,
    ``traffic``, ``agreement``, ``problem``, ``end``, or ``output``: a line that a
    process wrote which failed.
    """
    text: str


class Standing(msgspec.Struct, frozen=True):
    """Where one party stood at the end: a row of the closing table."""

    who: str
    revision: int
    digest: str


class Traffic(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the routers' requests."""

    picks: int = 0
    failed_picks: int = 0
    """`pick` raised."""
    picks_to_dead: int = 0
    """A worker was picked long after it had been killed."""
    answered: int = 0
    retried: int = 0
    """The worker could not be reached, or went away, and is avoided for a while."""
    cut_off: int = 0
    """The worker went away in the midst of its answer: no other could go on with it."""
    failed_requests: int = 0
    """No worker that was picked could be reached."""


class DemoResult(msgspec.Struct, frozen=True, kw_only=True):
    """How the demo ended; ``problems`` says what differed, and is empty if it is ok."""

    rows: tuple[Standing, ...]
    """The projectors first, then the routers, then the replay."""
    digests: dict[str, str]
    revision: int
    traffic: Traffic
    seconds: float
    problems: tuple[str, ...] = ()
    output_dir: str | None = None
    """Where the processes' output is, if it was kept."""

    @property
    def ok(self) -> bool:
        """Whether everything was as promised."""
        return not self.problems

    def document(self) -> dict[str, Any]:
        """The document of ``controlplane demo -o json``."""
        return {
            "ok": self.ok,
            "digests": dict(self.digests),
            "revision": self.revision,
            "picks": self.traffic.picks,
            "failed_picks": self.traffic.failed_picks,
            "picks_to_dead": self.traffic.picks_to_dead,
            "seconds": round(self.seconds, 2),
        }


REPLAY: Final = "replay"


def judge(
    *,
    standings: Sequence[Standing],
    traffic: Traffic,
    seconds: float,
    problems: Sequence[str] = (),
    leader: str | None = None,
) -> DemoResult:
    """The result of a demo that ended with these ``standings``.

    All of them must agree with the `REPLAY`, in revision and in digest. In the
    document, ``projector`` is the ``leader`` among them.
    """
    found = list(problems)
    replay = next((row for row in standings if row.who == REPLAY), None)
    if replay is None:
        found += [] if problems else ["the log was not replayed"]
    else:
        found += [
            difference
            for row in standings
            if (difference := _difference(row, replay)) is not None
        ]
    found += _judge_traffic(traffic)
    if not traffic.picks and not problems:
        found.append("the routers picked nothing")
    if seconds > SECONDS_MAX:
        found.append(f"the demo took {seconds:.0f} s, more than {SECONDS_MAX:.0f}")
    names = {row.who: row.digest for row in standings}
    projectors = [leader] if leader else [n for n in names if n.startswith("projector")]
    digests = {"projector": names.get(projectors[0], "") if projectors else ""}
    digests |= {who: names.get(who, "") for who in ("router-a", "router-b", REPLAY)}
    return DemoResult(
        rows=tuple(standings),
        digests=digests,
        revision=0 if replay is None else replay.revision,
        traffic=traffic,
        seconds=seconds,
        problems=tuple(found),
    )


def _difference(row: Standing, replay: Standing) -> str | None:
    if (row.revision, row.digest) == (replay.revision, replay.digest):
        return None
    return (
        f"{row.who} is at revision {row.revision} with digest {row.digest}, the replay "
        f"of the log at revision {replay.revision} with digest {replay.digest}"
    )


def _judge_traffic(traffic: Traffic) -> list[str]:
    faults = {
        "picks failed": traffic.failed_picks,
        "picks went to a worker that was long dead": traffic.picks_to_dead,
        "requests reached no worker": traffic.failed_requests,
    }
    return [f"{count} {what}" for what, count in faults.items() if count]
