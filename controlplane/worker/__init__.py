"""THE WORKER: announces a serving process, beats for it, and puts it right."""

from .beat import BeatThread
from .client import WorkerHandle
from .inbox import Notice
from .spec import ResolvedSpec, WorkerSpec, resolve

__all__ = [
    "BeatThread",
    "Notice",
    "ResolvedSpec",
    "WorkerHandle",
    "WorkerSpec",
    "resolve",
]
