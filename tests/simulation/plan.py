"""What happens in a simulated run: timed steps, all of them data.

A plan comes from a seed (`planning.plan_of`), can be written as JSON, and stays
meaningful when steps are left out: that is how a failing one is shrunk. Times are
virtual seconds from the start. Processes are named ``p1 p2`` (projectors), ``r1 r2
r3`` (routers), ``w01 …`` (workers), ``op`` (the operator's client), ``c1 …`` (port
claimants); ``broker`` where a step takes the server as well.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import msgspec

from controlplane.viewfeed import CHUNK_BYTES
from events.identity import LABEL_BYTES_MAX, LABELS_MAX

LABEL_BYTES: Final = LABELS_MAX * LABEL_BYTES_MAX
"""The largest labels that a worker may have, their names not counted."""


class _Step(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    at_s: float


# ---- what the fleet does -------------------------------------------------------
class Enter(_Step, frozen=True, kw_only=True, tag="enter"):
    """A worker process starts and registers. It lives until it leaves or dies."""

    process: str
    worker_id: str
    namespace: str
    model: str
    role: str = "aggregated"
    needs: tuple[tuple[str, ...], ...] = ()
    card: int = 1
    """Which model card: others have another checksum."""
    status: str = "ready"
    lease_ttl_s: float = 10.0
    ports: int = 0
    """So many consecutive ports it wants…"""
    host: str = "10.0.0.1"
    """…of this host."""
    label_bytes: int = 0
    """How large its labels are together: what it says of itself is that much longer."""

    def __post_init__(self) -> None:
        """No worker can have more labels than `LABEL_BYTES`: it would not be one."""
        if not 0 <= self.label_bytes <= LABEL_BYTES:
            message = f"label_bytes is {self.label_bytes}; 0 to {LABEL_BYTES} can be"
            raise ValueError(message)


class Say(_Step, frozen=True, kw_only=True, tag="say"):
    """A worker gives a command: a status, an update, an adapter, a goodbye."""

    process: str
    verb: Literal["starting", "ready", "draining", "update", "load", "unload", "leave"]
    value: str = ""


class Operate(_Step, frozen=True, kw_only=True, tag="operate"):
    """An operator appends a decision."""

    verb: Literal["hold", "drain", "resume", "weight", "thresholds", "forget"]
    namespace: str = ""
    worker_id: str = ""
    model: str = ""
    weight: float = 1.0


class Claim(_Step, frozen=True, kw_only=True, tag="claim"):
    """A claimant process claims a block of ports, registers, beats, releases.

    There is just one place for the block; for a lone port there are two.
    """

    process: str
    host: str
    port: int
    size: int
    hold_s: float
    """How long it keeps the block; then it releases it."""
    register: bool = True


class Wait(_Step, frozen=True, kw_only=True, tag="wait"):
    """The operator waits until routers have the log's end, or a router is synced."""

    kind: Literal["wait", "synced", "wait_for"]
    router: str = ""
    timeout_s: float = 30.0


# ---- faults of processes -------------------------------------------------------
class Crash(_Step, frozen=True, kw_only=True, tag="crash"):
    """SIGKILL, after so many more callbacks; started again after ``restart_s``."""

    process: str
    callbacks: int = 0
    restart_s: float | None = 1.0


class Freeze(_Step, frozen=True, kw_only=True, tag="freeze"):
    """SIGSTOP, then SIGCONT."""

    process: str
    for_s: float


class ClockJump(_Step, frozen=True, kw_only=True, tag="clock_jump"):
    """The wall clock of a process, or of the broker, jumps."""

    process: str
    by_s: float


class Upgrade(_Step, frozen=True, kw_only=True, tag="upgrade"):
    """A process stops cleanly and starts again as another software version."""

    process: str
    version: Literal["old", "new"]


# ---- faults of the network -----------------------------------------------------
class Cut(_Step, frozen=True, kw_only=True, tag="cut"):
    """A process's connections break; no new one comes about for so long.

    Of what was on the way to the broker, ``landing`` is the share that arrives all
    the same; its answers are lost.
    """

    process: str
    for_s: float
    landing: float = 0.5


class BlackHole(_Step, frozen=True, kw_only=True, tag="black_hole"):
    """Nothing passes and nothing is refused; what was sent lands afterwards."""

    process: str
    for_s: float


class LoseAnswers(_Step, frozen=True, kw_only=True, tag="lose_answers"):
    """The next appends are stored and their answers lost."""

    process: str
    count: int = 1


class Noise(_Step, frozen=True, kw_only=True, tag="noise"):
    """Core messages to a process get lost, doubled, late and out of order.

    With ``deaf_s`` its connections are made anew, and so long at most what comes by
    way of the other node does not find the new subscriptions.
    """

    process: str
    for_s: float
    lose: float = 0.0
    double: float = 0.0
    late_s: float = 0.0
    deaf_s: float = 0.0


class Slow(_Step, frozen=True, kw_only=True, tag="slow"):
    """Every message takes so much longer, both ways."""

    process: str
    for_s: float
    by_s: float


# ---- faults of the broker ------------------------------------------------------
class BrokerStall(_Step, frozen=True, kw_only=True, tag="broker_stall"):
    """The server is stopped and continued: it then answers all at once."""

    for_s: float


class BrokerRestart(_Step, frozen=True, kw_only=True, tag="broker_restart"):
    """The server dies and comes back, without the last so many stored messages.

    Sequences that were lost are given again. Core messages on the way are gone.
    """

    down_s: float
    lose_log: int = 0
    lose_view: int = 0
    lose_snapshot: int = 0
    landing: float = 0.5


class LogRecreated(_Step, frozen=True, kw_only=True, tag="log_recreated"):
    """The log is deleted and made again, under another identity."""

    gone_s: float = 0.5


class TrimView(_Step, frozen=True, kw_only=True, tag="trim_view"):
    """The view stream forgets all but its last ``keep`` messages."""

    keep: int


class SpoilSnapshot(_Step, frozen=True, kw_only=True, tag="spoil_snapshot"):
    """The newest snapshot is damaged, misses a chunk, or is gone with its pointer."""

    how: Literal["corrupt", "missing", "gone"]
    chunk: int = -1
    """Which of its chunks; counted from the end if negative."""


class DropConsumers(_Step, frozen=True, kw_only=True, tag="drop_consumers"):
    """Somebody deletes every consumer of a stream."""

    stream: Literal["log", "view"]


class NodeStall(_Step, frozen=True, kw_only=True, tag="node_stall"):
    """One server of two is stopped and continued; its clients find the other."""

    node: Literal["n1", "n2"]
    for_s: float


class NoResponders(_Step, frozen=True, kw_only=True, tag="no_responders"):
    """JetStream has no leader for a while: appends are refused, certainly."""

    for_s: float


class Lag(_Step, frozen=True, kw_only=True, tag="lag"):
    """Consumers and listings are served by a replica that is so far behind."""

    for_s: float
    by_s: float


class Plant(_Step, frozen=True, kw_only=True, tag="plant"):
    """Somebody stores what does not belong there."""

    where: Literal[
        "view",
        "log",
        "unknown_event",
        "beat",
        "notice",
        "head",
        "false_head",
        "stale",
    ]


Step: TypeAlias = (
    Enter
    | Say
    | Operate
    | Claim
    | Wait
    | Crash
    | Freeze
    | ClockJump
    | Upgrade
    | Cut
    | BlackHole
    | LoseAnswers
    | Noise
    | Slow
    | BrokerStall
    | BrokerRestart
    | LogRecreated
    | TrimView
    | SpoilSnapshot
    | DropConsumers
    | NodeStall
    | NoResponders
    | Lag
    | Plant
)


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a run that differ from the defaults."""

    factor: float = 1.0
    """How much slower leases, canaries and heads go than by default."""
    view_max_age_s: float = 24 * 3600.0
    view_max_bytes: int = 256 << 20
    chunk_bytes: int = CHUNK_BYTES
    """How large the pieces of a snapshot are."""
    snapshot_every: int = 25
    publish_batch_max: int = 500


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """One run: its seed decides every delay, its steps what happens."""

    seed: int
    steps: tuple[Step, ...]
    faults_end_s: float
    """No step's effect lasts beyond this time…"""
    end_s: float
    """…and the run ends here: by then all must have converged."""
    pace: Pace = Pace()


PLAN_DECODER = msgspec.json.Decoder(Plan)
