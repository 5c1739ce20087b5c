"""Plays the log back: the past, through the same fold as the present.

Not named after its verb: `controlplane.replay` is the public function.
"""

from .errors import (
    EventNotFoundError,
    MomentAheadError,
    MomentInvalidError,
    MomentTooEarlyError,
    RecordRemovedError,
    TypeUnknownError,
)
from .history import Ends, History, LogHistory
from .moments import EventId, Moment, PointInTime, parse_moment
from .player import Progress, replay_log, state_at, whole_ends
from .ports import PortsThen, replay_ports
from .selecting import (
    Selection,
    Sieve,
    last_selected,
    parse_types,
    record_at,
    selected,
    type_of,
)
from .starting import Starts
from .statistics import Statistics, Storage, Tally
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
    "RecordRemovedError",
    "Selection",
    "Sieve",
    "Starts",
    "Statistics",
    "Storage",
    "Tally",
    "TypeUnknownError",
    "last_selected",
    "parse_moment",
    "parse_types",
    "record_at",
    "records_to",
    "replay_log",
    "replay_ports",
    "selected",
    "state_at",
    "type_of",
    "whole_ends",
]
