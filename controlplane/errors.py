"""Errors of the running parts. The class says the caller's next move."""

from __future__ import annotations

from collections.abc import Sequence, Sized
from typing import Final

from events.errors import ControlPlaneError

NAMED_MAX: Final = 3
"""So many of a list are named in a message."""


class SettingsError(ControlPlaneError):
    """A setting, permission or environment value is wrong. Correct the set-up."""

    def __init__(self, *, field: str, value: object, rule: str) -> None:
        """Name the ``field``, its ``value`` and the ``rule`` that it breaks."""
        self.field, self.value, self.rule = field, value, rule
        super().__init__(f"{field} {value!r} is not valid: {rule}")


class LogUnavailableError(ControlPlaneError):
    """The broker gave no answer in time. Nothing was decided; try again."""

    def __init__(self, *, url: str, doing: str, reason: str = "no answer") -> None:
        """Say what was tried (``doing``) at which ``url`` and what came of it."""
        self.url, self.doing, self.reason = url, doing, reason
        super().__init__(
            f"the broker at {url} is not available ({reason}) while {doing}; "
            "start nats-server with JetStream, or run: controlplane up"
        )


class StreamMissingError(LogUnavailableError):
    """The broker answers, but the cell is not there. Create it, or name another."""

    def __init__(self, *, url: str, doing: str, reason: str) -> None:
        """Say what was tried (``doing``) at which ``url`` and the broker's words."""
        super().__init__(url=url, doing=doing, reason=reason)
        message = (
            f"the cell does not exist at {url} ({reason} while {doing}); "
            "create it with: controlplane init"
        )
        self.args = (message,)


class LogFullError(ControlPlaneError):
    """The stream refused an event because it is full. Raise its limit, then retry."""

    def __init__(self, *, stream: str, reason: str) -> None:
        """Name the full ``stream`` and the broker's ``reason``."""
        self.stream, self.reason = stream, reason
        super().__init__(
            f"stream {stream} is full ({reason}); nothing was stored or lost: "
            "raise its limit or start a new cell"
        )


class AppendConflictError(ControlPlaneError):
    """Another append came first. Read the subject again and decide anew."""

    def __init__(
        self,
        *,
        subject: str,
        expected: int | None,
        last: int | None,
        code: int,
        reason: str = "",
        said: str = "",
    ) -> None:
        """Give the ``subject``, the ``expected`` and (if told) ``last`` sequence.

        ``code`` is the broker's; 0: it did not refuse, and ``reason`` says who did.
        ``said`` is the message for a caller who knows of no subjects.
        """
        self.subject, self.expected, self.last, self.code = (
            subject,
            expected,
            last,
            code,
        )
        self.reason = reason or self._refusal()
        super().__init__(
            said
            or f"append to {subject} {self.reason}"
            + (f" (err_code {code})" if code else "")
            + "; read the subject again and decide anew"
        )

    def _refusal(self) -> str:
        """What the broker's code says, with the values that are known."""
        there = "another" if self.last is None else str(self.last)
        if self.expected is not None:
            return f"expected sequence {self.expected} but the last is {there}"
        if self.last is not None:
            return f"was refused: one of its subjects has another last, {there}"
        return "was refused: one of its subjects has another last, or knew it already"


class AppendOutcomeUnknownError(ControlPlaneError):
    """Sent, but no answer came: it may or may not be stored. Repeat the same bytes."""

    def __init__(self, *, subject: str, reason: str, said: str = "") -> None:
        """Give the ``subject`` and why the outcome is unknown.

        ``said`` is the message for a caller who has no bytes to repeat.
        """
        self.subject, self.reason = subject, reason
        super().__init__(
            said
            or f"the outcome of the append to {subject} is unknown ({reason}); "
            "repeat the same bytes until there is a definite answer"
        )


class TopologyDriftError(ControlPlaneError):
    """The cell's streams are not as they should be. Each difference is named."""

    def __init__(self, *, differences: Sequence[str]) -> None:
        """List the ``differences``, one line each."""
        self.differences = tuple(differences)
        super().__init__(
            "the cell differs from what this version needs: "
            + "; ".join(self.differences)
        )


class HistoryForkedError(ControlPlaneError):
    """The log is not the one that was read before: history was lost or replaced."""

    def __init__(self, *, reason: str, revision: int) -> None:
        """Give the ``reason`` and the last ``revision`` that had been read."""
        self.reason, self.revision = reason, revision
        super().__init__(
            f"the log's history changed after revision {revision} was read: {reason}; "
            "the view is rebuilt in a new epoch"
        )


class HistoryTruncatedError(ControlPlaneError):
    """The beginning of the log is gone and no snapshot vouches for it."""

    def __init__(self, *, first: int) -> None:
        """Give the ``first`` revision that the log still has."""
        self.first = first
        super().__init__(
            f"the log begins at revision {first} and no usable snapshot reaches it; "
            "restore the stream from a backup, or start a new cell"
        )


class ImportUnfinishedError(HistoryTruncatedError):
    """The log holds a part of an archive. Let the import go on, or begin it anew."""

    def __init__(self, *, place: int, of: int, others: int = 0) -> None:
        """So many records are in: ``place``, ``of`` the archive's, then ``others``."""
        super().__init__(first=1)
        self.place, self.of, self.others = place, of, others
        message = f"the log holds {place} of {of} records of an archive"
        if others:
            message += (
                ", and then what others wrote; import the archive into a new cell: "
                "controlplane init --cell NAME"
            )
        else:
            message += (
                "; let the import go on: controlplane log import FILE, the same file"
            )
        self.args = (message,)


class IncarnationSupersededError(ControlPlaneError):
    """Another life of this worker registered. This one is over for good."""

    def __init__(
        self, *, namespace: str, worker_id: str, incarnation: str, by: str | None
    ) -> None:
        """Name the worker, its ended ``incarnation`` and the one that took over."""
        self.namespace, self.worker_id = namespace, worker_id
        self.incarnation, self.by = incarnation, by
        super().__init__(
            f"worker {namespace}/{worker_id}: incarnation {incarnation} was superseded"
            f" by {by or 'another'}; stop this process or give it another worker_id"
        )


class LeaseLostError(ControlPlaneError):
    """The life expired and what it held is taken. Start again with a new claim."""

    def __init__(self, *, namespace: str, worker_id: str, reason: str) -> None:
        """Name the worker and the ``reason``."""
        self.namespace, self.worker_id, self.reason = namespace, worker_id, reason
        super().__init__(f"worker {namespace}/{worker_id} lost its lease: {reason}")


class PortsExhaustedError(ControlPlaneError):
    """No block is free in the range. Wait, widen the range, or release something."""

    def __init__(
        self,
        *,
        wanted: int,
        free: int,
        largest_hole: int,
        resting: int,
        host: str | None = None,
        within: object = None,
        reason: str = "",
        busy: int = 0,
        unreadable: int = 0,
    ) -> None:
        """Say what was ``wanted``, and what is ``free`` and ``resting`` instead.

        ``within`` is the range asked, on ``host``, for ``reason``. In ``busy`` ports
        somebody sits who never asked; of ``unreadable`` ones nobody can tell.
        """
        self.wanted, self.free = wanted, free
        self.largest_hole, self.resting = largest_hole, resting
        self.busy, self.unreadable = busy, unreadable
        self.host, self.within, self.reason = host, within, reason
        what = f"no block of {wanted} ports" if wanted > 1 else "no port"
        what += f" for {reason}" if reason else ""
        where = f" in {within}" if within is not None else ""
        where += f" of host {host}" if host is not None else ""
        there = f"{free} free, largest hole {largest_hole}, {resting} resting"
        there += f", {busy} in use outside the log" if busy else ""
        there += f", {unreadable} unreadable" if unreadable else ""
        super().__init__(f"{what}{where}: {there}; {self._next_step()}")

    @property
    def fragmented(self) -> bool:
        """Whether enough ports are free, but not next to each other."""
        return self.largest_hole < self.wanted <= self.free

    def _next_step(self) -> str:
        in_pieces = "fragmented, enough are free but not in a row: "
        steps = ["wait for those that rest"] if self.resting else []
        if self.busy:
            steps.append("end the programs that sit there (ss -ltnp shows them)")
        if self.unreadable:
            steps.append(
                "look at what cannot be read (controlplane log tail --type poison)"
            )
        if not self.resting and (self._held or not steps):
            steps.append("release what nobody needs")
        first = in_pieces if self.fragmented else ""
        return f"{first}{', '.join(steps)}, or widen the range"

    @property
    def _held(self) -> int:
        """How many claims hold, or are about to, as far as that can be told."""
        if not isinstance(self.within, Sized):
            return 0
        others = self.free + self.resting + self.busy + self.unreadable
        return len(self.within) - others


class ModelInUseError(ControlPlaneError):
    """A name is not forgotten while workers serve it. Have them leave first."""

    def __init__(self, *, model: str, workers: Sequence[str]) -> None:
        """Name the ``model`` and the ``workers``, as ``namespace/worker_id``."""
        self.model, self.workers = model, tuple(workers)
        named = ", ".join(self.workers[:NAMED_MAX])
        more = len(self.workers) - NAMED_MAX
        others = f" and {more} more" if more > 0 else ""
        super().__init__(
            f"model {model!r} is served by {named}{others}, so it is not forgotten; "
            "drain them, and do it again when they are gone"
        )
