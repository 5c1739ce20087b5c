"""Where a worker's life stands, and what it waits for."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias

from .signals import (
    Appended,
    Conflicted,
    Failed,
    PortsClaimed,
    PortsRest,
    PortsReturned,
    PortsTaken,
    SubjectRead,
)

OpenJob: TypeAlias = Literal["read", "claim", "append", "return", "pause"]
ANSWERED: Final[Mapping[type[Any], tuple[OpenJob, ...]]] = {
    SubjectRead: ("read",),
    PortsClaimed: ("claim",),
    Appended: ("append",),
    Conflicted: ("append",),
    PortsRest: ("append",),
    PortsTaken: ("append",),
    PortsReturned: ("return",),
    Failed: ("read", "claim", "append"),
}
"""Which job each answer may be to; what nobody waits for is ignored."""


class Phase(enum.Enum):
    """Where the life stands."""

    REGISTERING = "registering"
    REGISTERED = "registered"
    REGISTERING_AGAIN = "registering again"
    LEAVING = "leaving"
    ENDED = "ended"
