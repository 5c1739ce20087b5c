"""What a sidecar fills into commands, URLs and environments, and what it refuses."""

import os
import subprocess

import pytest

from controlplane.cli.sidecar import AsWorker, Patience, made_plan
from controlplane.errors import SettingsError
from controlplane.sidecar.environment import (
    ENGINE_PORTS,
    check_port_names,
    child_environment,
)
from controlplane.sidecar.filling import check_places, fill
from events import InvalidIdentityError, Role
from projections import DEFAULT_RANGE, PortBlock, PortRange, Want
from tests.support import commands

VALUES = {"http": "20000", "kv-events": "20001", "model": "meta/llama"}
COMMAND = ("vllm", "serve", "{model}", "--port", "{http}")


# ---- filling -----------------------------------------------------------------------
@pytest.mark.parametrize(
    ("text", "filled"),
    [
        ("{http}", "20000"),
        ("--port={http}", "--port=20000"),
        ("{model}@{http}", "meta/llama@20000"),
        ('{"a":{"port":"{kv-events}"}}', '{"a":{"port":"20001"}}'),
        ('{"a":{}}', '{"a":{}}'),
        ("{{http}}", "{http}"),
        ("{{{http}}}", "{{http}}"),
        ("{ http }", "{ http }"),
        ("{{ messages }}", "{{ messages }}"),
        ("${HOME} ${http} {1} {a.b}", "${HOME} ${http} {1} {a.b}"),
    ],
)
def test_only_a_name_between_braces_stands_for_something(text, filled):
    assert fill(check_places("command", text, VALUES), VALUES) == filled


def test_an_unknown_name_is_refused_with_what_is_known_and_the_way_out():
    with pytest.raises(SettingsError) as caught:
        check_places("command", "--port={grpc}", VALUES)
    said = str(caught.value)
    assert "{grpc} stands for nothing" in said
    assert "{http}, {kv-events}, {model}" in said
    assert "--ports grpc=1" in said
    assert "{{grpc}}" in said


# ---- the environment ---------------------------------------------------------------
def test_engines_get_their_ports_by_their_own_names():
    blocks = {n: PortBlock("10.0.0.7", 20000, 8, n) for n in ("http", *ENGINE_PORTS)}
    inherited = {"PATH": "/bin", "VLLM_NIXL_SIDE_CHANNEL_PORT": "5600"}
    made = child_environment(inherited, blocks, "w1")
    assert made["PATH"] == "/bin"
    assert made["CP_PORT_HTTP"] == "20000"
    assert made["CP_PORT_HTTP_SIZE"] == "8"
    for names in ENGINE_PORTS.values():
        assert {made[name] for name in names} == {"20000"}
    assert made["VLLM_NIXL_SIDE_CHANNEL_HOST"] == "10.0.0.7"
    assert (made["CP_HOST"], made["CP_WORKER_ID"]) == ("10.0.0.7", "w1")


@pytest.mark.parametrize(
    ("host", "inherited", "expected"),
    [
        ("10.0.0.7", {"VLLM_NIXL_SIDE_CHANNEL_HOST": "10.1.0.7"}, "10.1.0.7"),
        ("node-7.example", {}, None),
    ],
)
def test_the_nixl_host_is_one_that_the_engine_can_listen_on(host, inherited, expected):
    block = PortBlock(host, 20000, 1, "a")
    made = child_environment(inherited, {"nixl_side_channel": block}, "w1")
    assert made.get("VLLM_NIXL_SIDE_CHANNEL_HOST") == expected


@pytest.mark.parametrize("names", [("a-b", "a_b"), ("a", "A"), ("a", "a_size")])
def test_two_blocks_do_not_share_a_variable(names):
    with pytest.raises(SettingsError, match="CP_PORT_A"):
        check_port_names(names)


# ---- the command line --------------------------------------------------------------
def plan(*command: str, patience: Patience | None = None, **worker: object):
    as_worker = AsWorker(**{"model": "m", **worker})
    return made_plan(command or COMMAND, as_worker, patience or Patience())


def test_the_port_http_is_always_claimed():
    assert plan().ports == {"http": Want("http", 1)}
    assert plan(ports=("http=2",)).ports == {"http": Want("http", 2)}


def test_ports_are_named_with_their_sizes_and_perhaps_a_range():
    made = plan(ports=("kv_events=1,side=8@21000-22000", "x=2"))
    assert made.ports == {
        "http": Want("http", 1, DEFAULT_RANGE),
        "kv_events": Want("kv_events", 1, DEFAULT_RANGE),
        "side": Want("side", 8, PortRange(21000, 22000)),
        "x": Want("x", 2, DEFAULT_RANGE),
    }


def test_a_worker_is_said_whole():
    spec = plan(
        role="decode",
        needs=("prefill,encode", "prefill"),
        card=("kv_block_size=16", "quantization=fp8", "extra.dtype=a=b"),
        capacity=("max_num_seqs=256",),
        capability=("chat", "tools"),
        adapter=("sql",),
        label=("zone=a", "note="),
    ).spec
    assert spec.needs == ((Role.PREFILL, Role.ENCODE), (Role.PREFILL,))
    assert (spec.card.kv_block_size, spec.card.quantization) == (16, "fp8")
    assert spec.card.extra == {"dtype": "a=b"}
    assert spec.capacity.max_num_seqs == 256
    assert (spec.capabilities, spec.adapters) == (("chat", "tools"), ("sql",))
    assert spec.labels == {"zone": "a", "note": ""}
    assert spec.address == "http://{host}:{http}"


def test_metrics_are_guessed_for_an_engine_that_speaks_http():
    url = Patience(health="http://{host}:{http}/health")
    assert plan(patience=url).metrics == "http://{host}:{http}/metrics"
    assert plan(patience=url).metrics_guessed
    assert plan().metrics is None
    none = Patience(health=url.health, metrics="none")
    assert plan(patience=none).metrics is None


def test_a_plan_is_filled_in_with_what_was_claimed():
    patience = Patience(health="http://h:{http}/h", metrics="http://{host}:{http}/m")
    made = plan(*COMMAND, "{worker_id}", patience=patience)
    blocks = {"http": PortBlock("10.0.0.7", 20005, 1, "a")}
    at = made.at(blocks, {"model": "m", "worker_id": "w1", "host": "n"})
    assert at.command == ("vllm", "serve", "m", "--port", "20005", "w1")
    assert (at.health, at.metrics) == ("http://h:20005/h", "http://n:20005/m")


def test_facts_are_percent_encoded_in_urls_and_nowhere_else():
    patience = Patience(health="http://h:{http}/{model}?id={worker_id}")
    made = plan("serve", "{model}", patience=patience, model="meta/mod\u00e8l \u2603")
    facts = {"model": made.spec.model, "worker_id": "a&b#%", "host": "n"}
    at = made.at({"http": PortBlock("n", 20005, 1, "a")}, facts)
    assert at.command == ("serve", "meta/mod\u00e8l \u2603")
    assert at.health == "http://h:20005/meta/mod%C3%A8l%20%E2%98%83?id=a%26b%23%25"


@pytest.mark.parametrize("host", ["{host}", "[{host}]"])
def test_an_ipv6_host_stands_in_brackets_in_a_url(host):
    made = plan(patience=Patience(health=f"http://{host}:{{http}}/h"))
    blocks = {"http": PortBlock("::1", 20005, 1, "a")}
    at = made.at(blocks, {"model": "m", "host": "::1"})
    assert at.health == "http://[::1]:20005/h"
    assert at.metrics == "http://[::1]:20005/metrics"


def test_what_was_filled_in_is_not_taken_for_names_again():
    made = plan("serve", "{{grpc}}", "{model}", model="{a}")
    facts = {"model": "{a}", "host": "n"}
    at = made.at({"http": PortBlock("n", 20005, 1, "a")}, facts)
    assert at.command == ("serve", "{grpc}", "{a}")


REFUSED = {
    "no command": ("command", {}, [""]),
    "unknown place": ("grpc", {}, ["vllm", "{grpc}"]),
    "port without size": ("NAME=SIZE", {"ports": ("kv",)}, []),
    "port size": ("NAME=SIZE", {"ports": ("kv=x",)}, []),
    "port name": ("NAME=SIZE", {"ports": ("1=1",)}, []),
    "port range": ("NAME=SIZE", {"ports": ("kv=1@5",)}, []),
    "port twice": ("once", {"ports": ("kv=1,kv=2",)}, []),
    "port of another name": ("host", {"ports": ("host=1",)}, []),
    "port empty": ("commas", {"ports": ("kv=1,,x=2",)}, []),
    "label": ("NAME=VALUE", {"label": ("zone",)}, []),
    "card": ("one of kv_block_size", {"card": ("temperature=1",)}, []),
    "card extra": ("one of kv_block_size", {"card": ("extra=1",)}, []),
    "card number": ("kv_block_size", {"card": ("kv_block_size=x",)}, []),
    "needs": ("role", {"needs": ("nobody",)}, []),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_is_refused_before_anything_is_claimed(case):
    said, worker, command = REFUSED[case]
    with pytest.raises((SettingsError, InvalidIdentityError), match=said):
        plan(*command, **worker)


@pytest.mark.parametrize(
    "health",
    [
        "ftp://h",
        "http://",
        "127.0.0.1:{http}",
        "http://h:0/",
        "http://h/a b",
        "http://[h",
        "http://a..b/health",
        f"http://{'a' * 64}.example/",
        "http://{model}:{http}/",
        "no",
    ],
)
def test_health_is_asked_over_http_or_not_by_url(health):
    with pytest.raises(SettingsError, match="health"):
        plan(patience=Patience(health=health), model="a model")


def test_a_url_is_checked_with_all_that_is_known_before_the_claim():
    of_worker = Patience(health="http://{worker_id}.{namespace}:{http}/")
    made = plan(patience=of_worker)
    made.check_urls(worker_id="w_1", namespace="prod")
    with pytest.raises(SettingsError, match="parts of 1 to 63"):
        made.check_urls(worker_id="w 1")
    with pytest.raises(SettingsError, match="health"):
        plan(patience=of_worker, worker_id="w 1")
    ended = subprocess.run(
        [
            *commands.COMMAND,
            "run",
            "--model",
            "m",
            "--health",
            of_worker.health,
            "--",
            "true",
        ],
        env={**os.environ, "CP_NAMESPACE": "n" * 64},
        stderr=subprocess.PIPE,
        check=False,
    )
    assert ended.returncode == 64
    assert ended.stderr.count(b"\n") == 1
    assert b"health" in ended.stderr
