"""How a projector appears to those who look: its fleet, health and metrics."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from prometheus_client import CollectorRegistry

from controlplane.broker import Broker
from controlplane.clock import Clock
from controlplane.eventlog import EventLog, LogState
from controlplane.http import Handler
from controlplane.telemetry import ProjectorMetrics, metrics_route
from events import Revision
from projections import EMPTY, AnomalyCounts, Fleet, FleetState, LeaseBook

from . import pages
from .core import Core
from .ear import Ear
from .line import OUTDATED


class Appearance:
    """What can be said of the current core, if there is one."""

    def __init__(
        self,
        *,
        broker: Broker,
        log: EventLog,
        book: LeaseBook,
        ear: Ear,
        clock: Clock,
        metrics: ProjectorMetrics,
        core: Callable[[], Core | None],
    ) -> None:
        """Look at ``core()`` and at what surrounds it."""
        self._broker, self._book, self._ear = broker, book, ear
        self._clock, self._metrics, self._log = clock, metrics, log
        self._cell = log.names.cell
        self._core = core
        self.trouble: str | None = "starting"
        """Why there is no working core now."""
        self.log_state: LogState | None = None
        self._behind: tuple[Revision, float] | None = None
        self._blind_shown = 0.0
        self._resumptions_shown = 0
        self._counted: tuple[FleetState, pages.Grouped] | None = None

    def compare(self, log_end: Revision) -> None:
        """Note where the log ends now.

        Under load the fold is always a little behind. It is stuck if it does not
        reach in time what was the end when it was first found behind.
        """
        core = self._core()
        if core is None or core.fold.revision >= log_end:
            self._behind = None
        elif self._behind is None or core.fold.revision >= self._behind[0]:
            self._behind = log_end, self._clock.monotonic()

    @property
    def log_fill(self) -> float:
        """The share of the log's limit that is used."""
        return 0.0 if self.log_state is None else self.log_state.fill

    @property
    def fleet(self) -> Fleet:
        """The fleet as folded here, published or not."""
        core = self._core()
        if core is None:
            return Fleet(cell=self._cell)
        return Fleet(
            core.fold.fleet_state,
            revision=core.fold.revision,
            cell=self._cell,
            log_id=core.line.log_id,
            epoch=None if core.line.epoch is None else str(core.line.epoch),
            anomalies=core.fold.anomalies.counts,
        )

    @property
    def health(self) -> pages.Health:
        """How the projector is."""
        return pages.judge_health(self._signs())

    def routes(self, registry: CollectorRegistry) -> dict[str, Handler]:
        """The pages to serve."""
        metrics = metrics_route(registry, self.sample)
        return pages.routes(metrics, lambda: self.fleet, lambda: self.health)

    def _signs(self) -> pages.Signs:
        core, now, state = self._core(), self._clock.monotonic(), self.log_state
        counts = self._groups().workers
        pending = None if core is None else core.line.pending
        anomalies = AnomalyCounts() if core is None else core.fold.anomalies.counts
        epoch = None if core is None else core.line.epoch
        revision = 0 if core is None else core.fold.revision
        return pages.Signs(
            leading=core is not None and core.leading,
            revision=revision,
            log_last_revision=revision
            if state is None
            else max(revision, state.last_revision),
            behind_s=0.0 if self._behind is None else now - self._behind[1],
            unpublished_s=now - pending[0].since if pending else 0.0,
            epoch=None if epoch is None else str(epoch),
            ordinal=0 if core is None else core.line.published,
            caught_up=core is not None and core.caught_up,
            connected=self._broker.connected,
            log_fill=self.log_fill,
            workers=sum(counts.values()),
            unreadable=anomalies.unknown + anomalies.undecodable,
            quarantined=sum(
                n for group, n in counts.items() if group.state == "checksum_mismatch"
            ),
            held=0 if core is None else core.care.held,
            guard_engaged=core is not None and core.care.guard_engaged,
            trouble=OUTDATED if core and core.line.outdated else self.trouble,
        )

    def _groups(self) -> pages.Grouped:
        """The workers by group, counted anew only when the view changed."""
        core = self._core()
        state = EMPTY if core is None else core.fold.fleet_state
        if self._counted is None or self._counted[0] is not state:
            self._counted = state, pages.group_workers(state)
        return self._counted[1]

    def sample(self) -> None:
        """Bring the gauges up to date; called before each scrape."""
        metrics, signs, core = self._metrics, self._signs(), self._core()
        metrics.revision.set(signs.revision)
        metrics.ordinal.set(signs.ordinal)
        metrics.leader.set(signs.leading)
        metrics.log_last_revision.set(signs.log_last_revision)
        metrics.log_fill_ratio.set(signs.log_fill)
        metrics.oldest_unpublished_s.set(signs.unpublished_s)
        metrics.expiries_held.set(signs.held)
        metrics.guard_engaged.set(signs.guard_engaged)
        metrics.beats_received.inc(self._ear.take_heard())
        metrics.beats_lost.inc(self._ear.take_lost())
        resumptions = self._log.resumptions
        metrics.log_resumptions.inc(resumptions - self._resumptions_shown)
        self._resumptions_shown = resumptions
        metrics.blind_s.inc(self._book.blind_s - self._blind_shown)
        self._blind_shown = self._book.blind_s
        if core is not None:
            metrics.lives.set(len(core.fold.lives))
            metrics.epoch.set(0 if core.line.epoch is None else core.line.epoch.count)
            counted = core.fold.anomalies.counts
            metrics.show_anomalies(msgspec.structs.asdict(counted))
        grouped = self._groups()
        metrics.show_fleet(grouped.workers, grouped.models)
        metrics.worker_sets.set(grouped.sets)
        metrics.worker_sets_ready.set(grouped.ready)
