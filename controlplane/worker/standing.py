"""Whose the worker's subject is, by its records: the fold's rule for one subject."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from typing import TypeAlias

import msgspec

from controlplane.errors import IncarnationSupersededError
from events import (
    Incarnation,
    Record,
    Revision,
    WorkerDeregistered,
    WorkerEvent,
    WorkerExpired,
    WorkerRegistered,
)

from .declared import Declared
from .signals import SubjectRead
from .spec import ResolvedSpec


class Vacant(msgspec.Struct, frozen=True):
    """No life of ours was registered here, and none that is live began later."""


class Standing(msgspec.Struct, frozen=True):
    """Our life is the current one, and this is what the log says of it."""

    incarnation: Incarnation
    said: Declared
    registered: Revision


class Over(msgspec.Struct, frozen=True):
    """Our life has ended, and nobody took its place.

    It was the last one here, or it expired before it could register.
    """


class Superseded(msgspec.Struct, frozen=True):
    """Another life took the subject from ours, or began later and came first."""

    by: Incarnation

    def error(
        self, spec: ResolvedSpec, incarnation: Incarnation
    ) -> IncarnationSupersededError:
        """What it means for our ``incarnation``."""
        return IncarnationSupersededError(
            namespace=spec.namespace,
            worker_id=spec.worker_id,
            incarnation=incarnation,
            by=self.by,
        )


Verdict: TypeAlias = Vacant | Standing | Over | Superseded


def judge(
    records: Iterable[Record],
    *,
    ours: AbstractSet[Incarnation],
    newest: Incarnation,
    before: Standing | None,
) -> Verdict:
    """Whose the subject is after ``records``, if it was as ``before`` says.

    ``ours`` are all incarnations of this process, ``newest`` the last of them. Events
    of a life that is not current change nothing, as in the fold: the late farewell of
    an old life ends nobody. What cannot be read changes nothing either.
    """
    current = None if before is None else before.incarnation
    said = None if before is None else before.said
    registered = 0 if before is None else before.registered
    ended, were_here, expired_before = False, before is not None, False
    for record in records:
        match record.event:
            case WorkerRegistered() as event:
                current, ended = event.incarnation, False
                registered = record.revision
                said = Declared.of(event) if current in ours else None
                were_here = were_here or current in ours
                expired_before = expired_before and current != newest
            case WorkerDeregistered() | WorkerExpired() as event:
                ended = ended or event.incarnation == current
                expired_before = expired_before or event.incarnation == newest
            case WorkerEvent() as event if said and event.incarnation == current:
                said = said.after(event)
    vacant = Over() if expired_before else Vacant()
    if current is None:
        return vacant
    if current in ours and said is not None:
        if not ended:
            return Standing(current, said, registered)
        # An earlier life of ours ended here; the log lost that the newest began.
        return Over() if current == newest else vacant
    if were_here or (not ended and current > newest):
        return Superseded(current)
    return vacant


def taken_before(
    read: SubjectRead, ours: AbstractSet[Incarnation], newest: Incarnation
) -> Superseded | None:
    """Who took the subject before the last record of ours; all of it was ``read``.

    A log that lost its tail gives the numbers again. So what a life says on top of the
    last number that it knows may stand on its successor's registration, and what comes
    after that does not show it.
    """
    found = judge(read.records, ours=ours, newest=newest, before=None)
    return found if isinstance(found, Superseded) else None
