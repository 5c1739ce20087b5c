"""What each command shows of fixed logs, at 80 columns."""

from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

from rich.text import Text

from controlplane.cli.columns import heading, stream_widths
from controlplane.cli.port_tables import ports_footer, ports_table
from controlplane.cli.records import LogLines
from controlplane.cli.showing import result_lines
from controlplane.cli.tables import (
    CHANGE_COLUMNS,
    change_line,
    everyone,
    models_table,
    picks_table,
    replay_footer,
    routers_table,
    view_footer,
    wait_line,
    workers_table,
)
from controlplane.demo import DemoResult, Standing, Traffic
from controlplane.presence import Presence, RouterSeen, WaitResult
from events import Role, Status
from projections import (
    Fleet,
    FoldState,
    Moment,
    PlaneState,
    PortRange,
    PortTable,
    Touched,
    fold_all,
    list_ports,
    worker_changes,
)
from tests.golden.cli.archived import exports, imports
from tests.golden.cli.decided import decisions, gates
from tests.golden.cli.logged import counted, counted_empty, counted_long, shown
from tests.golden.cli.looked_back import looked_back
from tests.golden.cli.verified import verifications
from tests.golden.cli.witnessed import steps, testimonies, whys
from tests.golden.stories import STORIES, every_event
from tests.support.fleet_builder import (
    C1,
    C2,
    START,
    Story,
    claimed,
    deregistered,
    draining,
    given,
    held,
    poison,
    registered,
    released,
    silent_for,
    status,
    unloaded,
    weighted,
)

HERE = Path(__file__).parent
WIDTH = 80
LOG_ID = "01a22c22-d59f-77fc-8202-b8df97cee4a0"
EPOCH = f"{LOG_ID}.1.1@0"


def long_names() -> Story:
    """A fleet as clusters name it, in every state."""
    pod = "vllm-decode-7f9c8d6b5-{}"
    decode = {
        "namespace": "team-a-production-europe-v2",
        "model": "meta-llama/Llama-3.1-70B-Instruct",
        "role": Role.DECODE,
        "needs": [[Role.PREFILL]],
        "address": "http://vllm-decode-7f9c8d6b5-x2x4z.team-a.svc.cluster.local:8000",
    }
    return given(
        registered(pod.format("x2x4z"), **decode, card=C1),
        registered(pod.format("k9q7w"), **decode, card=C2),
        registered(pod.format("aaaaa"), **decode, card=C1),
        held(pod.format("aaaaa"), namespace=decode["namespace"], reason="noisy"),
        registered("größe-日本語-\x1b[31m", model="模型", adapters=("sql-lora",)),
        registered("w9", model="gone"),
        draining("größe-日本語-\x1b[31m", reason="rollout"),
        status("w9", Status.DRAINED),
        deregistered("w9", reason="scaled down"),
    )


def prefill_lost() -> Story:
    """Roles of their own, one of them lost, doubled or waiting; and a canary."""
    decode = {"role": Role.DECODE, "needs": [[Role.PREFILL]]}
    prefill = {"role": Role.PREFILL}
    return given(
        *(registered(f"d{n}", namespace="prod-v1", **decode) for n in range(3)),
        registered("p0", namespace="prod-v1", **prefill),
        draining("p0", namespace="prod-v1"),
        *(registered(f"d{n}", namespace="prod-v2", **decode) for n in range(2)),
        registered("d9", namespace="prod-v2", card=C2, **decode),
        registered("p0", namespace="prod-v2", **prefill),
        registered("p1", namespace="prod-v2", component="spare", **prefill),
        registered("whole", adapters=("sql-lora", "chat-lora")),
        unloaded("whole", "sql-lora"),
        weighted(0.1, namespace="prod-v2"),
    )


def a_host_in_use() -> Story:
    """Two hosts with blocks of every kind: held, in part, resting, unreadable."""
    pod = {"namespace": "team-a-production-europe-v2", "host": "10.0.0.12"}
    return given(
        claimed("w0", 20900, 2, host="10.0.0.7"),
        silent_for(s=2 * 24 * 3600),
        claimed("w1", 20000, host="10.0.0.7"),
        claimed("w1", 20008, 8, host="10.0.0.7"),
        claimed("w2", 20016, 8, host="10.0.0.7"),
        claimed("vllm-decode-7f9c8d6b5-x2x4z", 20000, 8, **pod),
        claimed("größe-日本語-\x1b[31m", 29990, host="10.0.0.12"),
        claimed("w2", 20100, host="10.0.0.7"),
        released(20100, host="10.0.0.7"),
        silent_for(s=60),
        poison("log.port.10%2E0%2E0%2E7.20500", b"[]"),
        released(20018, host="10.0.0.7", cause="unusable"),
        claimed("w3", 20200, 2, host="10.0.0.7"),
        released(20200, 2, host="10.0.0.7", cause="expired"),
    )


def a_few_ports() -> Story:
    """A host as the README shows it."""
    here = {"host": "10.0.0.7"}
    kv, side = {"reason": "kv_events"}, {"reason": "nixl_side_channel"}
    return given(
        claimed("llama-1", 20008, **here, **kv),
        claimed("llama-1", 20000, 8, **here, **side),
        silent_for(s=26 * 3600),
        claimed("llama-2", 20017, **here, **kv),
        claimed("llama-2", 20024, 4, **here, **side),
        claimed("prof", 20020, 2, namespace="tools", reason="profiler", **here),
        silent_for(s=70),
        released(20024, 4, cause="expired", **here),
    )


def a_long_host() -> Story:
    """A host named as a cluster names it, and a short one."""
    pod = "vllm-decode-7f9c8d6b5-{}.team-a.svc.cluster.local"
    return given(
        claimed("w1", 20000, 8, host="10.0.0.7"),
        claimed("vllm-decode-7f9c8d6b5-x2x4z", 20000, 8, host=pod.format("x2x4z")),
        claimed("w2", 20000, host=pod.format("k9q7w"), reason="nixl_side_channel"),
    )


def _fleet(story: Story, *, until: int | None = None) -> Fleet:
    records = list(story)[:until]
    state = fold_all(FoldState(), records)
    return Fleet(
        state.fleet_state,
        revision=state.revision,
        log_id=LOG_ID,
        epoch=EPOCH,
        anomalies=state.anomalies.counts,
    )


def _replayed(story: Story) -> PlaneState:
    return PlaneState(fold_all(FoldState(), story), log_id=LOG_ID)


def _models(fleet: Fleet) -> list[Text]:
    return [*models_table(fleet, WIDTH), *view_footer(fleet, 0.04, WIDTH)]


def _tail(story: Story) -> list[Text]:
    lines = LogLines(WIDTH)
    return [lines.heading(), *(text for record in story for text in lines.of(record))]


def _watch(story: Story) -> list[Text]:
    touched = Touched()
    touched.everything = True
    lines = [heading(CHANGE_COLUMNS, stream_widths(CHANGE_COLUMNS, WIDTH))]
    before = Fleet()
    for until in range(1, len(story) + 1):
        after = _fleet(story, until=until)
        changes = worker_changes(before, after, touched)
        lines += [change_line(change, WIDTH) for change in changes]
        before = after
    return lines


def _routers() -> list[Text]:
    def seen(name: str, age_s: float, **fields: object) -> RouterSeen:
        usual = {"epoch": EPOCH, "revision": 1234, "digest": "4b1130279f2683fe" * 2}
        usual |= {"source": "live", "stale_for_s": 0.2}
        presence = Presence(name=name, **{**usual, **fields})
        return RouterSeen(presence=presence, age_s=age_s, live=age_s <= 10)

    return routers_table(
        [
            seen("router-a", 0.4),
            seen("router-b", 31.0, revision=1200, stale_for_s=7300.0),
            seen("router-new", 1.0, revision=0, digest="", source="none"),
        ],
        WIDTH,
    )


def _ports(
    story: Story,
    *,
    host: str | None = None,
    within: PortRange | None = None,
    later_s: float = 0.5,
) -> list[Text]:
    state = fold_all(FoldState(), story)
    at = (state.recorded_at or START) + timedelta(seconds=later_s)
    return _listed(state.ports, at, host, state.revision, within)


def _replay_ports(story: Story) -> list[Text]:
    state = fold_all(FoldState(), story)
    listing = list_ports(state.ports, Moment(state.recorded_at, 5.0))
    return [*ports_table(listing, WIDTH), ports_footer(listing, WIDTH)]


def _listed(
    table: PortTable,
    at: datetime,
    host: str | None,
    revision: int,
    within: PortRange | None = None,
) -> list[Text]:
    listing = list_ports(table, Moment(at, 5.0), within=within, host=host)
    footer = ports_footer(listing, WIDTH, f"revision {revision}", "log …97cee4a0")
    return [*ports_table(listing, WIDTH, host), footer]


def _demo(*, ok: bool) -> list[Text]:
    agreed, other = "4b1130279f2683fe4fa3ca39ce6fbb07", "0" * 32
    rows = [
        Standing(who, 187, agreed if ok or who != "router-b" else other)
        for who in ("projector-a", "projector-b", "router-a", "router-b", "replay")
    ]
    result = DemoResult(
        rows=tuple(rows),
        digests={row.who: row.digest for row in rows},
        revision=187,
        traffic=Traffic(picks=5321, answered=5321),
        seconds=21.34,
        problems=() if ok else ("router-b differs from the others",),
    )
    return result_lines(result, WIDTH)


SCREENS: dict[str, Callable[[], list[Text]]] = {
    "models": lambda: _models(_fleet(STORIES["rolling_update"](), until=12)),
    "models_long_names": lambda: _models(_fleet(long_names())),
    "models_roles": lambda: _models(_fleet(prefill_lost())),
    "models_empty": lambda: _models(_fleet(given())),
    "models_poison": lambda: _models(_fleet(STORIES["poison"]())),
    "workers": lambda: workers_table(
        _fleet(STORIES["rolling_update"](), until=15), WIDTH
    ),
    "workers_long_names": lambda: workers_table(_fleet(long_names()), WIDTH),
    "workers_empty": lambda: workers_table(_fleet(given()), WIDTH),
    "routers": _routers,
    "routers_empty": lambda: routers_table([], WIDTH),
    "watch": lambda: _watch(STORIES["rolling_update"]()),
    "pick": lambda: picks_table(
        everyone(_fleet(STORIES["rolling_update"](), until=8)) * 2, WIDTH
    ),
    "wait": lambda: [
        wait_line(WaitResult(reached=True), 12, 30.0, 2),
        wait_line(WaitResult(reached=False, missing=("router-b",)), 12, 30.0, 1),
        wait_line(WaitResult(reached=False), 12, 0.5, 0),
    ],
    "log_export": exports,
    "log_show": shown,
    "log_stats": counted,
    "log_stats_long": counted_long,
    "log_stats_empty": counted_empty,
    "log_import": imports,
    "log_verify": verifications,
    "replay_as_seen_by": testimonies,
    "replay_step": steps,
    "explain_router": whys,
    "decisions": decisions,
    "gates": gates,
    "log_tail_drain_orders": lambda: _tail(STORIES["drain_orders"]()),
    "log_tail": lambda: _tail(STORIES["rolling_update"]()),
    "log_tail_every_event": lambda: _tail(every_event()),
    "log_tail_poison": lambda: _tail(STORIES["poison"]()),
    "log_tail_long_names": lambda: _tail(long_names()),
    "replay": lambda: [
        *models_table(_fleet(STORIES["rolling_update"]()), WIDTH),
        *replay_footer(_replayed(STORIES["rolling_update"]()), WIDTH),
    ],
    "replay_ports": lambda: _replay_ports(STORIES["rolling_update"]()),
    "ports": lambda: _ports(a_host_in_use()),
    "ports_few": lambda: _ports(a_few_ports(), later_s=1.5),
    "ports_of_a_host": lambda: _ports(a_host_in_use(), host="10.0.0.12"),
    "ports_within": lambda: _ports(a_host_in_use(), within=PortRange(20010, 20199)),
    "ports_none_within": lambda: _ports(a_few_ports(), within=PortRange(21000, 22000)),
    "ports_long_host": lambda: _ports(a_long_host()),
    "ports_all_free": lambda: _ports(
        given(claimed("w1", 20000, 8), released(20000, 8)), later_s=6
    ),
    "ports_poison": lambda: _ports(STORIES["poison"]()),
    "ports_empty": lambda: _listed(PortTable(), START, None, 0),
    "ports_unknown_host": lambda: _ports(a_host_in_use(), host="10.0.0.\x1b9"),
    "demo": lambda: _demo(ok=True),
    "demo_not_ok": lambda: _demo(ok=False),
    **looked_back(WIDTH),
}
"""Every screen; no clock, no network."""


def screen(name: str) -> str:
    """The screen's text, as it is piped."""
    return "".join(f"{line.plain}\n" for line in SCREENS[name]())
