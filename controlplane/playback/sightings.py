"""What a router saw at a moment: by what it reported before it and after. Pure.

Times are the broker's: that of storing, for a router's clock may say anything. Only
what a router reported while it had no contact, noticed or not, is stored later than it
was said; of that the router's clock tells how long before the report with which contact
came back.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec

from controlplane.presence import KeptReport, Presence, RouterReport
from events import ControlPlaneError, Revision
from projections import WorkerKey

CONTACT_LOST: Final = "contact lost"
STOPPED: Final = "stopped"
RESYNC: Final = "resync"
HEARD_OF_S: Final = 3.0
"""A router hears of the leader each second; who did not for so long hears nothing."""
REGULARLY_S: Final = 10.0
"""A router reports at least so often…"""
SILENT_S: Final = 2.5 * REGULARLY_S
"""…and who said nothing for so long, and no goodbye, was gone or had no contact."""
HELD_BACK: Final = timedelta(seconds=2)
"""What was held back is stored within so short a time when there is contact again."""
BACK: Final = timedelta(seconds=30)
"""…and followed by another report within so long."""


class RouterUnseenError(ControlPlaneError):
    """No report tells what the router saw then. Ask for another, or a later moment."""


class RouterElsewhereError(ControlPlaneError):
    """The router did not follow this log then. Look at the log that it followed."""


class Sighting(msgspec.Struct, frozen=True, kw_only=True):
    """What a router last reported before a moment, and what it reported next."""

    at: datetime
    said_at: datetime
    """When the ``report`` was made, by the broker's clock."""
    report: RouterReport
    next_at: datetime | None
    next: RouterReport | None
    """None: it reported nothing after the moment, so far."""

    @property
    def said(self) -> Presence:
        """Where the router stood at ``said_at``."""
        return self.report.presence

    @property
    def report_age_s(self) -> float:
        """How long before the moment it was that the router reported."""
        return (self.at - self.said_at).total_seconds()

    @property
    def stopped(self) -> bool:
        """Whether the router had left by itself."""
        return self.report.reason == STOPPED

    @property
    def silent(self) -> bool:
        """Whether it had reported nothing for longer than it ever does."""
        return not self.stopped and self.report_age_s > SILENT_S

    @property
    def out_of_contact(self) -> bool:
        """Whether it had said, last of all, that it lost contact."""
        return self.report.reason == CONTACT_LOST

    @property
    def was_cut_off(self) -> bool:
        """Whether it heard of nothing more until its next report, or not so far."""
        if self.out_of_contact:
            return True
        resynced = self.next is None or self.next.reason.startswith(RESYNC)
        return self.said.stale_for_s > HEARD_OF_S and resynced

    @property
    def stale(self) -> tuple[float, bool]:
        """Seconds since it was known to have all there is; False: no more than that."""
        before = self.said.stale_for_s + self.report_age_s
        if self.next is not None and self.next_at is not None:
            fresh_at = self.next_at - timedelta(seconds=self.next.presence.stale_for_s)
            if fresh_at <= self.at:
                return min(before, (self.at - fresh_at).total_seconds()), True
        return before, self.was_cut_off

    def revision_at_most(self, log_then: Revision) -> Revision:
        """How far it may have been at the moment, when the log was at ``log_then``.

        It was at least where it reported to be.
        """
        low = self.said.revision
        if self.was_cut_off or self.stopped:
            return low
        after = self.next
        if after is not None and after.presence.epoch == self.said.epoch:
            log_then = min(log_then, after.presence.revision)
        return max(low, log_then)

    @property
    def ejected(self) -> tuple[str, ...]:
        """Whom it kept away from at the moment, as ``namespace/worker_id``."""
        left = self.report.ejected_for_s
        if len(left) != len(self.report.ejected):
            return self.report.ejected
        pairs = zip(self.report.ejected, left, strict=True)
        return tuple(name for name, left_s in pairs if left_s > self.report_age_s)

    def has_ejected(self, worker: WorkerKey) -> bool:
        """Whether it kept away from this worker at the moment."""
        return "/".join(worker) in self.ejected

    def document(self) -> dict[str, Any]:
        """The sighting as plain data."""
        stale_for_s, exact = self.stale
        return {
            "router": self.said.name,
            "at": self.at,
            "reported_at": self.said_at,
            "reason": self.report.reason,
            "epoch": self.said.epoch,
            "revision": self.said.revision,
            "digest": self.said.digest,
            "source": self.said.source,
            "stale_for_s": round(stale_for_s, 3),
            "stale_is_exact": exact,
            "ejected": list(self.ejected),
            "silent": self.silent,
            "stopped": self.stopped,
            "next_reported_at": self.next_at,
            "next_revision": None if self.next is None else self.next.presence.revision,
        }


def sighting(reports: Sequence[KeptReport], at: datetime | None) -> Sighting:
    """What the router of these ``reports`` saw ``at`` that time; None: at the last.

    Raises `RouterUnseenError` when it had reported nothing yet.
    """
    times = said_at(reports)
    place = len(reports) - 1
    if at is not None:
        place = max((i for i, time in enumerate(times) if time <= at), default=-1)
    if place < 0:
        name = reports[0].report.presence.name if reports else ""
        first = f"{times[0]:%FT%T}Z" if times else "never"
        message = (
            f"router {name!r} had reported nothing by then: the first of its reports "
            f"that are kept (7 days) is of {first}; ask for a later moment"
        )
        raise RouterUnseenError(message)
    after = place + 1 < len(reports)
    return Sighting(
        at=times[place] if at is None else at,
        said_at=times[place],
        report=reports[place].report,
        next_at=times[place + 1] if after else None,
        next=reports[place + 1].report if after else None,
    )


def said_at(reports: Sequence[KeptReport]) -> list[datetime]:
    """When each report was made, by the broker's clock; never before the one before."""
    times = [kept.stored_at for kept in reports]
    place = 0
    while place < len(reports):
        if not _may_be_late(reports, place):
            place += 1
            continue
        end = _held_back(reports, place)
        back = _contact_again(reports, place, end)
        for held in range(place, end):
            if back is not None and held < back:
                ago = reports[back].report.at - reports[held].report.at
                times[held] = min(times[held], times[back] - max(ago, timedelta(0)))
            if held:
                times[held] = max(times[held], times[held - 1])
        place = end
    return times


def _may_be_late(reports: Sequence[KeptReport], place: int) -> bool:
    """Whether a report may have been stored later than it was made.

    It says that there was no contact; or nothing was stored before for longer than a
    router is ever silent, which happens when it did not notice that there was none.
    """
    if reports[place].report.reason == CONTACT_LOST:
        return True
    if place == 0:
        return False
    gap = reports[place].stored_at - reports[place - 1].stored_at
    return gap.total_seconds() > REGULARLY_S + HELD_BACK.total_seconds()


def _held_back(reports: Sequence[KeptReport], lost: int) -> int:
    """The end of what was stored together with the report at ``lost``."""
    end = lost + 1
    while (
        end < len(reports)
        and reports[end].stored_at - reports[lost].stored_at <= HELD_BACK
    ):
        end += 1
    return end


def _contact_again(reports: Sequence[KeptReport], lost: int, end: int) -> int | None:
    """The report with which contact was back, made as it was stored."""
    if end > lost + 1:
        return end - 1
    if end < len(reports) and reports[end].stored_at - reports[lost].stored_at <= BACK:
        return end
    return None
