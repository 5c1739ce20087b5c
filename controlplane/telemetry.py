"""What a process says of itself: every metric of the project is declared here.

A class per kind of process, each over a registry of its own: a test or a demo holds
several in one process. Counters only grow; gauges are set by whoever knows, or read
at scrape time through ``set_function``. Log lines are set up in `logs`.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import Final, Literal, NamedTuple, TypeAlias, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from .fleet_series import (
    FLEET_SERIES,
    MODELS_SHOWN_MAX,
    ModelState,
    Series,
    WorkerGroup,
    fleet_series,
)
from .labels import (
    ANOMALY_KINDS,
    EPOCH_REASONS,
    HISTORY_LOSSES,
    NOTICE_KINDS,
    REFUSALS,
    REREGISTRATION_REASONS,
    RESYNC_REASONS,
    VIEW_SOURCES,
)
from .logs import configure_logging
from .tally import PickTally

__all__ = [
    "HISTORY_LOSSES",
    "PickTally",
    "PortMetrics",
    "ProjectorMetrics",
    "RouterMetrics",
    "WorkerMetrics",
    "configure_logging",
    "metric_rows",
    "metrics_route",
    "render_metrics_page",
]

EXPOSITION_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

Kind: TypeAlias = Literal["counter", "gauge"]

_Metric = TypeVar("_Metric", Counter, Gauge)


class MetricRow(NamedTuple):
    """One line of the page of metrics."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    meaning: str


class _Sheet:
    """Declares metrics of one kind of process and remembers what it declared."""

    def __init__(self, process: str, registry: CollectorRegistry) -> None:
        self._prefix, self._registry = f"controlplane_{process}_", registry
        self.rows: list[MetricRow] = []

    def counter(self, name: str, meaning: str, **labels: Iterable[str]) -> Counter:
        full = self.note(f"{name}_total", "counter", meaning, *labels)
        made = Counter(full, meaning, tuple(labels), registry=self._registry)
        return _begun(made, labels)

    def gauge(self, name: str, meaning: str, **labels: Iterable[str]) -> Gauge:
        full = self.note(name, "gauge", meaning, *labels)
        made = Gauge(full, meaning, tuple(labels), registry=self._registry)
        return _begun(made, labels)

    def note(self, name: str, kind: Kind, meaning: str, *labels: str) -> str:
        row = MetricRow(self._prefix + name, kind, labels, meaning)
        self.rows.append(row)
        return row.name


def _begun(metric: _Metric, labels: Mapping[str, Iterable[str]]) -> _Metric:
    """Begin each known label at 0, so that a rate sees its first step too."""
    for name, values in labels.items():
        for value in values:
            metric.labels(**{name: value})
    return metric


class _AtScrape(Collector):
    """Families that are computed when they are asked for; nothing before."""

    def __init__(self, families: Callable[[], Iterator[Metric]]) -> None:
        self._families = families

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterator[Metric]:
        return self._families()


class ProjectorMetrics:
    """A projector: what it folded, published, expired, and whether it leads."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """Declare all of it in ``registry``."""
        sheet = _Sheet("projector", registry)
        self.rows = sheet.rows
        self._position(sheet)
        self._publishing(sheet)
        self._liveness(sheet)
        self._fleet(sheet, registry)

    def _position(self, sheet: _Sheet) -> None:
        gauge, counter = sheet.gauge, sheet.counter
        self.revision = gauge("revision", "Revision of the last record folded")
        self.ordinal = gauge("ordinal", "Ordinal of the last delta computed")
        self.epoch = gauge("epoch", "Count of the epoch that the deltas belong to")
        self.leader = gauge("leader", "1 while this projector holds the lease, else 0")
        self.log_last_revision = gauge(
            "log_last_revision", "Last revision that the log is known to have"
        )
        self.log_fill_ratio = gauge(
            "log_fill_ratio", "Share of the log's size limit in use; 0 without a limit"
        )
        self.records_folded = counter("records_folded", "Records folded, replay too")
        self.log_resumptions = counter(
            "log_resumptions", "Times the log's reader went on from its own last record"
        )
        self.history_losses = counter(
            "history_losses",
            "Times the log was not the one that this projector, or a worker, knew",
            reason=HISTORY_LOSSES,
        )
        self.anomalies = gauge(
            "anomalies",
            "Records of the log that the fold sets aside",
            kind=ANOMALY_KINDS,
        )

    def _publishing(self, sheet: _Sheet) -> None:
        gauge, counter = sheet.gauge, sheet.counter
        self.oldest_unpublished_s = gauge(
            "oldest_unpublished_delta_age_seconds",
            "Age of the oldest delta that is computed but not published; 0: none waits",
        )
        self.deltas_published = counter("deltas_published", "Deltas stored by this one")
        self.publish_batches = counter("publish_batches", "Atomic batches of deltas")
        self.publishes_refused = counter(
            "publishes_refused", "Publishes that were not acknowledged", reason=REFUSALS
        )
        self.epoch_starts = counter(
            "epoch_starts", "Epochs that this projector started", reason=EPOCH_REASONS
        )
        self.snapshots_written = counter("snapshots_written", "Snapshots stored whole")
        self.snapshots_failed = counter("snapshots_failed", "Snapshots not stored")
        self.snapshot_revision = gauge(
            "snapshot_revision", "Revision of the newest snapshot known; 0: none"
        )
        self.divergences = counter(
            "divergences", "Published deltas that differ from the one computed here"
        )

    def _liveness(self, sheet: _Sheet) -> None:
        gauge, counter = sheet.gauge, sheet.counter
        self.beats_received = counter("beats_received", "Beats that arrived")
        self.beats_lost = counter(
            "beats_lost", "Beats dropped because this subscription was slow"
        )
        self.lives = gauge("lives", "Lives whose leases are tracked")
        self.expiries = counter("expiries", "Lives that this projector expired")
        self.expiries_held = gauge(
            "expiries_held", "Lives overdue that the mass-expiry guard holds"
        )
        self.guard_engaged = gauge(
            "expiry_guard_engaged", "1 while the mass-expiry guard holds, else 0"
        )
        self.blind_s = counter(
            "blind_seconds", "Time in which beats could not be seen; it extends leases"
        )
        self.notices_sent = counter(
            "notices_sent", "Notices sent to lives", kind=NOTICE_KINDS
        )

    def _fleet(self, sheet: _Sheet, registry: CollectorRegistry) -> None:
        self.worker_sets = sheet.gauge("worker_sets", "WorkerSets in the view")
        self.worker_sets_ready = sheet.gauge("worker_sets_ready", "WorkerSets ready")
        self.models_not_shown = sheet.gauge(
            "models_not_shown",
            f"Models of a namespace beyond the first {MODELS_SHOWN_MAX} by name: "
            "without series of their own below",
        )
        self._series: Series = {}
        for name, labels, meaning in FLEET_SERIES:
            full = sheet.note(name, "gauge", meaning, *labels)
            registry.register(_AtScrape(self._family(name, full, labels, meaning)))

    def _family(
        self, name: str, full: str, labels: tuple[str, ...], meaning: str
    ) -> Callable[[], Iterator[Metric]]:
        def families() -> Iterator[Metric]:
            family = GaugeMetricFamily(full, meaning, labels=labels)
            for values, number in self._series.get(name, {}).items():
                family.add_metric(values, number)
            yield family

        return families

    def show_fleet(
        self,
        workers: Mapping[WorkerGroup, int],
        models: Mapping[tuple[str, str], ModelState],
    ) -> None:
        """Replace all series of the fleet; what is not named has none."""
        self._series, left_out = fleet_series(workers, models)
        self.models_not_shown.set(left_out)

    def show_anomalies(self, counts: Mapping[str, int]) -> None:
        """Set the number of anomalies of each kind in ``counts``."""
        for kind, count in counts.items():
            self.anomalies.labels(kind=kind).set(count)


class RouterMetrics:
    """A router's view: where it stands, how stale it is, what it repaired."""

    def __init__(
        self, registry: CollectorRegistry, tally: PickTally | None = None
    ) -> None:
        """Declare all of it in ``registry``; picks are read from ``tally``."""
        self.tally = PickTally() if tally is None else tally
        sheet = _Sheet("router", registry)
        self.rows = sheet.rows
        self._position(sheet)
        self._following(sheet)
        registry.register(_AtScrape(self._picks(sheet)))
        registry.register(_AtScrape(self._loads(sheet)))

    def _position(self, sheet: _Sheet) -> None:
        self.revision = sheet.gauge("revision", "Revision that the view includes")
        self.ordinal = sheet.gauge("ordinal", "Ordinal of the last delta applied")
        self.epoch = sheet.gauge("epoch", "Count of the epoch that the view is in")
        self.stale_s = sheet.gauge(
            "stale_seconds", "Time for which the view may have been behind the log"
        )
        self.source = sheet.gauge(
            "source", "1 at where the view comes from, else 0", source=VIEW_SOURCES
        )

    def _following(self, sheet: _Sheet) -> None:
        counter = sheet.counter
        self.deltas_applied = counter("deltas_applied", "Deltas applied to the view")
        self.duplicates_compared = counter(
            "duplicates_compared", "Deltas already applied, compared and dropped"
        )
        self.gaps_repaired = counter(
            "gaps_repaired", "Runs of missing deltas fetched from the view stream"
        )
        self.resyncs = counter(
            "resyncs", "Times the view was loaded anew", reason=RESYNC_REASONS
        )
        self.divergences = counter(
            "divergences", "Same place, other digest: found, reported and resynced"
        )
        self.checkpoints_written = counter(
            "checkpoints_written", "Checkpoint files written"
        )
        self.dropped_then_resynced = counter(
            "dropped_then_resynced", "Times this router was too slow and resynced"
        )

    def _picks(self, sheet: _Sheet) -> Callable[[], Iterator[Metric]]:
        meaning, why = "Picks that gave a worker", "Picks that raised"
        picks = sheet.note("picks_total", "counter", meaning)
        failed = sheet.note("picks_failed_total", "counter", why, "reason")

        def families() -> Iterator[Metric]:
            yield CounterMetricFamily(picks, meaning, value=self.tally.picked)
            family = CounterMetricFamily(failed, why, labels=["reason"])
            for reason, count in tuple(self.tally.failed.items()):
                family.add_metric([reason], count)
            yield family

        return families

    def _loads(self, sheet: _Sheet) -> Callable[[], Iterator[Metric]]:
        busy = "Picks of a worker that was busy, because all were"
        heard, known = "Load reports that came", "Workers whose load is known"
        picks = sheet.note("picks_all_busy_total", "counter", busy)
        reports = sheet.note("load_reports_total", "counter", heard, "outcome")
        reporting = sheet.note("workers_reporting", "gauge", known)

        def families() -> Iterator[Metric]:
            tally = self.tally
            yield CounterMetricFamily(picks, busy, value=tally.all_busy)
            yield GaugeMetricFamily(reporting, known, value=tally.reporting)
            family = CounterMetricFamily(reports, heard, labels=["outcome"])
            for outcome, count in tally.heard.items():
                family.add_metric([outcome], count)
            yield family

        return families

    def show_source(self, source: str) -> None:
        """Say where the view comes from: none, checkpoint or live."""
        for name in VIEW_SOURCES:
            self.source.labels(source=name).set(name == source)


class WorkerMetrics:
    """The worker client of a plane: all the workers of one process together."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """Declare all of it in ``registry``; counting is safe from any thread."""
        sheet = _Sheet("worker", registry)
        self.rows = sheet.rows
        self.beats_sent = sheet.counter("beats_sent", "Beats handed to the broker")
        self.reregistrations = sheet.counter(
            "reregistrations",
            "Registrations after the first, by what asked for them",
            reason=REREGISTRATION_REASONS,
        )
        self.notices = sheet.counter("notices", "Notices received", kind=NOTICE_KINDS)
        self.append_retries = sheet.counter(
            "append_retries", "Appends repeated, for want of an answer or on conflict"
        )


class PortMetrics:
    """Port claims of a plane, its workers' too."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """Declare all of it in ``registry``."""
        sheet = _Sheet("ports", registry)
        self.rows, counter = sheet.rows, sheet.counter
        self.claims = counter("claims", "Claims granted; one may be of several blocks")
        self.released = counter("blocks_released", "Blocks let go, workers' left out")
        self.races_lost = counter("races_lost", "Times that another claim was faster")
        self.busy = counter("busy", "Ports found in use outside the log")
        self.exhausted = counter("exhausted", "Claims refused: there was no place")
        self.in_doubt = counter("claims_in_doubt", "Claims settled in the background")


def metrics_route(
    registry: CollectorRegistry, sample: Callable[[], None] | None = None
) -> Callable[[], Awaitable[tuple[int, str, bytes]]]:
    """A handler for ``/metrics``; ``sample`` runs first, to set what is dear."""

    async def metrics() -> tuple[int, str, bytes]:
        if sample is not None:
            sample()
        return 200, EXPOSITION_TYPE, generate_latest(registry)

    return metrics


def metric_rows() -> dict[str, list[MetricRow]]:
    """Every metric of the project, by kind of process."""
    return {
        "Projector": ProjectorMetrics(CollectorRegistry()).rows,
        "Router": RouterMetrics(CollectorRegistry()).rows,
        "Worker client": WorkerMetrics(CollectorRegistry()).rows,
        "Ports": PortMetrics(CollectorRegistry()).rows,
    }


def render_metrics_page() -> str:
    """The page of metrics, as Markdown: ``.github/METRICS.md`` is this text."""
    lines = [
        "# Metrics",
        "",
        "Generated from `controlplane/telemetry.py`; write it anew with",
        "`python -m controlplane.telemetry > .github/METRICS.md`.",
    ]
    for process, rows in metric_rows().items():
        lines += ["", f"## {process}", ""]
        lines += ["| Name | Type | Labels | Meaning |", "|---|---|---|---|"]
        for name, kind, labels, meaning in rows:
            shown = ", ".join(f"`{label}`" for label in labels)
            lines.append(f"| `{name}` | {kind} | {shown} | {meaning} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(render_metrics_page())
