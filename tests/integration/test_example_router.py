"""The example router between real clients and engines that speak as vLLM does."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

import controlplane as cp
from controlplane.demo.speech import CHAT, TEXT, Asked, Speech
from tests.support.engines import Engine
from tests.support.routed import EXAMPLE, MESSAGES, Stage, events, load_example, routing
from tests.support.waiting import eventually


@pytest.fixture(scope="module")
def example():
    return load_example()


@pytest.fixture
async def stage(example) -> AsyncIterator[Stage]:
    async with cp.local() as plane, AsyncExitStack() as stack:
        made = Stage(plane, stack)
        router = await stack.enter_async_context(routing(example, plane))
        made.view, made.client = router.view, router.client
        await made.view.synced(5.0)
        yield made


# ---- what passes ------------------------------------------------------------------
@pytest.mark.parametrize("path", [CHAT, TEXT])
async def test_an_answer_passes_as_the_engine_gave_it(stage, path):
    engine = await stage.engine("w1")
    answer = await stage.ask(path)
    kind = {CHAT: "chat.completion", TEXT: "text_completion"}[path]
    assert (answer.status_code, answer.json()["object"]) == (200, kind)
    (choice,) = answer.json()["choices"]
    said = choice["message"]["content"] if path == CHAT else choice["text"]
    assert said == "I am w1."
    assert answer.json()["usage"]["completion_tokens"] == 3
    assert len(engine.asked) == 1


@pytest.mark.parametrize("path", [CHAT, TEXT])
async def test_a_stream_passes_event_by_event_while_the_engine_speaks(stage, path):
    engine = await stage.engine("w1")
    engine.hold_at = 2
    options = {"include_usage": True}
    body = {"model": "llama", "messages": MESSAGES, "prompt": "Who?", "stream": True}
    body["stream_options"] = options
    async with stage.client.stream("POST", path, json=body) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert "content-length" not in answer.headers
        chunks = answer.aiter_raw()
        begun = await anext(chunks)
        while begun.count(b"\n\n") < 2:
            begun += await anext(chunks)
        assert engine.held.is_set()
        assert begun.count(b"\n\n") == 2, "it has not said more yet"
        engine.go.set()
        text = begun + b"".join([chunk async for chunk in chunks])
    *spoken, usage, done = events(text)
    assert done == "[DONE]"
    assert (usage["choices"], usage["usage"]["total_tokens"]) == ([], 10)
    asked = Asked(model="llama", stream=True, stream_options=None)
    speech = Speech(path, asked, 1, engine.words).events()
    expected = [one["choices"] for one in events(b"".join(speech))[:-1]]
    assert [one["choices"] for one in spoken] == expected


async def test_body_and_headers_reach_the_engine_as_the_client_sent_them(stage):
    engine = await stage.engine("w1")
    body = b'{ "model":"llama",  "temperature":0.70, "messages":[] }'
    headers = {
        "authorization": "Bearer secret",
        "content-type": "application/json; charset=utf-8",
        "x-request-id": "r-17",
        "connection": "keep-alive, x-hop",
        "x-hop": "for one connection only",
        "te": "trailers",
        "accept": "text/event-stream",
        "user-agent": "curl/8",
        "accept-encoding": "identity",
    }
    url = f"{CHAT}?trace=1&x=a%20b"
    answer = await stage.client.post(url, content=body, headers=headers)
    assert answer.headers["x-request-id"] == "r-17", "and the engine's come back"
    assert len(answer.headers.get_list("date")) == 1
    ((request, received),) = engine.asked
    assert received == body
    assert request.url.query == "trace=1&x=a%20b"
    got = request.headers
    kept = ("authorization", "content-type", "x-request-id", "accept-encoding")
    assert {name: got[name] for name in kept} == {name: headers[name] for name in kept}
    assert (got["accept"], got["user-agent"]) == ("text/event-stream", "curl/8")
    assert "x-hop" not in got
    assert "te" not in got
    assert got["host"] == engine.url.removeprefix("http://")


async def test_prompts_with_one_key_go_to_one_worker_and_others_to_all(stage):
    engines = [await stage.engine(f"w{number}") for number in range(3)]
    for key in ("tenant-a", 7):
        before = [len(engine.asked) for engine in engines]
        for _ in range(6):
            assert (await stage.ask(prompt_cache_key=key)).status_code == 200
        more = [len(e.asked) - n for e, n in zip(engines, before, strict=True)]
        assert sorted(more) == [0, 0, 6]
    for engine in engines:
        engine.asked.clear()
    for _ in range(40):
        assert (await stage.ask(prompt_cache_key=None)).status_code == 200
    assert all(engine.asked for engine in engines)


async def test_an_engine_compresses_nothing_for_a_client_that_did_not_ask(stage):
    engine = await stage.engine("w1")
    del stage.client.headers["accept-encoding"]
    assert (await stage.ask()).status_code == 200
    ((request, _),) = engine.asked
    assert request.headers["accept-encoding"] == "identity"


async def test_a_refusal_of_the_engine_is_its_answer(stage):
    engine = await stage.engine("w1", adapters=("sql-lora",))
    answer = await stage.ask(model="sql-lora")
    assert answer.status_code == 404, "this engine does not know its own adapter"
    assert answer.json()["error"]["type"] == "NotFoundError"
    assert len(engine.asked) == 1, "an answer is no reason to ask another"


# ---- workers that fail ------------------------------------------------------------
async def test_a_worker_that_cannot_be_reached_is_asked_once_and_left_alone(stage):
    slammer = await stage.slammer("broken")
    engine = await stage.engine("w1")
    answers = [await stage.ask() for _ in range(20)]
    assert {answer.status_code for answer in answers} == {200}
    assert len(engine.asked) == 20
    assert slammer.connections == 1, "then it was ejected"


async def test_when_no_worker_answers_the_client_is_told(stage):
    for name in ("broken-1", "broken-2"):
        await stage.slammer(name)
    answer = await stage.ask()
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (502, "no_answer")
    assert "prod/broken-" in error["message"]
    again = await stage.ask()
    assert (again.status_code, again.json()["error"]["code"]) == (
        503,
        "model_unavailable",
    )


@pytest.mark.parametrize("stream", [True, False])
async def test_a_worker_lost_before_the_first_byte_is_replaced(stage, stream):
    engines = [await stage.engine(name) for name in ("w1", "w2")]
    for engine in engines:
        engine.hold_at = 0
    asking = asyncio.create_task(stage.ask(stream=stream))
    first, second = await eventually(lambda: in_order(engines))
    first.cut()
    await second.held.wait()
    second.go.set()
    answer = await asking
    assert answer.status_code == 200
    assert second.name.encode() in answer.content
    assert (len(first.asked), len(second.asked)) == (1, 1)


def in_order(engines: list[Engine]) -> tuple[Engine, Engine] | None:
    """The one that holds a request, then the other; None: none does yet."""
    one, other = engines
    if one.held.is_set():
        return one, other
    return (other, one) if other.held.is_set() else None


async def test_a_worker_lost_in_mid_answer_ends_it_and_no_other_is_asked(stage):
    engines = [await stage.engine(name) for name in ("w1", "w2")]
    for engine in engines:
        engine.hold_at = 2
    asking = asyncio.create_task(stage.ask(stream=True))
    first, second = await eventually(lambda: in_order(engines))
    first.cut()
    answer = await asking
    *spoken, last = events(answer.content)
    assert len(spoken) == 2, "what had been said has passed"
    assert last["error"]["code"] == "cut_off"
    assert b"[DONE]" not in answer.content
    assert not second.asked
    second.hold_at = None
    assert (await stage.ask()).status_code == 200
    assert len(second.asked) == 1, "the lost one is ejected"


# ---- clients that leave -----------------------------------------------------------
@pytest.mark.parametrize(
    ("stream", "hold_at"), [(True, 0), (True, 2), (False, 0)], ids=str
)
async def test_a_client_that_leaves_takes_its_request_along(stage, stream, hold_at):
    engine = await stage.engine("w1")
    engine.hold_at = hold_at
    asking = asyncio.create_task(stage.ask(stream=stream))
    async with asyncio.timeout(5.0):
        await engine.held.wait()
        asking.cancel()
        await engine.left.wait()
    engine.hold_at = None
    assert (await stage.ask()).status_code == 200, "the worker was not blamed for it"


# ---- what cannot be routed --------------------------------------------------------
async def test_unknown_and_unavailable_are_two_answers_in_the_shape_of_openai(stage):
    await stage.register("w1", "http://127.0.0.1:1", status=cp.Status.STARTING)
    never = await stage.ask(model="nobody")
    assert never.status_code == 404
    assert never.json()["error"] == {
        "message": "no worker ever served a model named 'nobody'",
        "type": "invalid_request_error",
        "param": "model",
        "code": "model_not_found",
    }
    not_now = await stage.ask()
    assert not_now.status_code == 503
    error = not_now.json()["error"]
    assert (error["type"], error["code"]) == ("server_error", "model_unavailable")
    assert error["reasons"] == {"starting": 1}


async def test_a_body_that_names_no_model_is_refused(stage):
    for body, word in (
        (b"", "truncated"),
        (b"{", "truncated"),
        (b"[]", "object"),
        (b"{}", "model"),
        (b'{"model": 7}', "str"),
        (b'{"model": null}', "str"),
        (b'{"model": "\xff"}', "utf-8"),
        (b'{"model": "\\ud800"}', "truncated"),
        (b'{"model": "llama", "x": ' + b"[" * 100_000, "recursion"),
    ):
        answer = await stage.client.post(CHAT, content=body)
        error = answer.json()["error"]
        assert (answer.status_code, error["type"]) == (400, "invalid_request_error")
        assert word in error["message"].lower()


async def test_other_paths_and_methods_are_refused_in_the_same_shape(stage):
    for answer, status in (
        (await stage.client.get("/v1/embeddings"), 404),
        (await stage.client.get(CHAT), 405),
    ):
        assert answer.status_code == status
        assert answer.json()["error"]["type"] == "invalid_request_error"


async def test_models_are_those_that_can_be_asked_for_now(stage):
    assert (await stage.client.get("/v1/models")).json() == {
        "object": "list",
        "data": [],
    }
    await stage.register("w1", "http://127.0.0.1:1", adapters=("sql-lora",))
    await stage.register("w2", "http://127.0.0.1:1")
    starting = {"model": "qwen", "status": cp.Status.STARTING}
    await stage.register("w3", "http://127.0.0.1:1", **starting)
    half = {"model": "half", "role": cp.Role.PREFILL}
    await stage.register("w4", "http://127.0.0.1:1", **half)
    prefill = {"role": cp.Role.PREFILL, "adapters": ("prefill-lora",)}
    await stage.register("w5", "http://127.0.0.1:1", **prefill)
    cards = (await stage.client.get("/v1/models")).json()["data"]
    assert [card["id"] for card in cards] == ["llama", "sql-lora"]
    assert {card["object"] for card in cards} == {"model"}
    assert all(card["created"] > 1e9 for card in cards)


async def test_a_router_that_saw_no_fleet_yet_is_not_healthy(example):
    async with (
        cp.connect("nats://127.0.0.1:1") as plane,
        routing(example, plane) as router,
    ):
        health = await router.client.get("/health")
        assert (health.status_code, health.json()["source"]) == (503, "none")
        body = {"model": "llama", "messages": MESSAGES}
        answer = await router.client.post(CHAT, json=body)
        assert answer.status_code == 503
        assert answer.json()["error"]["reasons"] == {"not_synced": 1}


async def test_a_fleet_that_is_too_old_is_not_routed_to(stage, example):
    await stage.engine("w1")
    async with routing(example, stage.plane, max_stale_s=1e-6) as router:
        await router.view.synced(5.0)
        assert (await router.client.get("/health")).status_code == 200
        body = {"model": "llama", "messages": MESSAGES}
        answer = await router.client.post(CHAT, json=body)
        assert answer.status_code == 503
        assert answer.json()["error"]["reasons"] == {"stale": 1}


# ---- to be copied ----------------------------------------------------------------
def test_it_is_short_enough_to_be_read_at_one_go():
    assert len(EXAMPLE.read_text(encoding="utf-8").splitlines()) < 200
