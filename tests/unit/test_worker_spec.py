"""What a worker may say it is: refused before anything is sent, or kept in one form."""

import pytest

from controlplane.worker import WorkerSpec, resolve
from events import (
    Capacity,
    InvalidIdentityError,
    ModelCard,
    Role,
    Status,
    check_reason,
)

GOOD = {"model": "llama", "address": "http://10.0.0.7:8000"}
LONG = "x" * 257

REFUSED = {
    "model empty": ("model", {"model": ""}),
    "model of all": ("model", {"model": "*"}),
    "model long": ("model", {"model": LONG}),
    "model no text": ("model", {"model": 7}),
    "model surrogate": ("model", {"model": "\ud800"}),
    "address bare": ("address", {"address": "10.0.0.7:8000"}),
    "address no host": ("address", {"address": "http://"}),
    "address port": ("address", {"address": "http://h:99999"}),
    "address space": ("address", {"address": "http://h/a b"}),
    "address none": ("address", {"address": None}),
    "namespace dot": ("namespace", {"namespace": "a.b"}),
    "namespace empty": ("namespace", {"namespace": ""}),
    "namespace dash": ("namespace", {"namespace": "-a"}),
    "namespace long": ("namespace", {"namespace": "n" * 129}),
    "worker_id empty": ("worker_id", {"worker_id": ""}),
    "worker_id long": ("worker_id", {"worker_id": "é" * 65}),
    "component empty": ("component", {"component": ""}),
    "endpoint long": ("endpoint", {"endpoint": LONG}),
    "role unknown": ("role", {"role": "router"}),
    "role none": ("role", {"role": None}),
    "needs text": ("needs", {"needs": "prefill"}),
    "needs flat": ("needs", {"needs": ["prefill"]}),
    "needs flat roles": ("needs", {"needs": [Role.PREFILL]}),
    "needs number": ("needs", {"needs": 5}),
    "needs unknown": ("role", {"needs": [["nobody"]]}),
    "card text": ("card", {"card": "card"}),
    "card field": ("card", {"card": ModelCard(kv_block_size="16")}),
    "card extra": ("card", {"card": ModelCard(extra={"a": 1})}),
    "card surrogate": ("card", {"card": ModelCard(quantization="\ud800")}),
    "card large": ("card", {"card": ModelCard(extra={"a": "x" * 70_000})}),
    "capacity mapping": ("capacity", {"capacity": {"max_num_seqs": 1}}),
    "capacity field": ("capacity", {"capacity": Capacity(max_num_seqs=1.5)}),
    "card negative": ("card kv_block_size", {"card": ModelCard(kv_block_size=-1)}),
    "card zero": ("card context_length", {"card": ModelCard(context_length=0)}),
    "card loras": ("card max_loras", {"card": ModelCard(max_loras=-1)}),
    "capacity negative": (
        "capacity max_num_seqs",
        {"capacity": Capacity(max_num_seqs=-5)},
    ),
    "capacity zero": (
        "capacity data_parallel_size",
        {"capacity": Capacity(data_parallel_size=0)},
    ),
    "capacity large": ("capacity", {"capacity": Capacity(max_num_seqs=2**64)}),
    "capabilities text": ("capabilities", {"capabilities": "chat"}),
    "capabilities empty": ("capability", {"capabilities": [""]}),
    "capabilities none": ("capabilities", {"capabilities": None}),
    "adapters text": ("adapters", {"adapters": "lora"}),
    "adapters of all": ("adapter", {"adapters": ["*"]}),
    "adapters number": ("adapter", {"adapters": [1]}),
    "adapters the model": ("adapter", {"adapters": ["lora", "llama"]}),
    "labels list": ("labels", {"labels": [("a", "b")]}),
    "labels many": ("labels", {"labels": {str(i): "" for i in range(65)}}),
    "labels key": ("labels key", {"labels": {"": "x"}}),
    "labels value": ("labels['a']", {"labels": {"a": LONG}}),
    "labels number": ("labels['a']", {"labels": {"a": 1}}),
    "lease short": ("lease_ttl_s", {"lease_ttl_s": 4.9}),
    "lease long": ("lease_ttl_s", {"lease_ttl_s": 3601}),
    "lease nan": ("lease_ttl_s", {"lease_ttl_s": float("nan")}),
    "lease text": ("lease_ttl_s", {"lease_ttl_s": "10"}),
    "lease bool": ("lease_ttl_s", {"lease_ttl_s": True}),
    "status unknown": ("status", {"status": "happy"}),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_broken_rule_is_named_with_its_field(case):
    field, wrong = REFUSED[case]
    with pytest.raises(InvalidIdentityError) as caught:
        WorkerSpec(**{**GOOD, **wrong})
    assert caught.value.field == field
    assert caught.value.rule


def test_text_and_lists_become_their_one_form():
    spec = WorkerSpec(
        **GOOD,
        role="decode",
        status="ready",
        needs=[["prefill"], [Role.ENCODE, "prefill"]],
        capabilities=["chat", "chat", "tools"],
        adapters=["b", "a", "b"],
        lease_ttl_s=7,
    )
    assert spec.role is Role.DECODE
    assert spec.status is Status.READY
    assert spec.needs == ((Role.PREFILL,), (Role.ENCODE, Role.PREFILL))
    assert spec.capabilities == ("chat", "tools")
    assert spec.adapters == ("b", "a")
    assert isinstance(spec.lease_ttl_s, float)


def test_a_count_of_nothing_is_said_where_it_means_something():
    spec = WorkerSpec(
        **GOOD,
        card=ModelCard(max_loras=0, max_lora_rank=0, kv_block_size=1),
        capacity=Capacity(total_kv_blocks=0, max_num_seqs=1),
    )
    assert (spec.card.max_loras, spec.capacity.total_kv_blocks) == (0, 0)


def test_labels_are_a_copy():
    labels = {"zone": "a"}
    spec = WorkerSpec(**GOOD, labels=labels)
    labels["zone"] = "b"
    assert spec.labels == {"zone": "a"}


def test_limits_count_bytes_and_include_their_ends():
    spec = WorkerSpec(
        **{**GOOD, "model": "é" * 128},
        worker_id="é" * 64,
        labels={"k" * 256: "v" * 256, "empty": ""},
        lease_ttl_s=5,
    )
    assert len(spec.model) == 128


def test_what_is_missing_is_found():
    environ = {"DYN_NAMESPACE": "prod", "DYN_NAMESPACE_WORKER_SUFFIX": "v2"}
    found = resolve(WorkerSpec(**GOOD), environ=environ, generated="made")
    assert (found.namespace, found.worker_id) == ("prod-v2", "made")


def test_what_is_given_stays():
    spec = WorkerSpec(**GOOD, namespace="ns", worker_id="w", needs=[["prefill"]])
    found = resolve(spec, environ={"CP_NAMESPACE": "other"}, generated="made")
    assert (found.namespace, found.worker_id) == ("ns", "w")
    assert found.needs == spec.needs


@pytest.mark.parametrize("reason", [None, 1, "\ud800", "x" * 1025])
def test_a_reason_is_a_short_text(reason):
    with pytest.raises(InvalidIdentityError, match="reason"):
        check_reason(reason)


def test_a_reason_may_be_empty():
    assert check_reason("") == ""
