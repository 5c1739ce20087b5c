"""A router's metrics: what its core did, counted; where it stands, shown."""

from __future__ import annotations

from controlplane.telemetry import RouterMetrics

from .core import Core, Moved


class Counting:
    """Keeps the metrics of one router; without any, does nothing."""

    def __init__(self, metrics: RouterMetrics | None) -> None:
        """Count in ``metrics``."""
        self._metrics = metrics
        self._counted: Core | None = None
        self._duplicates = 0
        self.is_on = metrics is not None

    def moved(self, moved: Moved) -> None:
        """The position changed."""
        metrics = self._metrics
        if metrics is None:
            return
        if moved.caught_up is None:
            if moved.changes:
                metrics.deltas_applied.inc()
        elif moved.changes is None:
            metrics.resyncs.labels(reason=moved.caught_up).inc()
        else:
            metrics.gaps_repaired.inc(bool(moved.changes))
        if moved.caught_up == "dropped":
            metrics.dropped_then_resynced.inc()

    def diverged(self) -> None:
        """Same place, other digest."""
        if self._metrics is not None:
            self._metrics.divergences.inc()

    def saved(self) -> None:
        """A checkpoint was written."""
        if self._metrics is not None:
            self._metrics.checkpoints_written.inc()

    def show(self, core: Core, stale_for_s: float) -> None:
        """Bring the gauges up to date."""
        metrics, replica = self._metrics, core.replica
        if metrics is None:
            return
        if core is not self._counted:  # the view was started again
            self._counted, self._duplicates = core, 0
        metrics.stale_s.set(stale_for_s)
        metrics.show_source(core.source)
        metrics.duplicates_compared.inc(core.duplicates - self._duplicates)
        self._duplicates = core.duplicates
        if replica is not None:
            metrics.revision.set(replica.revision)
            metrics.ordinal.set(replica.position.ordinal)
            metrics.epoch.set(replica.position.epoch.count)
