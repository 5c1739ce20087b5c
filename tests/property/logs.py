"""Arbitrary logs: few names, so that events meet; any order, so that they clash."""

import json

from hypothesis import strategies as st

from events import Capacity, ModelCard, Role, Status
from tests.support.fleet_builder import (
    C1,
    C2,
    Step,
    Story,
    claimed,
    deregistered,
    expired,
    forgotten,
    given,
    held,
    loaded,
    poison,
    registered,
    released,
    resumed,
    silent_for,
    status,
    thresholds,
    unloaded,
    updated,
    weighted,
)


def mostly(usual, *others):
    """``usual`` three times in four, so that events meet in one WorkerSet."""
    return st.sampled_from([usual] * 3 * len(others) + [*others])


NAMESPACES = mostly("prod", "prod-v2")
WORKERS = st.sampled_from(["w1", "w.2", "wö", "w4"])
MODELS = mostly("llama", "qwen/2", "lora")
ADAPTERS = st.sampled_from(["lora", "sql", "llama"])
LIVES = mostly(None, 1, 2)
CARDS = st.sampled_from([C1, C2, ModelCard(extra={"b": "1", "a": "2"})])
ROLES = mostly(Role.DECODE, *Role)
NEEDS = mostly((), [["prefill"]], [["prefill", "encode"], ["encode"]], [[]])
LABELS = st.dictionaries(st.sampled_from("abc"), st.text(max_size=2), max_size=3)
CAPACITIES = st.builds(
    Capacity,
    total_kv_blocks=st.none() | st.integers(-(2**63), 2**63 - 1),
    max_num_seqs=st.none() | st.integers(0, 9),
)
HOSTS = mostly("h1", "10.0.0.2")
PORTS = st.integers(20000, 20002)
CLAIMS = mostly(None, "claim-a", "claim-b")
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
WEIGHTS = st.sampled_from([0.0, -0.0, 1.0, 0.5, 2.0]) | FLOATS
WHERE = {"namespace": NAMESPACES, "life": LIVES}
SUBJECTS = st.sampled_from(
    [
        "log.worker.prod.w1",
        "log.worker.prod-v2.w%2E2",
        "log.port.h1.20000",
        "log.port.10%2E0%2E0%2E2.20001",
        "log.setting.hold.prod.w1",
        "log.worker.prod",
        "nowhere",
    ]
)
JSON = st.recursive(
    st.none() | st.booleans() | FLOATS | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)


@st.composite
def mutilated(draw: st.DrawFn) -> Step:
    """A real payload with one field lost or become anything, on its own subject."""
    story = given(draw(understood()))
    place = draw(st.integers(0, max(len(story) - 1, 0)))
    if not story:
        return silent_for(s=1)
    document = json.loads(story.payloads[place])
    name = draw(st.sampled_from(sorted(document)))
    if draw(st.booleans()):
        del document[name]
    else:
        document[name] = draw(JSON)
    return poison(story[place].subject, json.dumps(document).encode())


def poisons() -> st.SearchStrategy[Step]:
    """Records of which next to none can be read."""
    tags = st.sampled_from(["later.v1", "worker_expired.v1", "port_released.v2"])
    payloads = (
        st.binary(max_size=8)
        | JSON.map(lambda value: json.dumps(value).encode())
        | tags.map(lambda tag: json.dumps({"type": tag, "event_id": "e"}).encode())
    )
    return st.builds(poison, SUBJECTS, payloads) | mutilated()


def registrations() -> st.SearchStrategy[Step]:
    """Registrations of any kind."""
    return st.builds(
        registered,
        WORKERS,
        **WHERE,
        model=MODELS,
        card=CARDS,
        role=ROLES,
        needs=NEEDS,
        adapters=st.lists(ADAPTERS, max_size=2).map(tuple),
        status=mostly(Status.READY, Status.STARTING),
        labels=LABELS,
        lease_ttl_s=st.sampled_from([5, 10.0]),
        component=mostly("backend", "other"),
    )


def amendments() -> st.SearchStrategy[Step]:
    """What happens to a worker in its life, and its end."""
    return st.one_of(
        st.builds(status, WORKERS, st.sampled_from(Status), **WHERE),
        st.builds(
            updated,
            WORKERS,
            **WHERE,
            address=st.none() | st.just("http://b"),
            labels=st.none() | LABELS,
            capacity=st.none() | CAPACITIES,
        ),
        st.builds(loaded, WORKERS, ADAPTERS, **WHERE),
        st.builds(unloaded, WORKERS, ADAPTERS, **WHERE),
        st.builds(deregistered, WORKERS, **WHERE),
        st.builds(expired, WORKERS, **WHERE),
    )


def decisions() -> st.SearchStrategy[Step]:
    """What operators decide."""
    return st.one_of(
        st.builds(held, WORKERS, namespace=NAMESPACES),
        st.builds(resumed, WORKERS, namespace=NAMESPACES),
        st.builds(weighted, WEIGHTS, namespace=NAMESPACES, model=MODELS | st.just("*")),
        st.builds(thresholds, MODELS, busy_kv_usage=st.none() | WEIGHTS),
        st.builds(forgotten, MODELS | ADAPTERS),
    )


def claims() -> st.SearchStrategy[Step]:
    """What happens to ports."""
    size = st.integers(1, 3)
    causes = st.sampled_from(["released", "expired", "unusable"])
    return st.one_of(
        st.builds(claimed, WORKERS, PORTS, size, host=HOSTS, claim=CLAIMS, **WHERE),
        st.builds(released, PORTS, size, host=HOSTS, claim=CLAIMS, cause=causes),
    )


def understood() -> st.SearchStrategy[Step]:
    """Steps whose records all can be read."""
    return st.one_of(registrations(), registrations(), amendments(), claims()) | (
        decisions()
    )


def steps() -> st.SearchStrategy[list[Step]]:
    """Steps of any kind, poison among them."""
    workers = (registrations(), registrations(), amendments())
    one = st.one_of(*workers, decisions(), claims(), poisons())
    # Hypothesis keeps lists short unless they must be long; it takes a long log for a
    # cohort to come, wait, take over and go.
    return st.lists(one, max_size=10) | st.lists(one, min_size=15, max_size=40)


def logs() -> st.SearchStrategy[Story]:
    """Whole logs."""
    return steps().map(lambda each: given(*each))
