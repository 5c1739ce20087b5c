"""Errors of the event vocabulary, and the root of every error of the project."""

from __future__ import annotations


class ControlPlaneError(Exception):
    """The root of every error that the control plane raises on purpose.

    The class says the caller's next move; attributes carry the data.
    """


class InvalidIdentityError(ControlPlaneError):
    """A name or value breaks a rule of the vocabulary. Correct it and call again."""

    def __init__(self, *, field: str, value: object, rule: str) -> None:
        """Name the ``field``, the refused ``value`` and the ``rule`` it breaks."""
        self.field, self.value, self.rule = field, value, rule
        super().__init__(f"{field} {value!r} is not valid: {rule}")


class UndecodableRecordError(ControlPlaneError):
    """A record's bytes cannot be read as an event. Inspect it; nothing is guessed."""

    def __init__(self, *, subject: str, reason: str) -> None:
        """Name the record's ``subject`` and the ``reason`` it cannot be read."""
        self.subject, self.reason = subject, reason
        super().__init__(f"the record on {subject} cannot be read: {reason}")
