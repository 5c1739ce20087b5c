"""Errors of the view. The class says the caller's next move."""

from __future__ import annotations

from collections.abc import Mapping

from events import ControlPlaneError, ModelName


class SequenceGapError(ControlPlaneError):
    """Something between two positions is missing. Resync from a snapshot."""

    def __init__(self, *, expected: int, got: int) -> None:
        """Give the ``expected`` position and the one that was ``got``."""
        self.expected, self.got = expected, got
        super().__init__(
            f"expected position {expected} but got {got}; resync from a snapshot"
        )


class DivergenceError(ControlPlaneError):
    """Two holders of one position have different states. Keep both; resync."""

    def __init__(self, *, where: str, expected: str, got: str) -> None:
        """Name the position (``where``), its digest there and one's own (``got``)."""
        self.where, self.expected, self.got = where, expected, got
        super().__init__(
            f"at {where} the digest is {expected}, but here it is {got}; "
            "keep the evidence and resync"
        )


class SnapshotUnusableError(ControlPlaneError):
    """A snapshot or checkpoint cannot be used. Take an older one, or replay."""

    def __init__(self, *, reason: str) -> None:
        """Give the ``reason``."""
        self.reason = reason
        super().__init__(f"the snapshot cannot be used: {reason}; replay instead")


class ModelNotFoundError(ControlPlaneError):
    """Nobody ever served this name: an HTTP 404."""

    def __init__(self, *, model: ModelName) -> None:
        """Name the ``model`` asked for."""
        self.model = model
        super().__init__(f"no worker ever served a model named {model!r}")


class ModelUnavailableError(ControlPlaneError):
    """The name is known, but no worker can take a request now: an HTTP 503."""

    def __init__(self, *, model: ModelName, reasons: Mapping[str, int]) -> None:
        """Name the ``model``; ``reasons`` counts what keeps its workers away."""
        self.model, self.reasons = model, dict(reasons)
        why = ", ".join(f"{n} {reason}" for reason, n in self.reasons.items())
        super().__init__(
            f"model {model!r} has no routable worker ({why or 'no workers'})"
        )


class ExpressionError(ControlPlaneError):
    """The text is no question to a fleet. Correct it where the caret points."""

    def __init__(self, *, text: str, column: int, width: int, reason: str) -> None:
        """Give the ``text`` (one line), the place in it, and the ``reason``."""
        self.text, self.column, self.width = text, column, width
        self.reason = reason
        super().__init__(
            f"the expression is not valid at column {column + 1}: {reason}"
        )

    @property
    def pointer(self) -> tuple[str, str]:
        """The text, and carets for the line below it."""
        return self.text, " " * self.column + "^" * self.width
