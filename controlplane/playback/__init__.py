"""Plays the log back: the past, through the same fold as the present.

Not named after its verb: `controlplane.replay` is the public function.
"""

from .errors import (
    EventNotFoundError,
    MomentAheadError,
    MomentInvalidError,
    MomentTooEarlyError,
)
from .history import Ends, History, LogHistory
from .moments import EventId, Moment, PointInTime, parse_moment
from .player import Progress, replay_log, state_at
from .ports import PortsThen, replay_ports
from .walking import records_to

__all__ = [
    "Ends",
    "EventId",
    "EventNotFoundError",
    "History",
    "LogHistory",
    "Moment",
    "MomentAheadError",
    "MomentInvalidError",
    "MomentTooEarlyError",
    "PointInTime",
    "PortsThen",
    "Progress",
    "parse_moment",
    "records_to",
    "replay_log",
    "replay_ports",
    "state_at",
]
