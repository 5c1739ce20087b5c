"""What an explanation says: a state, its reasons, and the records that led to it."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal, TypeAlias

import msgspec

from events import Checksum, Namespace, Record, Revision, Undecodable, UnknownEvent

from .anomaly import AnomalyKind
from .port_document import Stretch
from .view import Worker, worker_document

State: TypeAlias = Literal["routable", "blocked", "gone", "never_registered"]


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """A record of the chain, the rule applied to it, and what came of it."""

    record: Record
    rule: str
    anomaly: AnomalyKind | None = None
    """Why it changed nothing."""
    through: Revision | None = None
    """It stands for all records of one claim up to this one."""
    state: State | None = None
    """Of the worker after it; None: it is of a time before the worker."""
    blockers: tuple[str, ...] = ()

    @property
    def revision(self) -> Revision:
        """Where the record stands."""
        return self.record.revision

    def document(self) -> dict[str, Any]:
        """The link as plain data."""
        event = self.record.event
        readable = not isinstance(event, UnknownEvent | Undecodable)
        return {
            "revision": self.record.revision,
            "through": self.through,
            "recorded_at": self.record.recorded_at,
            "subject": self.record.subject,
            "type": tag_of(self.record),
            "incarnation": _incarnation(event),
            "by": getattr(event, "by", None) if readable else None,
            "at": getattr(event, "at", None) if readable else None,
            "event_id": event.event_id,
            "rule": self.rule,
            "anomaly": self.anomaly,
            "state": self.state,
            "blockers": list(self.blockers),
        }


class Reason(msgspec.Struct, frozen=True, kw_only=True):
    """What keeps a worker from being picked, and what that goes back to."""

    blocker: str
    why: str
    since: Revision
    """The record with which the worker got this blocker."""
    cause: Record
    """The record that it goes back to; often the same."""

    def document(self) -> dict[str, Any]:
        """The reason as plain data."""
        return {
            "blocker": self.blocker,
            "why": self.why,
            "since": self.since,
            "revision": self.cause.revision,
            "recorded_at": self.cause.recorded_at,
            "by": getattr(self.cause.event, "by", None),
        }


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """Why a worker was as it was at ``revision``."""

    namespace: Namespace
    worker_id: str
    revision: Revision
    recorded_at: datetime | None
    """Of the record at ``revision``; None: there is none yet."""
    state: State
    since: Revision | None
    """The record with which it came into this state; None: it was never there."""
    worker: Worker | None
    """As the fleet shows it; None: it is not registered."""
    in_force: Checksum | None
    """The checksum of the incumbents of its WorkerSet."""
    reasons: tuple[Reason, ...]
    """One for each blocker, in their order."""
    chain: tuple[Link, ...]
    """In order of revisions."""
    ports: tuple[Stretch, ...]
    """What its lives hold."""
    warnings: tuple[str, ...]
    """What decides nothing, but is odd."""

    @property
    def name(self) -> str:
        """The worker as commands name it: ``namespace/worker_id``."""
        return f"{self.namespace}/{self.worker_id}"

    def document(self) -> dict[str, Any]:
        """The explanation as plain data; every key is always there."""
        return {
            "worker": self.name,
            "revision": self.revision,
            "recorded_at": self.recorded_at,
            "state": self.state,
            "since": self.since,
            "routable": self.state == "routable",
            "blockers": [reason.document() for reason in self.reasons],
            "checksum_in_force": self.in_force,
            "registration": (
                None if self.worker is None else worker_document(self.worker)
            ),
            "ports": msgspec.to_builtins(self.ports),
            "warnings": list(self.warnings),
            "chain": [link.document() for link in self.chain],
        }


def tag_of(record: Record) -> str | None:
    """The type that the record's payload names; None: it names none."""
    match record.event:
        case UnknownEvent(tag=tag):
            return tag
        case Undecodable():
            return None
        case event:
            return str(type(event).__struct_config__.tag)


def _incarnation(event: object) -> str | None:
    """Of which life the record speaks."""
    named = getattr(event, "owner", event)
    found: str | None = getattr(named, "incarnation", None)
    return found
