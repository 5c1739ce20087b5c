"""WHO DOES IT: workers, projectors and routers over NATS JetStream.

Everything public is importable from here. Durations are seconds, times are UTC.

Names are looked up when they are first used: who needs a few does not wait for all,
and a command that is stopped while it starts can say so itself.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from events import (
        AdapterLoaded,
        AdapterUnloaded,
        Capacity,
        ControlPlaneError,
        InvalidIdentityError,
        LoadThresholdsSet,
        ModelCard,
        ModelForgotten,
        PortClaimed,
        PortOwner,
        PortReleased,
        Record,
        Role,
        Status,
        TrafficWeightSet,
        Undecodable,
        UndecodableRecordError,
        UnknownEvent,
        WorkerDeregistered,
        WorkerExpired,
        WorkerHeld,
        WorkerRegistered,
        WorkerResumed,
        WorkerStatusChanged,
        WorkerUpdated,
    )
    from projections import (
        Change,
        DivergenceError,
        Fleet,
        Model,
        ModelNotFoundError,
        ModelUnavailableError,
        PlaneState,
        PortBlock,
        PortRange,
        SequenceGapError,
        SnapshotUnusableError,
        Want,
        Worker,
        WorkerSet,
        WorkerSetKey,
        explain,
        fold,
        replay,
    )
    from projections import compare_fleets as diff

    from .archive import (
        ArchiveDamagedError,
        ArchiveMissingError,
        ArchiveNewerError,
        ArchiveTruncatedError,
        ArchiveUnusableError,
        read_archive,
    )
    from .errors import (
        AppendConflictError,
        AppendOutcomeUnknownError,
        HistoryForkedError,
        HistoryTruncatedError,
        IncarnationSupersededError,
        LeaseLostError,
        LogFullError,
        LogUnavailableError,
        ModelInUseError,
        PortsExhaustedError,
        SettingsError,
        StreamMissingError,
        TopologyDriftError,
    )
    from .eventlog import Appended, LogState
    from .gate import DrainResult, ReadyResult
    from .namespaces import NamespaceFilter
    from .plane import Plane, connect
    from .ports.facade import PortHolding, Ports
    from .presence import RouterSeen, WaitResult
    from .router.client import RouterView
    from .runtime import StoppedError
    from .server import EmbeddedServer
    from .serving import LocalPlane, Projector, local
    from .settings import Settings
    from .worker import Notice, WorkerHandle, WorkerSpec

__all__ = [
    "AdapterLoaded",
    "AdapterUnloaded",
    "AppendConflictError",
    "AppendOutcomeUnknownError",
    "Appended",
    "ArchiveDamagedError",
    "ArchiveMissingError",
    "ArchiveNewerError",
    "ArchiveTruncatedError",
    "ArchiveUnusableError",
    "Capacity",
    "Change",
    "ControlPlaneError",
    "DivergenceError",
    "DrainResult",
    "EmbeddedServer",
    "Fleet",
    "HistoryForkedError",
    "HistoryTruncatedError",
    "IncarnationSupersededError",
    "InvalidIdentityError",
    "LeaseLostError",
    "LoadThresholdsSet",
    "LocalPlane",
    "LogFullError",
    "LogState",
    "LogUnavailableError",
    "Model",
    "ModelCard",
    "ModelForgotten",
    "ModelInUseError",
    "ModelNotFoundError",
    "ModelUnavailableError",
    "NamespaceFilter",
    "Notice",
    "Plane",
    "PlaneState",
    "PortBlock",
    "PortClaimed",
    "PortHolding",
    "PortOwner",
    "PortRange",
    "PortReleased",
    "Ports",
    "PortsExhaustedError",
    "Projector",
    "ReadyResult",
    "Record",
    "Role",
    "RouterSeen",
    "RouterView",
    "SequenceGapError",
    "Settings",
    "SettingsError",
    "SnapshotUnusableError",
    "Status",
    "StoppedError",
    "StreamMissingError",
    "TopologyDriftError",
    "TrafficWeightSet",
    "Undecodable",
    "UndecodableRecordError",
    "UnknownEvent",
    "WaitResult",
    "Want",
    "Worker",
    "WorkerDeregistered",
    "WorkerExpired",
    "WorkerHandle",
    "WorkerHeld",
    "WorkerRegistered",
    "WorkerResumed",
    "WorkerSet",
    "WorkerSetKey",
    "WorkerSpec",
    "WorkerStatusChanged",
    "WorkerUpdated",
    "connect",
    "diff",
    "explain",
    "fold",
    "local",
    "read_archive",
    "replay",
]

_NAMES: Final = {
    "events": """
        AdapterLoaded AdapterUnloaded Capacity ControlPlaneError
        InvalidIdentityError LoadThresholdsSet ModelCard ModelForgotten
        PortClaimed PortOwner PortReleased Record Role Status TrafficWeightSet
        Undecodable UndecodableRecordError UnknownEvent WorkerDeregistered
        WorkerExpired WorkerHeld WorkerRegistered WorkerResumed
        WorkerStatusChanged WorkerUpdated
    """,
    "projections": """
        Change DivergenceError Fleet Model ModelNotFoundError
        ModelUnavailableError PlaneState PortBlock PortRange SequenceGapError
        SnapshotUnusableError Want Worker WorkerSet WorkerSetKey explain fold
        replay
    """,
    ".archive": """
        ArchiveDamagedError ArchiveMissingError ArchiveNewerError
        ArchiveTruncatedError ArchiveUnusableError read_archive
    """,
    ".errors": """
        AppendConflictError AppendOutcomeUnknownError HistoryForkedError
        HistoryTruncatedError IncarnationSupersededError LeaseLostError
        LogFullError LogUnavailableError ModelInUseError PortsExhaustedError
        SettingsError StreamMissingError TopologyDriftError
    """,
    ".eventlog": "Appended LogState",
    ".gate": "DrainResult ReadyResult",
    ".namespaces": "NamespaceFilter",
    ".plane": "Plane connect",
    ".ports.facade": "PortHolding Ports",
    ".presence": "RouterSeen WaitResult",
    ".router.client": "RouterView",
    ".runtime": "StoppedError",
    ".server": "EmbeddedServer",
    ".serving": "LocalPlane Projector local",
    ".settings": "Settings",
    ".worker": "Notice WorkerHandle WorkerSpec",
}
"""By the module that they are taken from."""
_HOMES: Final = {
    **{
        name: (module, name) for module, text in _NAMES.items() for name in text.split()
    },
    "diff": ("projections", "compare_fleets"),
}


def _look_up(name: str) -> Any:  # noqa: ANN401 - whatever has the name
    """Import what is public, or a module in here, under its ``name``, and keep it."""
    if name in _HOMES:
        module, its_name = _HOMES[name]
        value = getattr(import_module(module, __name__), its_name)
    elif _is_module(name):
        value = import_module(f".{name}", __name__)
    else:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    globals()[name] = value
    return value


def _is_module(name: str) -> bool:
    if name.startswith("_") or not name.isidentifier():
        return False
    return find_spec(f".{name}", __name__) is not None


if not TYPE_CHECKING:  # else every misspelt name would be one, of any type
    __getattr__ = _look_up


def __dir__() -> list[str]:
    """What is public, too, before anybody asked for it."""
    return sorted({*globals(), *__all__})
