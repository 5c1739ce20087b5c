"""A router as a witness: the fleet that it had, beside what the log said by then."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Any

import msgspec

from controlplane.presence import KeptReport
from events import Record, WorkerExpired
from projections import (
    Explainer,
    Explanation,
    FleetDifference,
    PlaneState,
    Trail,
    parse_epoch,
)

from .history import History
from .moments import PointInTime
from .player import Progress, before_end, state_at, whole_ends
from .selecting import record_at
from .sightings import RouterElsewhereError, Sighting, sighting


class Testimony(msgspec.Struct, frozen=True, kw_only=True):
    """What a router had at a moment, and what the log already said."""

    sighting: Sighting
    had: PlaneState
    """At the revision that the router reported last."""
    log: PlaneState
    """At the moment."""
    difference: FleetDifference
    """From what it had to what the log said."""

    @property
    def agrees(self) -> bool:
        """Whether the router's digest is that of the log at its revision."""
        said = self.sighting.said
        return said.epoch is None or said.digest == self.had.fleet.digest

    @property
    def lag(self) -> int:
        """So many revisions the log was ahead of what the router had reported."""
        return max(0, self.log.revision - self.sighting.said.revision)

    def document(self) -> dict[str, Any]:
        """All of it as plain data, with the fleet that the router had."""
        log = self.log
        return {
            **self.sighting.document(),
            "revision_at_most": self.sighting.revision_at_most(log.revision),
            "agrees": self.agrees,
            "fleet": self.had.fleet.document(),
            "log": {
                "revision": log.revision,
                "digest": log.fleet.digest,
                "recorded_at": log.fold_state.recorded_at,
                "lag": self.lag,
                "differences": self.difference.document(),
            },
        }


async def time_of(history: History, moment: PointInTime | None) -> datetime | None:
    """When the moment was: of a record, when it was recorded; None: at the end.

    Raises what `record_at` raises.
    """
    match moment:
        case datetime():
            return moment
        case timedelta():
            return await before_end(history, await history.ends(), moment)
        case None:
            return (await history.ends()).now
        case _:
            return (await record_at(history, moment)).recorded_at


async def sighting_in(
    history: History, reports: list[KeptReport], at: datetime | None
) -> Sighting:
    """What the router of the ``reports`` saw ``at`` that time, of this log.

    Raises `RouterUnseenError`, and `RouterElsewhereError` when it followed another
    log, or a part of this one that was lost since.
    """
    found = sighting(reports, at)
    said = found.said
    epoch = None if said.epoch is None else parse_epoch(said.epoch)
    if epoch is not None and epoch.log_id != history.log_id:
        message = (
            f"router {said.name!r} followed log {epoch.log_id} then, and this is "
            f"{history.log_id}; look at that one, if there is an archive of it"
        )
        raise RouterElsewhereError(message)
    last = (await history.ends()).last
    if said.revision > last:
        message = (
            f"router {said.name!r} was at revision {said.revision} then, and the log "
            f"ends at {last}: it lost records; see: controlplane log verify"
        )
        raise RouterElsewhereError(message)
    return found


async def recall(
    history: History, found: Sighting, progress: Progress | None = None
) -> Testimony:
    """The fleet that the router had, and what the log said at that moment.

    Raises as `state_at`.
    """
    had = await state_at(history, found.said.revision, progress)
    log = await state_at(history, found.at, progress)
    trail = Trail(had.fleet, log.fleet)
    first, last = sorted((had.revision, log.revision))
    if first < last:
        async for records in history.batches(first, last):
            trail.feed(records)
    return Testimony(sighting=found, had=had, log=log, difference=trail.result())


class WhyPicked(msgspec.Struct, frozen=True, kw_only=True):
    """How a worker stood for a router at a moment, and in the log."""

    sighting: Sighting
    had: Explanation
    """At the revision that the router reported last."""
    at_most: Explanation
    """At the furthest that the router can have been."""
    log: Explanation
    """In the log, at the moment."""
    following: Record | None
    """The next record of the worker itself, which nobody knew yet."""

    @property
    def picked(self) -> str:
        """``yes``: the router would pick it; ``no``; or ``maybe``."""
        found = self.sighting
        if found.stopped:
            return "no"
        key = (self.log.namespace, self.log.worker_id)
        if found.has_ejected(key):
            return "no"
        answers = {one.state == "routable" for one in (self.had, self.at_most)}
        if len(answers) > 1:
            return "maybe"
        return "yes" if answers == {True} else "no"

    @property
    def silent_since(self) -> datetime | None:
        """The last beat of a worker that was dead, or away, and not expired yet."""
        record = self.following
        if record is None or not isinstance(record.event, WorkerExpired):
            return None
        last = record.recorded_at - timedelta(seconds=record.event.silent_for_s)
        return last if last <= self.sighting.at else None

    def document(self) -> dict[str, Any]:
        """All of it as plain data."""
        following = self.following
        return {
            "worker": self.log.name,
            "router": self.sighting.document(),
            "would_pick": self.picked,
            "ejected": self.sighting.has_ejected(
                (self.log.namespace, self.log.worker_id)
            ),
            "had": _standing(self.had),
            "at_most": _standing(self.at_most),
            "log": self.log.document(),
            "silent_since": self.silent_since,
            "next_revision": None if following is None else following.revision,
        }


def _standing(found: Explanation) -> dict[str, Any]:
    return {
        "revision": found.revision,
        "state": found.state,
        "since": found.since,
        "blockers": [reason.blocker for reason in found.reasons],
    }


async def why_picked(
    history: History,
    worker: str,
    found: Sighting,
    following: Record | None,
    progress: Progress | None = None,
) -> WhyPicked:
    """How ``worker``, as ``namespace/worker_id``, stood at what the router saw.

    Raises `InvalidIdentityError`, `HistoryTruncatedError`.
    """
    ends = await whole_ends(history)
    stand = _Stands(worker, found)
    async for records in history.batches(0, ends.last):
        stand.feed(records)
        if progress is not None:
            progress(records[-1].revision, ends.last)
        if stand.is_done:
            break
    results = stand.results()
    return WhyPicked(
        sighting=found,
        had=results["had"],
        at_most=results["at_most"],
        log=results["log"],
        following=following,
    )


class _Stands:
    """Takes down how a worker stood at three moments, in one reading of the log."""

    def __init__(self, worker: str, found: Sighting) -> None:
        low = found.said.revision
        most = found.revision_at_most(sys.maxsize)
        self._explainer = Explainer(worker)
        self._results: dict[str, Explanation] = {}
        self._waits: dict[str, Callable[[Record], bool]] = {
            "had": lambda record: record.revision > low,
            "at_most": lambda record: (
                record.revision > most
                or (record.revision > low and record.recorded_at > found.at)
            ),
            "log": lambda record: record.recorded_at > found.at,
        }

    @property
    def is_done(self) -> bool:
        """Whether no more records are needed."""
        return not self._waits

    def feed(self, records: Iterable[Record]) -> None:
        for record in records:
            past = [name for name, is_past in self._waits.items() if is_past(record)]
            for name in past:
                del self._waits[name]
                self._results[name] = self._explainer.result()
            if not self._waits:
                return
            self._explainer.feed((record,))

    def results(self) -> dict[str, Explanation]:
        """What was taken down; what the log did not reach is as it is at its end."""
        for name in self._waits:
            self._results[name] = self._explainer.result()
        return self._results
