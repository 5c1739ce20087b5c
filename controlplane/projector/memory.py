"""What a projector remembers from term to term, and whether the log bears it out.

Only who was there may know that history was lost: so he says it, once for each loss,
however the term ended in which it happened, and whether he leads or not.
"""

from __future__ import annotations

from controlplane.logs import get_logger
from controlplane.telemetry import ProjectorMetrics

from .core import Core
from .finding import Remembered
from .recovery import Begin

_log = get_logger("projector")


def remember(core: Core, before: Remembered | None) -> Remembered:
    """What is to be remembered of ``core``, and of the terms before it."""
    line, epoch = core.line, core.line.known_epoch
    if epoch is None and before is not None and before.log_id == line.log_id:
        epoch = before.epoch
    over, reason = line.history_lost or (0, "")
    return Remembered(
        log_id=line.log_id,
        revision=core.fold.revision,
        fingerprint=core.fold.fingerprint,
        epoch=epoch,
        over=over,
        over_reason=reason,
    )


def announce(begin: Begin) -> None:
    """Say where a term begins."""
    position = begin.start.position
    if begin.problem is not None:
        _log.warning("snapshot not used", reason=begin.problem)
    _log.info(
        "projection begins",
        revision=begin.fold.revision,
        log_last_revision=begin.log_end,
        epoch=None if position is None else str(position.epoch),
        new_epoch_for=begin.start.epoch_reason if position is None else None,
    )


class Memory:
    """Where the last core stood, and what of the log's losses is said already."""

    def __init__(self, metrics: ProjectorMetrics) -> None:
        """Remember nothing; count losses in ``metrics``."""
        self._metrics = metrics
        self.remembered: Remembered | None = None
        self._said = False

    def keep(self, core: Core | None) -> None:
        """A term ended: the next one looks whether what it stood on still holds."""
        if core is not None:
            self.remembered = remember(core, self.remembered)

    def say_lost(self, reason: str) -> None:
        """Say that history was lost, as the reader of the log noticed."""
        self._said = True
        _log.error("history lost or forked", reason=reason)

    def compare(self, begin: Begin) -> None:
        """Say that history was lost, if what is there now says so and nobody did."""
        known, said, self._said = self.remembered, self._said, False
        if begin.loss is None or known is None:
            return
        self._metrics.history_losses.labels(reason=begin.loss).inc()
        if not said:
            _log.error(
                "history lost or forked",
                reason=begin.loss,
                revision=known.revision,
                log_last_revision=begin.log_end,
            )
