"""The logs that are kept for ever. Add stories; never change one."""

from events import Capacity, ModelCard, Role, Status
from tests.support.fleet_builder import (
    C1,
    C2,
    Story,
    claimed,
    deregistered,
    drained,
    draining,
    expired,
    forgotten,
    given,
    held,
    loaded,
    poison,
    ready,
    registered,
    released,
    resumed,
    silent_for,
    starting,
    status,
    thresholds,
    unloaded,
    updated,
    weighted,
)

FULL_CARD = ModelCard(
    kv_block_size=16,
    context_length=131072,
    tokenizer_digest="sha256:11",
    chat_template_digest="sha256:22",
    quantization="fp8",
    tool_call_parser="llama3_json",
    reasoning_parser="none",
    max_loras=8,
    max_lora_rank=64,
    extra={"rope": "yarn", "eagle": "3"},
    source="s3://models/llama",
)
FULL = {
    "component": "decoder",
    "role": Role.DECODE,
    "model": "meta-llama/Llama-3.1-70B-Instruct",
    "needs": [[Role.PREFILL], [Role.PREFILL, Role.ENCODE]],
    "card": FULL_CARD,
    "capabilities": ("chat", "tools"),
    "adapters": ("sql-lora",),
    "capacity": Capacity(
        total_kv_blocks=1 << 20,
        max_num_seqs=256,
        max_num_batched_tokens=8192,
        data_parallel_size=2,
    ),
    "labels": {"zone": "b", "größe": "✓"},
    "status": Status.STARTING,
}


def every_event() -> Story:
    """One event of each type, each with every field set."""
    return given(
        registered("wörker.1", **FULL),
        status("wörker.1", Status.READY, reason="warm"),
        updated(
            "wörker.1",
            address="http://[::1]:8000",
            capacity=Capacity(max_num_seqs=1),
            labels={"zone": "c"},
        ),
        loaded("wörker.1", "chat/lora"),
        unloaded("wörker.1", "sql-lora"),
        claimed("wörker.1", 20000),
        released(20000, cause="expired"),
        expired("wörker.1", silent_for_s=10.5),
        deregistered("wörker.1", reason="rollout"),
        held("wörker.1", reason="noisy"),
        resumed("wörker.1", reason="quiet"),
        weighted(0.25, model="*", reason="canary"),
        thresholds(busy_kv_usage=0.9, busy_running=64, busy_waiting=8, reason="busy"),
        forgotten("old", reason="retired"),
    )


def rolling_update() -> Story:
    """Two workers of one generation make way for two of the next, one by one."""
    new = {"namespace": "prod-v2"}
    return given(
        claimed("w1", 20000, 2),
        registered("w1", card=C1),
        claimed("w2", 20002, 2),
        registered("w2", card=C1, labels={"zone": "a"}),
        loaded("w2", "sql-lora"),
        weighted(0.5, **new),
        starting("w3", card=C2, **new),
        ready("w3", **new),
        weighted(1.0, **new),
        draining("w1", reason="rollout"),
        status("w1", Status.DRAINED),
        deregistered("w1"),
        released(20000, 2),
        registered("w4", card=C2, **new),
        held("w4", **new),
        silent_for(s=20),
        expired("w2"),
        released(20002, 2, cause="expired"),
        resumed("w4", **new),
        registered("w4", card=C2, **new),
        registered("w5", card=C1, **new),
        thresholds(busy_kv_usage=0.9),
        forgotten("sql-lora"),
    )


def with_poison() -> Story:
    """A fleet in whose log much stands that nobody can read."""
    worker, port = "log.worker.prod.w1", "log.port.10%2E0%2E0%2E1.20000"
    good = registered("w1", labels={"zone": "a"})
    bytes_of_w1 = given(good).payloads[0]
    return given(
        good,
        claimed("w1", 20000),
        poison(worker, b"\xff\x00not JSON"),
        poison(worker, b""),
        poison(worker, b"null"),
        poison(worker, b'{"type":"worker_vanished.v1","event_id":"x-1"}'),
        poison(worker, b'{"type":"worker_expired.v1","event_id":"x-2"}'),
        poison(worker, bytes_of_w1.replace(b".v1", b".v7")),
        poison("log.worker.prod.w2", bytes_of_w1),
        poison(port, b'{"type":"port_released.v2"}'),
        poison("log.port.10%2E0%2E0%2E1.20001", b"[]"),
        poison("log.worker.prod.w1.more", bytes_of_w1),
        poison("log.mood.prod", b'{"type":7}'),
        poison(worker, b'{"type":"' + b"x" * 1000 + b'"}'),
        claimed("w1", 20001),
        deregistered("w9"),
        expired("w1", life=7),
        released(20000),
        registered("w2"),
    )


def drain_orders() -> Story:
    """Workers that operators ask to drain: one does, one is let go on, one dies."""
    return given(
        registered("w1"),
        registered("w2"),
        held("w1", drain=True, reason="rollout"),
        draining("w1", reason="asked"),
        held("w2", drain=True),
        drained("w1"),
        deregistered("w1"),
        resumed("w2"),
        registered("w1"),
        held("w2", drain=True, reason="again"),
        held("w2", reason="again"),
        held("w3", drain=True, reason="before it comes"),
        registered("w3"),
        expired("w3"),
    )


def mass_expiry() -> Story:
    """A rack falls silent: most of a fleet expires, some come back, one is a zombie."""
    gone = ("a1", "a2", "a3", "a4", "b1")
    arrivals = [
        step
        for number, worker in enumerate((*gone, "b2", "c1"))
        for step in (
            claimed(worker, 20000 + 4 * number, 4, reason="nixl_side_channel"),
            starting(worker, card=C1 if worker < "c" else C2, labels={"rack": "r1"}),
            ready(worker),
        )
    ]
    expiries = [
        step
        for number, worker in enumerate(gone)
        for step in (
            expired(worker, silent_for_s=12.5 + number),
            released(20000 + 4 * number, 4, cause="expired"),
        )
    ]
    return given(
        *arrivals,
        loaded("a1", "sql-lora"),
        held("a2", reason="noisy"),
        silent_for(s=30),
        *expiries,
        claimed("d1", 20000, 4),
        # What is said of ended lives changes nothing.
        status("a3", Status.DRAINING, life=1),
        deregistered("a4", life=1),
        expired("a4", life=1),
        claimed("a1", 20000, 2, life=2),
        claimed("a2", 20004, 4, life=2),
        registered("a2", labels={"rack": "r2"}),
        registered("a4", card=C2),
        deregistered("b2"),
        released(20020, 4),
        registered("a3", card=C1),
        resumed("a2"),
    )


def prefill_loss() -> Story:
    """Decode workers of two namespaces lose what they need, and get it back."""
    decode = {"role": Role.DECODE, "component": "decoder", "card": C2}
    prefill = {"role": Role.PREFILL, "component": "prefiller"}
    encode = {"role": Role.ENCODE, "component": "encoder"}
    second = {"namespace": "prod-v2"}
    either = [[Role.PREFILL], [Role.PREFILL, Role.ENCODE]]
    return given(
        registered("d1", **decode, needs=[[Role.PREFILL]]),
        registered("d2", **decode, needs=[[Role.PREFILL]], adapters=("sql-lora",)),
        registered("p1", **prefill),
        registered("p2", **prefill),
        registered("d1", **decode, needs=either, **second),
        starting("p1", **prefill, **second),
        registered("e1", **encode, **second),
        ready("p1", **second),
        draining("p2"),
        silent_for(s=15),
        expired("p1"),
        held("p1", reason="looked at", **second),
        deregistered("p2"),
        deregistered("e1", **second),
        resumed("p1", **second),
        registered("d3", role=Role.DECODE, component="decoder", card=C1),
        registered("p3", **prefill),
        weighted(0.0, namespace="prod"),
        registered("g1", namespace="prod-v3"),
        weighted(0.5, namespace="prod", reason="back"),
        expired("p1", **second),
        registered("p1", **prefill),
        updated("p1", labels={"zone": "a"}),
        deregistered("d1"),
        deregistered("d2"),
    )


def port_churn() -> Story:
    """Blocks of two hosts change hands, in every way and against every rule."""
    other = {"host": "fd00::2"}
    return given(
        claimed("w1", 20000, 8, claim="first", reason="nixl_side_channel"),
        claimed("w1", 20000, 8, claim="first"),
        claimed("w2", 20004, 8, claim="second"),
        claimed("w3", 20000, 4, **other, namespace="staging"),
        registered("w1", address="http://10.0.0.1:20000"),
        released(20000, 8, claim="second"),
        released(20002, 2, claim="first"),
        released(20002, claim="first"),
        released(20004, cause="unusable", claim="first"),
        released(20300, cause="unusable"),
        claimed("w4", 20002, 2, lease_ttl_s=30),
        poison("log.port.10%2E0%2E0%2E1.20003", b"?"),
        poison("log.port.10%2E0%2E0%2E1.20200", b'{"type":"port_claimed.v9"}'),
        claimed("w5", 20200),
        released(20200),
        silent_for(s=12),
        expired("w1"),
        released(20000, 2, cause="expired", claim="first"),
        released(20005, 3, cause="expired", claim="first"),
        claimed("w1", 20000, 2, life=2, claim="again"),
        claimed("w1", 20005, 3, life=2, claim="again"),
        registered("w1", address="http://10.0.0.1:20000"),
        claimed("w1", 20000, 8, life=1, claim="first"),
        expired("w4"),
        released(20002, 2, cause="expired"),
        expired("w3", namespace="staging"),
        released(20000, 4, **other, cause="expired"),
        claimed("w6", 20000, 1, **other),
        deregistered("w1"),
        released(20000, 2, claim="again"),
        released(20005, 3, claim="again"),
    )


STORIES = {
    "rolling_update": rolling_update,
    "poison": with_poison,
    "drain_orders": drain_orders,
    "mass_expiry": mass_expiry,
    "prefill_loss": prefill_loss,
    "port_churn": port_churn,
}
