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
from .moments import EventId, Moment, PointInTime, parse_moment, parse_point
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
from .sightings import (
    RouterElsewhereError,
    RouterUnseenError,
    Sighting,
    sighting,
)
from .starting import Starts
from .statistics import Statistics, Storage, Tally
from .walk import Stop, Walk
from .walking import records_to
from .witness import (
    Testimony,
    WhyPicked,
    recall,
    sighting_in,
    time_of,
    why_picked,
)

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
    "RouterElsewhereError",
    "RouterUnseenError",
    "Selection",
    "Sieve",
    "Sighting",
    "Starts",
    "Statistics",
    "Stop",
    "Storage",
    "Tally",
    "Testimony",
    "TypeUnknownError",
    "Walk",
    "WhyPicked",
    "last_selected",
    "parse_moment",
    "parse_point",
    "parse_types",
    "recall",
    "record_at",
    "records_to",
    "replay_log",
    "replay_ports",
    "selected",
    "sighting",
    "sighting_in",
    "state_at",
    "time_of",
    "type_of",
    "whole_ends",
    "why_picked",
]
