"""Replay over plain records: the whole past with no service running."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from itertools import takewhile

from events import Record, Revision

from .anomaly import Anomalies
from .fold import FoldState, step
from .folding import fold_all
from .port import PortTable
from .view import Fleet


class PlaneState:
    """What the log says up to ``revision``: the first state is empty. Immutable."""

    __slots__ = ("cell", "fold_state", "log_id")

    def __init__(
        self,
        fold_state: FoldState | None = None,
        *,
        cell: str = "default",
        log_id: str | None = None,
    ) -> None:
        """Show ``fold_state``; without one, the beginning."""
        self.fold_state = fold_state or FoldState()
        self.cell, self.log_id = cell, log_id

    @property
    def fleet(self) -> Fleet:
        """The fleet as routers have it at this revision."""
        return Fleet(
            self.fold_state.fleet_state,
            revision=self.revision,
            cell=self.cell,
            log_id=self.log_id,
            anomalies=self.anomalies.counts,
        )

    @property
    def ports(self) -> PortTable:
        """Who holds which port."""
        return self.fold_state.ports

    @property
    def anomalies(self) -> Anomalies:
        """Records that could not be read or changed nothing."""
        return self.fold_state.anomalies

    @property
    def revision(self) -> Revision:
        """The revision of the last record folded; 0 at the beginning."""
        return self.fold_state.revision

    def __repr__(self) -> str:
        """Say where it stands."""
        digest = self.fold_state.fleet_state.digest
        return f"PlaneState(revision={self.revision}, digest={digest!r})"


def fold(state: PlaneState, record: Record) -> PlaneState:
    """The state after ``record``. Pure; never raises for what a log may hold."""
    after = step(state.fold_state, record).state
    return PlaneState(after, cell=state.cell, log_id=state.log_id)


def replay(
    records: Iterable[Record], until: Revision | datetime | None = None
) -> Fleet:
    """The fleet after ``records``, in their order, up to and with ``until``.

    ``until`` is a revision or a time of recording, UTC if it does not say; None takes
    them all.
    """
    if until is not None:
        records = takewhile(lambda record: not is_past(record, until), records)
    return PlaneState(fold_all(FoldState(), records)).fleet


def is_past(record: Record, until: Revision | datetime) -> bool:
    """Whether the record comes after ``until``; a time is UTC if it does not say."""
    if isinstance(until, datetime):
        time = until.replace(tzinfo=UTC) if until.tzinfo is None else until
        return record.recorded_at > time
    return record.revision > until
