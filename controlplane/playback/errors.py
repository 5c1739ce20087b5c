"""Why a moment cannot be shown. The class says the caller's next move."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from events import ControlPlaneError, Revision

FORMS = "a revision, a time as 2026-01-31T12:00:00 (UTC if it does not say) or -10m"


class MomentInvalidError(ControlPlaneError):
    """The text names no moment. Say it in one of the forms."""

    def __init__(self, text: str, *, files: bool = True) -> None:
        """Quote the ``text``; say whether ``files`` would do."""
        self.text = text
        forms = f"{FORMS}, or an event's id"
        if files:
            forms = f"{FORMS}, an event's id, or the path of an archive or a router's"
            forms += " checkpoint"
        super().__init__(f"moment {text!r} is not valid: {forms}")


class TypeUnknownError(ControlPlaneError):
    """No record has such a type. Name one that there is."""

    def __init__(self, text: str, known: Sequence[str]) -> None:
        """Quote the ``text`` and list what is ``known``."""
        self.text, self.known = text, tuple(known)
        super().__init__(f"type {text!r} is not valid: one of {', '.join(known)}")


class MomentAheadError(ControlPlaneError):
    """The log does not reach so far. Ask again later, or for an earlier moment."""

    def __init__(self, *, revision: Revision, last: Revision) -> None:
        """Give the ``revision`` asked for and the ``last`` that there is."""
        self.revision, self.last = revision, last
        super().__init__(
            f"the log ends at revision {last}, before {revision}: nothing to show yet"
        )


class MomentTooEarlyError(ControlPlaneError):
    """The log began later. Ask for a later moment."""

    def __init__(self, *, time: datetime, began: datetime) -> None:
        """Give the ``time`` asked for and when the log ``began``."""
        self.time, self.began = time, began
        super().__init__(
            f"time {time.isoformat()} is before the log's first record, of "
            f"{began.isoformat()}; ask for a later one"
        )


class EventNotFoundError(ControlPlaneError):
    """No record has this event id. Look for it in another log, or correct it."""

    def __init__(self, *, event_id: str, last: Revision) -> None:
        """Give the ``event_id`` and the ``last`` revision that was searched."""
        self.event_id, self.last = event_id, last
        super().__init__(
            f"no record up to revision {last} has the event id {event_id}; "
            "see what there is: controlplane log tail -o ndjson"
        )


class RecordRemovedError(ControlPlaneError):
    """The log holds no record there: it was removed. Ask for another."""

    def __init__(self, *, revision: Revision, first: Revision) -> None:
        """Give the ``revision`` asked for and the ``first`` that there is; 0: none."""
        self.revision, self.first = revision, first
        if not first:
            super().__init__("there is no record: the log is empty")
            return
        why = "it was purged" if revision >= first else f"the log begins at {first}"
        super().__init__(f"there is no record at revision {revision}: {why}")
