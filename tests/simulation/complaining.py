"""Nobody says the same error over and over: then it goes round without end."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from .outcome import Violation

if TYPE_CHECKING:
    from .world import World

SAME_MAX: Final = 10
"""So often may a process say the same error between two looks."""


class Complaining:
    """See the module."""

    def __init__(self, world: World) -> None:
        self._trace = world.trace
        self._known = 0

    def look(self) -> None:
        """Look at what was said since the last look: "spinning", if it repeats."""
        errors = self._trace.errors
        said = Counter(error[1:] for error in errors[self._known :])
        self._known = len(errors)
        for (who, message), times in said.items():
            if times > SAME_MAX:
                raise Violation("spinning", f"{who} says {times} times: {message}")
