"""What a line of deltas begins with: the words between recovery and the line."""

from __future__ import annotations

import msgspec

from events import Revision
from projections import AnomalyCounts, EpochStarted, Position


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """Where a line begins: what recovery found."""

    log_id: str
    position: Position | None
    """How much of the epoch the fold stands for; None: a new epoch must begin."""
    folded: Revision = 0
    """Records up to here are in the fold, or before the epoch: no deltas of them."""
    line_digest: str = ""
    line_anomalies: AnomalyCounts = AnomalyCounts()
    epoch_count: int = 0
    """The highest count of any epoch seen."""
    epoch_reason: str = "first"
    """Why a new epoch would begin."""
    view_end: int = 0
    """The view stream's last sequence…"""
    trimmed_to: int = 0
    """…and the last that it no longer holds."""
    last_payload: bytes | None = None
    """The message at ``view_end``, if the stream holds it."""
    begun: EpochStarted | None = None
    """How the epoch began, if the fold has yet to come there."""
    over: int = 0
    """Epochs up to this count are not to be led on with…"""
    over_reason: str = ""
    """…because of this."""
    outdated: bool = False
    """A newer fold version numbers the view."""
