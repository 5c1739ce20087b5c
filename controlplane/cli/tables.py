"""The fleet as tables. Pure: what is printed depends on the arguments alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from rich.text import Text

from controlplane.presence import RouterSeen, WaitResult
from events import ENTRY_ROLES, Namespace, Revision
from projections import Change, Fleet, Model, PlaneState, Worker, WorkerSet

from .columns import Cell, Column, cut, stream_widths, table
from .columns import line as columns_line
from .model_notes import model_notes

SHORT: Final = 8
DIGEST_SHORT: Final = 12
NOTHING: Final = "-"
GOOD, BAD, ODD, FAINT = "green", "red", "yellow", "dim"
YES, NO = Text("yes", style=GOOD), Text("no", style=BAD)

MODEL_COLUMNS: Final = (
    Column(title="model", least=14, middle=True),
    Column(title="namespace", least=9, middle=True),
    Column(title="role"),
    Column(title="ready", right=True),
    Column(title="serving"),
    Column(title="checksum"),
    Column(title="blockers", least=12),
)
WORKER_COLUMNS: Final = (
    Column(title="worker", least=14, middle=True),
    Column(title="model", least=10, middle=True),
    Column(title="role"),
    Column(title="status"),
    Column(title="routable", least=9),
    Column(title="address", least=14, middle=True),
)
ROUTER_COLUMNS: Final = (
    Column(title="router", least=12, middle=True),
    Column(title="state"),
    Column(title="revision", right=True),
    Column(title="digest"),
    Column(title="source"),
    Column(title="stale", right=True),
    Column(title="age", right=True),
)
PICK_COLUMNS: Final = (
    Column(title="worker", least=14, middle=True),
    Column(title="model", least=10, middle=True),
    Column(title="role"),
    Column(title="picks", right=True),
    Column(title="address", least=20, middle=True),
)
CHANGE_COLUMNS: Final = (
    Column(title="revision", usual=8, right=True),
    Column(title="change", usual=7),
    Column(title="worker", usual=28, least=12, middle=True),
    Column(title="model", usual=24, least=8, middle=True),
    Column(title="now", usual=20, least=12),
)


# ---- models --------------------------------------------------------------------
def models_table(fleet: Fleet, width: int) -> list[Text]:
    """A row for each WorkerSet, adapter and known name, by name; then the notes."""
    rows = []
    for model in fleet.models.values():
        serving = _serving_namespaces(model)
        for worker_set in model.worker_sets.values():
            serves = worker_set.namespace in serving
            rows.append(_set_row(model, worker_set, serves=serves))
    rows += _other_names(fleet)
    if not rows:
        return [Text("no model was ever registered in this cell", style=FAINT)]
    rows.sort(key=lambda row: str(row[0]))
    return [*table(MODEL_COLUMNS, rows, width), *model_notes(fleet, width)]


def _set_row(model: Model, worker_set: WorkerSet, *, serves: bool) -> list[Cell]:
    workers = list(worker_set.workers.values())
    return [
        model.name,
        worker_set.namespace,
        worker_set.key.role.value,
        _share(workers),
        _yes(serves),
        worker_set.checksum[:SHORT] or NOTHING,
        _reasons(workers),
    ]


def _serving_namespaces(model: Model) -> set[Namespace]:
    """The namespaces in which a request for the model may start."""
    return {
        worker_set.namespace
        for worker_set in model.worker_sets.values()
        if worker_set.key.role in ENTRY_ROLES
        and any(worker.routable for worker in worker_set.workers.values())
    }


def _other_names(fleet: Fleet) -> Iterator[list[Cell]]:
    """Known names that are no model with workers: adapters, and what went."""
    adapters: dict[tuple[str, str], list[Worker]] = {}
    for worker in everyone(fleet):
        for name in worker.adapters:
            adapters.setdefault((name, worker.namespace), []).append(worker)
    for (name, namespace), workers in adapters.items():
        serving = any(w.routable and w.role in ENTRY_ROLES for w in workers)
        share, reasons = _share(workers), _reasons(workers)
        yield [name, namespace, "adapter", share, _yes(serving), NOTHING, reasons]
    gone = set(fleet.known_models) - set(fleet.models) - {name for name, _ in adapters}
    nobody = Text("no workers", style=ODD)
    for name in gone:
        yield [name, NOTHING, NOTHING, "0/0", NO, NOTHING, nobody]


def _share(workers: Sequence[Worker]) -> str:
    return f"{sum(worker.routable for worker in workers)}/{len(workers)}"


def _yes(answer: object) -> Text:
    return YES if answer else NO


def _reasons(workers: Iterable[Worker]) -> Text:
    counts = Counter(blocker for worker in workers for blocker in worker.blockers)
    said = ", ".join(f"{count} {blocker}" for blocker, count in sorted(counts.items()))
    return Text(said, style=ODD)


def view_footer(fleet: Fleet, stale_for_s: float, width: int) -> list[Text]:
    """Where a router's view stands."""
    epoch = f"epoch {short_id(fleet.epoch)}"
    return _footer(fleet, width, epoch, f"stale for {_seconds(stale_for_s)}")


def replay_footer(state: PlaneState, width: int, started_at: int = 0) -> list[Text]:
    """Where and when a replay ended; the snapshot that it began with, if it did."""
    fleet, at = state.fleet, state.fold_state.recorded_at
    when = () if at is None else (f"{at:%F %T} UTC",)
    lines = _footer(fleet, width, f"log {short_id(fleet.log_id)}", when=when)
    if started_at:
        said = f"folded on from the snapshot at revision {started_at}"
        whole = "the whole log: --no-snapshot"
        lines.append(Text(cut(f"{said} · {whole}", width), style=FAINT))
    return lines


def _footer(
    fleet: Fleet, width: int, *more: str, when: tuple[str, ...] = ()
) -> list[Text]:
    digest = f"digest {fleet.digest[:DIGEST_SHORT]}"
    parts = (f"revision {fleet.revision}", *when, digest, *more)
    lines = [Text(cut(" · ".join(parts), width), style=FAINT)]
    unreadable = fleet.anomalies.unknown + fleet.anomalies.undecodable
    if unreadable:
        said = f"{unreadable} records could not be read: see controlplane log tail"
        lines.append(Text(cut(said, width), style=ODD))
    return lines


def short_id(text: str | None) -> str:
    """The end of a log's or epoch's long name: its beginning is a time."""
    if text is None:
        return NOTHING
    log_id, dot, rest = text.partition(".")
    return f"…{log_id[-SHORT:]}{dot}{rest}"


# ---- workers -------------------------------------------------------------------
def everyone(fleet: Fleet) -> list[Worker]:
    """Every worker, by namespace and id."""
    workers = [
        worker
        for model in fleet.models.values()
        for worker_set in model.worker_sets.values()
        for worker in worker_set.workers.values()
    ]
    return sorted(workers, key=lambda worker: (worker.namespace, worker.worker_id))


def workers_table(fleet: Fleet, width: int) -> list[Text]:
    """A row for each worker."""
    workers = everyone(fleet)
    if not workers:
        return [Text("no worker is registered in this cell", style=FAINT)]
    rows = [
        [
            name_of(worker),
            worker.model,
            worker.role.value,
            worker.status.value,
            routable(worker),
            worker.address,
        ]
        for worker in workers
    ]
    return table(WORKER_COLUMNS, rows, width)


def name_of(worker: Worker) -> str:
    """A worker's name in the cell: ``namespace/worker_id``."""
    return f"{worker.namespace}/{worker.worker_id}"


def routable(worker: Worker) -> Text:
    """Whether the worker gets requests; else why not."""
    if worker.routable:
        return Text("yes", style=GOOD)
    return Text(", ".join(worker.blockers), style=ODD)


def picks_table(picked: Sequence[Worker], width: int) -> list[Text]:
    """Who was picked, and how often."""
    counts = Counter(name_of(worker) for worker in picked)
    workers = {name_of(worker): worker for worker in picked}
    rows = [
        [name, worker.model, worker.role.value, str(counts[name]), worker.address]
        for name, worker in sorted(workers.items())
    ]
    return table(PICK_COLUMNS, rows, width)


def change_line(change: Change, width: int) -> Text:
    """One change, as ``watch`` shows it."""
    worker = change.worker or change.before
    if worker is None:
        return Text()
    style = {"added": GOOD, "removed": BAD}.get(change.kind, ODD)
    row: list[Cell] = [
        str(change.revision),
        Text(change.kind, style=style),
        name_of(worker),
        worker.model,
        _now(change),
    ]
    return columns_line(CHANGE_COLUMNS, row, stream_widths(CHANGE_COLUMNS, width))


def _now(change: Change) -> Text:
    worker = change.worker
    if worker is None:
        return Text("gone", style=BAD)
    reasons = [blocker for blocker in worker.blockers if blocker != worker.status.value]
    said = ", ".join((worker.status.value, *reasons))
    return Text(said, style=GOOD if worker.routable else ODD)


# ---- routers -------------------------------------------------------------------
def routers_table(seen: Sequence[RouterSeen], width: int) -> list[Text]:
    """A row for each router that is there, or went without goodbye."""
    if not seen:
        return [Text("no router says that it is there", style=FAINT)]
    rows: list[list[Cell]] = [
        [
            router.presence.name,
            Text("live", style=GOOD) if router.live else Text("missing", style=BAD),
            str(router.presence.revision),
            router.presence.digest[:DIGEST_SHORT] or NOTHING,
            router.presence.source,
            _seconds(router.presence.stale_for_s),
            _seconds(router.age_s),
        ]
        for router in seen
    ]
    return table(ROUTER_COLUMNS, rows, width)


def wait_line(
    result: WaitResult, revision: Revision, timeout_s: float, live: int
) -> Text:
    """What came of waiting for routers, of which so many are ``live``."""
    if result.reached:
        return Text(f"reached: revision {revision}", style=GOOD)
    who = ", ".join(result.missing) or "nobody"
    if live == 0:
        who = "no router is live"
    elif not result.missing:
        who = f"more routers, only {live} live"
    said = f"not reached within {timeout_s:g} s: revision {revision}; missing: {who}"
    return Text(said, style=BAD)


def _seconds(value: float) -> str:
    minute, hour = 60, 3600
    if value < minute:
        return f"{value:.1f} s"
    if value < 100 * minute:
        return f"{value / minute:.0f} min"
    return f"{value / hour:.0f} h"
