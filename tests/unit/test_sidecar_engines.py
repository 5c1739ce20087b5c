"""What is understood of an engine's metrics and of its answers."""

import asyncio
from contextlib import asynccontextmanager, suppress

import pytest

from controlplane.sidecar.adapters import listed_adapters
from controlplane.sidecar.asking import BODY_BYTES_MAX, get, knock
from controlplane.sidecar.engine_metrics import read_load
from controlplane.sidecar.plan import TCP
from controlplane.sidecar.probing import probed
from controlplane.sidecar.steps import Load
from projections import PortBlock

VLLM = """# HELP vllm:num_requests_running Number of requests in execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_running{engine="1",model_name="m"} 4.0
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="m"} 2.0
vllm:num_requests_waiting{engine="1",model_name="m"} 0.0
# TYPE vllm:num_requests_waiting_by_reason gauge
vllm:num_requests_waiting_by_reason{engine="0",model_name="m",reason="capacity"} 2.0
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.2
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.6
# TYPE vllm:gpu_cache_usage_perc gauge
vllm:gpu_cache_usage_perc{engine="0",model_name="m"} 0.9
"""
SGLANG = """sglang:num_running_reqs{engine_type="unified",priority="",tp_rank="0"} 5.0
sglang:num_running_reqs{engine_type="unified",priority="1",tp_rank="0"} 5.0
sglang:num_running_reqs{engine_type="unified",priority="",tp_rank="1"} 5.0
sglang:num_queue_reqs{engine_type="unified",priority="",tp_rank="0"} 2.0
sglang:token_usage{engine_type="unified",tp_rank="0"} 0.28
"""
PREFILL = """sglang:num_running_reqs{dp_rank="0"} 1.0
sglang:num_running_reqs{dp_rank="1"} 1.0
sglang:num_queue_reqs{dp_rank="0"} 2.0
sglang:num_prefill_inflight_queue_reqs{dp_rank="0"} 4.0
sglang:token_usage{dp_rank="0"} 1.2
"""


@pytest.mark.parametrize(
    ("page", "load"),
    [
        (VLLM, Load(kv_usage=0.4, running=7, waiting=2)),
        (SGLANG, Load(kv_usage=0.28, running=5, waiting=2)),
        (PREFILL, Load(kv_usage=1.0, running=2, waiting=6)),
        ("vllm:gpu_cache_usage_perc 0.9\n", Load(kv_usage=0.9)),
        (
            "sglang:num_requests_running 2.0\nsglang:num_requests_waiting 1.0\n",
            Load(running=2, waiting=1),
        ),
        (
            "vllm:num_requests_running NaN\nvllm:num_requests_waiting 1.0\n",
            Load(waiting=1),
        ),
        ("vllm:num_requests_running -3.0\n", Load(running=0)),
        ("vllm:num_requests_running 1e300\n", Load(running=2**31)),
        ("python_info 1.0\n# vllm:num_requests_running\n", None),
        ("<html>no metrics here</html>", None),
        ("", None),
    ],
)
def test_both_engines_are_understood_by_their_own_names(page, load):
    read = read_load(page)
    if load is None or load.kv_usage is None:
        assert read == load
    else:
        assert (read.running, read.waiting) == (load.running, load.waiting)
        assert read.kv_usage == pytest.approx(load.kv_usage)


def test_a_page_that_is_broken_is_a_value_error():
    with pytest.raises(ValueError, match="x"):
        read_load('vllm:num_requests_running{engine="0"} x\n')


@pytest.mark.parametrize(
    ("load", "in_flight"),
    [
        (Load(), None),
        (Load(waiting=3), None),
        (Load(running=2), 2),
        (Load(running=2, waiting=3), 5),
    ],
)
def test_what_is_in_flight_is_known_when_the_running_are(load, in_flight):
    assert load.in_flight == in_flight


CHUNKED = (
    b"HTTP/1.1 200\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"3;x=1\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
)


# ---- adapters ----------------------------------------------------------------------
def test_a_listed_model_with_a_parent_is_an_adapter():
    page = b"""{"object": "list", "data": [
        {"id": "m", "root": "/models/m", "parent": null},
        {"id": "sql", "root": "/loras/sql", "parent": "m"}]}"""
    assert listed_adapters(page) == {"sql"}


@pytest.mark.parametrize("page", [b"", b"[]", b'{"data": [{"parent": "m"}]}', b"\xff"])
def test_what_is_no_list_of_models_is_a_value_error(page):
    with pytest.raises(ValueError, match="no list of models"):
        listed_adapters(page)


# ---- answers -----------------------------------------------------------------------
@asynccontextmanager
async def listener(raw: bytes, *, hang: bool = False):
    """A port on which every connection gets ``raw``, whatever it asks."""
    asked: list[bytes] = []
    over = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter):
        with suppress(asyncio.IncompleteReadError):  # it only knocked
            asked.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(raw)
        if hang:
            await over.wait()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        yield port, asked
    finally:
        over.set()
        server.close()


@pytest.mark.parametrize(
    ("raw", "status", "body"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokmore", 200, b"ok"),
        (b"HTTP/1.0 204 No Content\r\n\r\n", 204, b""),
        (b"HTTP/1.1 200 OK\r\n\r\nto the end", 200, b"to the end"),
        (
            CHUNKED,
            200,
            b"abcde",
        ),
    ],
)
async def test_an_answer_is_read_to_its_end(raw, status, body):
    async with listener(raw) as (port, asked):
        answer = await get(f"http://127.0.0.1:{port}/health?deep=1", 5.0)
    assert (answer.status, answer.body, answer.good) == (status, body, True)
    assert asked[0].startswith(b"GET /health?deep=1 HTTP/1.1\r\nHost: 127.0.0.1:")


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (
            b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 9\r\n\r\nload\n ing",
            "503 Service Unavailable: load ing",
        ),
        (b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\n\r\n", "302 Found"),
    ],
)
async def test_only_2xx_is_good_and_the_rest_says_why(raw, said):
    async with listener(raw) as (port, _):
        answer = await get(f"http://127.0.0.1:{port}", 5.0)
    assert not answer.good
    assert str(answer) == said


@pytest.mark.parametrize(
    "raw",
    [
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/1.1 fine\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\ncut",
        b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (BODY_BYTES_MAX + 1),
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 70_000,
        b"",
    ],
)
async def test_what_is_no_answer_is_an_os_error(raw):
    async with listener(raw) as (port, _):
        with pytest.raises(OSError, match="no answer in HTTP"):
            await get(f"http://127.0.0.1:{port}/", 5.0)


@pytest.mark.parametrize("host", ["a..b", "a" * 64 + ".example", "a\0b", "[h", "h:x"])
async def test_a_host_that_nobody_can_have_is_an_os_error(host):
    with pytest.raises(OSError, match=r"cannot be looked up|is no URL"):
        await get(f"http://{host}/", 5.0)
    health = f"http://{host}/"
    answer = await probed(health, PortBlock("127.0.0.1", 20000, 1, "a"), 5.0)
    assert not answer.healthy
    answer = await probed(TCP, PortBlock("a..b", 1, 1, "a"), 5.0)
    assert "cannot be looked up" in answer.said


async def test_an_answer_that_does_not_come_is_a_timeout():
    async with listener(b"HTTP/1.1 200 OK\r\n", hang=True) as (port, _):
        with pytest.raises(TimeoutError):
            await get(f"http://127.0.0.1:{port}/", 0.05)


async def test_a_knock_is_heard_where_somebody_listens():
    async with listener(b"") as (port, _):
        await knock("127.0.0.1", port, 5.0)
    with pytest.raises(OSError, match="Errno"):
        await knock("127.0.0.1", port, 5.0)
