"""THE SIDECAR: runs any engine as a worker, without a line of code in the engine."""

from .errors import ChildNotHealthyError, ChildNotStartedError
from .plan import ADDRESS, HTTP, NONE, TCP, Plan
from .service import Sidecar
from .steps import Limits

__all__ = [
    "ADDRESS",
    "HTTP",
    "NONE",
    "TCP",
    "ChildNotHealthyError",
    "ChildNotStartedError",
    "Limits",
    "Plan",
    "Sidecar",
]
