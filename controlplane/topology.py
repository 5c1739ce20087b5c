"""Where everything of a cell lives on the broker: subjects and streams, as data."""

from __future__ import annotations

from typing import Final

import msgspec

from events import Cell, Namespace, WorkerId, check_cell, encode_token

from .broker import Broker, StreamSpec
from .errors import TopologyDriftError
from .identifiers import new_uuid7
from .settings import Settings

LOG_ID: Final = "controlplane.log_id"
"""The key of the log's identity in its stream's metadata."""
CANARY: Final = "_canary"
"""Stands where a beat's namespace would; no namespace begins with ``_``."""


class Names(msgspec.Struct, frozen=True):
    """The subjects and streams of one cell."""

    cell: Cell

    def __post_init__(self) -> None:
        """Refuse what is no cell's name."""
        check_cell(self.cell)

    @property
    def prefix(self) -> str:
        """What every subject of the cell begins with."""
        return f"cp.{self.cell}."

    def absolute(self, subject: str) -> str:
        """A relative subject, as ``log.worker.prod.w1``, on the wire."""
        return self.prefix + subject

    def relative(self, subject: str) -> str:
        """The same back."""
        return subject.removeprefix(self.prefix)

    def _stream(self, name: str) -> str:
        return f"CP_{self.cell.upper()}_{name}"

    @property
    def log_stream(self) -> str:
        """The stream of all events."""
        return self._stream("LOG")

    @property
    def view_stream(self) -> str:
        """The stream of numbered deltas."""
        return self._stream("VIEW")

    @property
    def snapshot_stream(self) -> str:
        """The stream of the latest snapshots."""
        return self._stream("SNAPSHOT")

    @property
    def head_stream(self) -> str:
        """The stream that keeps the latest head for a moment."""
        return self._stream("HEAD")

    @property
    def report_stream(self) -> str:
        """The stream of what routers report, for looking back."""
        return self._stream("ROUTERS")

    @property
    def lease_bucket(self) -> str:
        """The bucket that holds the projector's lease."""
        return self._stream("LEASE")

    @property
    def presence_bucket(self) -> str:
        """The bucket in which routers say that they are there."""
        return self._stream("PRESENCE")

    @property
    def view(self) -> str:
        """Where deltas are stored."""
        return self.absolute("view")

    @property
    def live(self) -> str:
        """Where stored deltas are republished."""
        return self.absolute("live")

    @property
    def head(self) -> str:
        """Where the leader says how far the view is."""
        return self.absolute("head")

    @property
    def snapshot_pointer(self) -> str:
        """Where the latest snapshot is named."""
        return self.absolute("snapshot.head")

    def snapshot_chunk(self, snapshot_id: str, chunk: int | str) -> str:
        """Where a piece of a snapshot is; ``*`` for all of them."""
        return self.absolute(f"snapshot.{snapshot_id}.{chunk}")

    def beat(self, namespace: Namespace, worker_id: WorkerId) -> str:
        """Where a worker beats."""
        return self.absolute(f"beat.{namespace}.{encode_token(worker_id)}")

    @property
    def all_beats(self) -> str:
        """Every worker's beats, and the canaries."""
        return self.absolute("beat.*.*")

    def canary(self, projector: str) -> str:
        """Where a projector tries whether beats would reach it."""
        return self.absolute(f"beat.{CANARY}.{encode_token(projector)}")

    def notice(self, namespace: Namespace, worker_id: WorkerId) -> str:
        """Where a worker is told what became of it."""
        return self.absolute(f"notice.{namespace}.{encode_token(worker_id)}")

    def load(self, namespace: Namespace, worker_id: WorkerId) -> str:
        """Where it is said how busy a worker is."""
        return self.absolute(f"load.{namespace}.{encode_token(worker_id)}")

    @property
    def all_loads(self) -> str:
        """Every worker's load reports."""
        return self.absolute("load.*.*")

    def report(self, router: str) -> str:
        """Where a router reports what it sees."""
        return self.absolute(f"router.{encode_token(router)}")

    def entry(self, bucket: str, key: str) -> str:
        """The subject of a bucket's entry."""
        return f"$KV.{bucket}.{encode_token(key)}"


def streams(names: Names, settings: Settings, replicas: int) -> tuple[StreamSpec, ...]:
    """How every stream of the cell must be; the log first.

    The log's metadata gets a fresh identity, which counts only at its creation.
    """
    log = StreamSpec(
        name=names.log_stream,
        subjects=(names.absolute("log.>"),),
        description="Every event of the cell, in total order.",
        max_bytes=settings.log_max_bytes,
        discard_new=True,
        deny_delete=True,
        allow_atomic=True,
        replicas=replicas,
        metadata={LOG_ID: new_uuid7()},
    )
    view = StreamSpec(
        name=names.view_stream,
        subjects=(names.view,),
        description="Deltas of the view, numbered within epochs.",
        max_age_s=settings.view_max_age_s,
        max_bytes=settings.view_max_bytes,
        deny_delete=True,
        allow_atomic=True,
        republish=(names.view, names.live),
        duplicate_window_s=min(120.0, settings.view_max_age_s),
        replicas=replicas,
    )
    snapshot = StreamSpec(
        name=names.snapshot_stream,
        subjects=(names.absolute("snapshot.>"),),
        description="The latest snapshots of the view, in chunks.",
        max_messages_per_subject=1,
        replicas=replicas,
    )
    head = StreamSpec(
        name=names.head_stream,
        subjects=(names.head,),
        description="The leader's latest head.",
        max_messages_per_subject=1,
        max_age_s=max(2.0, 3 * settings.head_every_s),
        duplicate_window_s=1.0,
        replicas=replicas,
    )
    report = StreamSpec(
        name=names.report_stream,
        subjects=(names.absolute("router.*"),),
        description="What routers reported: position, staleness, ejections.",
        max_age_s=7 * 24 * 3600.0,
        max_bytes=settings.reports_max_bytes,
        replicas=replicas,
    )
    presence_age_s = settings.presence_ttl_s + settings.presence_lapse_s
    return (
        log,
        view,
        snapshot,
        head,
        report,
        _bucket(names.lease_bucket, settings.lease_s, replicas),
        _bucket(names.presence_bucket, presence_age_s, replicas),
    )


def _bucket(name: str, ttl_s: float, replicas: int) -> StreamSpec:
    """A key-value bucket: a stream with one message per subject and an age limit."""
    return StreamSpec(
        name=f"KV_{name}",
        subjects=(f"$KV.{name}.>",),
        description="A bucket with a time to live.",
        max_messages_per_subject=1,
        max_age_s=ttl_s,
        duplicate_window_s=min(ttl_s, 2.0),
        allow_rollup=True,
        replicas=replicas,
    )


async def init(
    broker: Broker, cell: Cell, settings: Settings, *, replicas: int = 1
) -> bool:
    """Create the cell's streams; whether any was created. Idempotent.

    Raises `TopologyDriftError` naming each difference of every stream that exists;
    then nothing is created.
    """
    wanted = streams(Names(cell), settings, replicas)
    found = [(spec, await broker.stream_differences(spec)) for spec in wanted]
    drift = [d for _, differences in found for d in differences or ()]
    if drift:
        raise TopologyDriftError(differences=drift)
    missing = [spec for spec, differences in found if differences is None]
    for spec in missing:
        await broker.create_stream(spec)
    return bool(missing)
