"""Errors that end a sidecar. Its child, if there was one, has ended too."""

from __future__ import annotations

from events import ControlPlaneError


class ChildNotStartedError(ControlPlaneError):
    """The command cannot be run here. Correct it, or the image; then start again."""

    def __init__(self, *, command: str, reason: str) -> None:
        """Name the ``command`` and the system's ``reason``."""
        self.command, self.reason = command, reason
        super().__init__(f"cannot start {command!r}: {reason}; its ports were released")


class ChildNotHealthyError(ControlPlaneError):
    """The child ran but never answered as healthy. See its output; start again."""

    def __init__(self, *, within_s: float, last_answer: str) -> None:
        """Say how long was waited and what the last probe heard."""
        self.within_s, self.last_answer = within_s, last_answer
        super().__init__(
            f"not healthy within {within_s:g} s; the last answer was: {last_answer}; "
            "the child was ended and its ports released: see what it wrote, "
            "or give it longer with --health-timeout"
        )
