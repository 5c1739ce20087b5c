"""The view as documents: fixed keys, sorted lists, equal bytes for equal views."""

import json

import pytest

from events import Capacity, Role
from projections import (
    Fleet,
    PlaneState,
    Wanted,
    WorkerSetKey,
    candidates,
    fold_all,
    pick_in_turn,
)
from tests.support.fleet_builder import (
    C1,
    C2,
    MODEL,
    NAMESPACE,
    claimed,
    deregistered,
    expired,
    fleet_after,
    given,
    held,
    incarnation,
    registered,
    starting,
    state_after,
    weighted,
)

STEPS = [
    registered("w2", capacity=Capacity(max_num_seqs=8), labels={"b": "2", "a": "1"}),
    registered("w1", adapters=("sql", "chat"), capabilities=("tools",)),
    registered("w10", card=C2),
    registered(
        "w1", namespace="beta", model="qwen", role=Role.DECODE, needs=[["prefill"]]
    ),
    registered("w9", model="phi"),
    starting("w3", component="a-component"),
    deregistered("w9"),
    held("w2"),
    weighted(0.5),
    expired("w1", life=7),
]
KEY = WorkerSetKey(NAMESPACE, "backend", "generate", MODEL, Role.AGGREGATED)
VIEW_KEYS = [
    "cell",
    "log_id",
    "epoch",
    "revision",
    "digest",
    "models",
    "known_models",
    "anomalies",
]
SET_KEYS = [
    "namespace",
    "component",
    "endpoint",
    "model",
    "role",
    "checksum",
    "ready",
    "missing_roles",
    "weight",
    "workers",
]
WORKER_KEYS = [
    "namespace",
    "worker_id",
    "incarnation",
    "model",
    "role",
    "checksum",
    "status",
    "routable",
    "blockers",
    "needs",
    "address",
    "capabilities",
    "adapters",
    "capacity",
    "labels",
    "registered_at",
]


def document(*steps):
    return json.loads(fleet_after(*steps).to_json())


def test_the_keys_are_fixed():
    view = document(*STEPS)
    assert sorted(view) == sorted(VIEW_KEYS)
    for model in view["models"]:
        assert sorted(model) == ["name", "serving", "worker_sets"]
        for worker_set in model["worker_sets"]:
            assert sorted(worker_set) == sorted(SET_KEYS)
            for worker in worker_set["workers"]:
                assert sorted(worker) == sorted(WORKER_KEYS)
    assert view["anomalies"] == {"stale": 1, "unknown": 0, "undecodable": 0, "no_op": 0}


def test_lists_are_sorted_by_name():
    view = document(*STEPS)
    assert [model["name"] for model in view["models"]] == [MODEL, "qwen"]
    assert view["known_models"] == ["chat", MODEL, "phi", "qwen", "sql"]
    sets = view["models"][0]["worker_sets"]
    assert [s["component"] for s in sets] == ["a-component", "backend"]
    assert [w["worker_id"] for w in sets[1]["workers"]] == ["w1", "w10", "w2"]
    (worker, *_) = sets[1]["workers"]
    assert worker["adapters"] == ["chat", "sql"]


def test_a_worker_says_all_that_it_is():
    (needy,) = document(*STEPS)["models"][1]["worker_sets"]
    assert needy["workers"] == [
        {
            "namespace": "beta",
            "worker_id": "w1",
            "incarnation": incarnation("w1", namespace="beta"),
            "model": "qwen",
            "role": "decode",
            "checksum": needy["checksum"],
            "status": "ready",
            "routable": False,
            "blockers": ["needs_unmet"],
            "needs": [["prefill"]],
            "address": "http://w1.example:8000",
            "capabilities": [],
            "adapters": [],
            "capacity": {},
            "labels": {},
            "registered_at": "2026-01-01T00:00:03Z",
        }
    ]
    assert needy["missing_roles"] == ["prefill"]
    assert (needy["ready"], needy["weight"]) == (False, 1.0)


def test_capacities_that_nobody_stated_are_left_out():
    worker = document(registered("w1", capacity=Capacity(max_num_seqs=0)))
    (shown,) = worker["models"][0]["worker_sets"][0]["workers"]
    assert shown["capacity"] == {"max_num_seqs": 0}


def test_an_empty_view_is_a_whole_document():
    assert document() == {
        "cell": "default",
        "log_id": None,
        "epoch": None,
        "revision": 0,
        "digest": "0" * 32,
        "models": [],
        "known_models": [],
        "anomalies": {"stale": 0, "unknown": 0, "undecodable": 0, "no_op": 0},
    }


def test_a_document_says_where_it_comes_from():
    fleet = Fleet(revision=7, cell="lab", log_id="log-a", epoch="log-a.1.1@0")
    view = json.loads(fleet.to_json())
    assert [view[k] for k in ("cell", "log_id", "epoch", "revision")] == [
        "lab",
        "log-a",
        "log-a.1.1@0",
        7,
    ]


def test_a_document_reads_back():
    fleet = fleet_after(*STEPS)
    for text in (fleet.to_json(), fleet.to_json().encode()):
        read = Fleet.from_json(text)
        assert read == fleet
        assert hash(read) == hash(fleet)
        assert read.to_json() == fleet.to_json()
        assert read.document() == fleet.document()
        assert dict(read.models) == dict(fleet.models)
        assert read.known_models == fleet.known_models
        assert read.anomalies == fleet.anomalies
        for namespace, worker_id in fleet.state.workers:
            worker = fleet.worker(namespace, worker_id)
            assert read.worker(namespace, worker_id) == worker
        assert read.worker(NAMESPACE, "nobody") is None


@pytest.mark.parametrize("text", ["", "{}", "[]", "null", b"\xff", '{"cell": 7}'])
def test_another_document_is_refused(text):
    with pytest.raises(ValueError, match=r"not a view document|utf-8"):
        Fleet.from_json(text)


def test_models_are_a_mapping_of_what_has_workers():
    fleet = fleet_after(*STEPS)
    assert list(fleet.models) == [MODEL, "qwen"]
    assert len(fleet.models) == 2
    assert "phi" not in fleet.models
    assert fleet.models.get("phi") is None
    with pytest.raises(KeyError):
        fleet.models["phi"]
    assert fleet.models[MODEL] is fleet.models[MODEL]
    assert repr(fleet.models) == "{'llama', 'qwen'}"


def test_a_lens_hides_namespaces_but_not_names_nor_the_digest():
    whole = fleet_after(*STEPS)
    fleet = Fleet(whole.state, revision=10, visible=lambda name: name == "beta")
    assert list(fleet.models) == ["qwen"]
    assert len(fleet.models) == 1
    with pytest.raises(KeyError):
        fleet.models[MODEL]
    assert fleet.worker(NAMESPACE, "w1") is None
    assert fleet.worker("beta", "w1") == whole.worker("beta", "w1")
    assert fleet.known_models == whole.known_models
    assert fleet.digest == whole.digest
    assert [model["name"] for model in fleet.document()["models"]] == ["qwen"]


def test_a_lens_shows_the_sets_of_a_model_that_it_lets_through():
    state = fleet_after(registered("w1"), starting("w2", namespace="beta")).state
    model = Fleet(state, visible=lambda name: name == "beta").models[MODEL]
    assert [key.namespace for key in model.worker_sets] == ["beta"]
    assert not model.serving


def test_a_worker_set_says_what_its_workers_share():
    worker_set = fleet_after(*STEPS).models[MODEL].worker_sets[KEY]
    assert list(worker_set.workers) == ["w1", "w10", "w2"]
    assert worker_set.namespace == NAMESPACE
    assert worker_set.checksum == given(registered("x", card=C1))[0].event.checksum
    assert worker_set.weight == 0.5
    assert worker_set.ready
    blockers = {w.worker_id: w.blockers for w in worker_set.workers.values()}
    assert blockers == {"w1": (), "w10": ("checksum_mismatch",), "w2": ("held",)}


def test_a_worker_is_found_by_its_stable_id():
    fleet = fleet_after(*STEPS)
    assert (
        fleet.worker(NAMESPACE, "w1")
        == (fleet.models[MODEL].worker_sets[KEY].workers["w1"])
    )
    assert fleet.worker("beta", "w1").model == "qwen"
    assert fleet.worker("beta", "w2") is None
    assert fleet.worker(NAMESPACE, "w9") is None


def test_fleets_are_equal_by_position_and_digest():
    one, two = fleet_after(*STEPS), fleet_after(*STEPS)
    assert one == two
    assert len({one, two}) == 1
    assert one != fleet_after(*STEPS, registered("w4"))
    assert one != fleet_after(*STEPS, deregistered("nobody"))
    assert one != "fleet"
    assert repr(one) == f"Fleet(revision=10, digest='{one.digest}')"


def test_ports_show_in_no_view():
    one = fleet_after(registered("w1"))
    two = fleet_after(registered("w1"), claimed("w1", 20000))
    assert one.digest == two.digest
    assert one.document()["models"] == two.document()["models"]


def test_the_same_log_is_the_same_text():
    story = given(*STEPS)
    texts = {PlaneState(fold_all(state_after(), story)).fleet.to_json() for _ in "abc"}
    assert len(texts) == 1


def test_what_a_caller_writes_into_its_worker_is_nobody_else_s():
    fleet = fleet_after(registered("w1", labels={"zone": "a"}))
    fleet.worker(NAMESPACE, "w1").labels["zone"] = "b"
    found = candidates(fleet, Wanted(MODEL))
    pick_in_turn(fleet, found, 0).labels["zone"] = "b"
    fleet.models[MODEL].worker_sets[KEY].workers["w1"].labels["zone"] = "b"
    assert fleet.state.workers[NAMESPACE, "w1"].labels == {"zone": "a"}
    assert fleet.worker(NAMESPACE, "w1").labels == {"zone": "a"}
