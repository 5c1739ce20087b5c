"""The process's own pages, over real sockets."""

import asyncio
import socket
from http import HTTPStatus

import pytest

from controlplane.errors import SettingsError
from controlplane.http import (
    CONNECTIONS_MAX,
    REQUEST_BYTES_MAX,
    TEXT,
    HttpServer,
    Response,
)

DEADLINE_S = 5.0


async def hello() -> Response:
    return 200, TEXT, b"hello\n"


async def broken() -> Response:
    message = "the page is broken"
    raise ValueError(message)


async def unready() -> Response:
    return 503, TEXT, b"not caught up\n"


ROUTES = {"/": hello, "/broken": broken, "/readyz": unready}


def serving(host="127.0.0.1", port=0, *, routes=ROUTES, fallback=False):
    return HttpServer(host, port, routes, fallback_any_port=fallback)


async def talk(server, request: bytes, host="127.0.0.1") -> tuple[int, str, bytes]:
    """Status, head and body of the answer to these bytes."""
    async with asyncio.timeout(DEADLINE_S):
        reader, writer = await asyncio.open_connection(host, server.port)
        writer.write(request)
        answer = await reader.read()
        writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), head.decode(), body


def get(path: str, method: str = "GET") -> bytes:
    return f"{method} {path} HTTP/1.1\r\nHost: here\r\n\r\n".encode()


@pytest.fixture
def busy_port():
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        yield holder.getsockname()[1]


async def test_a_page_is_served_whole():
    async with serving() as server:
        status, head, body = await talk(server, get("/"))
    assert (status, body) == (200, b"hello\n")
    assert "Content-Length: 6" in head
    assert "Content-Type: text/plain; charset=utf-8" in head
    assert "Connection: close" in head


async def test_head_gives_the_length_and_no_body():
    async with serving() as server:
        status, head, body = await talk(server, get("/", "HEAD"))
    assert (status, body) == (200, b"")
    assert "Content-Length: 6" in head


async def test_the_query_does_not_choose_the_page():
    async with serving() as server:
        assert (await talk(server, get("/?verbose=1")))[0] == 200


async def test_a_page_that_asks_for_it_is_given_the_query():
    async def pick(query) -> Response:
        return 200, TEXT, query["model"].encode()

    async with HttpServer("127.0.0.1", 0, ROUTES, queries={"/pick": pick}) as server:
        answers = [
            await talk(server, get(path))
            for path in ("/pick?model=a%2Fb+c&x=1", "/pick?model=m&model=n", "/?x")
        ]
    assert [body for _, _, body in answers] == [b"a/b c", b"n", b"hello\n"]


async def test_a_handler_chooses_its_status():
    async with serving() as server:
        status, _, body = await talk(server, get("/readyz"))
    assert (status, body) == (503, b"not caught up\n")


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (get("/nowhere"), HTTPStatus.NOT_FOUND),
        (get("/", "POST"), HTTPStatus.METHOD_NOT_ALLOWED),
        (get("/broken"), HTTPStatus.INTERNAL_SERVER_ERROR),
        (b"\x16\x03\x01 nonsense\r\n\r\n", HTTPStatus.BAD_REQUEST),
        (b"GET //[ HTTP/1.1\r\n\r\n", HTTPStatus.BAD_REQUEST),
        (b"GET / HTTP/9.9\r\n\r\n", HTTPStatus.BAD_REQUEST),
        (
            b"GET / HTTP/1.1\r\nX: " + b"x" * 2 * REQUEST_BYTES_MAX + b"\r\n\r\n",
            HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
        ),
    ],
)
async def test_what_cannot_be_served_gets_its_status(request_bytes, status):
    async with serving() as server:
        assert (await talk(server, request_bytes))[0] == status
        assert (await talk(server, get("/")))[0] == 200, "and the server goes on"


async def test_a_broken_page_does_not_tell_why():
    async with serving() as server:
        assert (await talk(server, get("/broken")))[2] == b"Internal Server Error\n"


async def test_a_request_that_never_ends_times_out(monkeypatch):
    monkeypatch.setattr("controlplane.http.REQUEST_S_MAX", 0.05)
    async with serving() as server:
        assert (await talk(server, b"GET / HT"))[0] == HTTPStatus.REQUEST_TIMEOUT


async def test_a_page_that_never_comes_times_out(monkeypatch):
    monkeypatch.setattr("controlplane.http.ANSWER_S_MAX", 0.05)

    async def endless() -> Response:
        await asyncio.Event().wait()
        raise AssertionError

    async with serving(routes={"/": endless}) as server:
        assert (await talk(server, get("/")))[0] == HTTPStatus.GATEWAY_TIMEOUT


async def test_connections_are_bounded():
    async with serving() as server:
        idle = [
            await asyncio.open_connection("127.0.0.1", server.port)
            for _ in range(CONNECTIONS_MAX)
        ]
        assert (await talk(server, get("/")))[0] == HTTPStatus.SERVICE_UNAVAILABLE
        for _, writer in idle:
            writer.close()


async def test_a_busy_port_is_a_settings_error(busy_port):
    with pytest.raises(SettingsError, match=f"127.0.0.1:{busy_port}.*in use"):
        await serving(port=busy_port).start()


async def test_a_busy_port_may_be_replaced_by_any(busy_port):
    async with serving(port=busy_port, fallback=True) as server:
        assert server.port != busy_port
        assert server.url == f"http://127.0.0.1:{server.port}"
        assert (await talk(server, get("/")))[0] == 200


async def test_a_host_that_there_is_not_is_a_settings_error():
    with pytest.raises(SettingsError, match="cannot listen there"):
        await serving("no.such.host.invalid", fallback=True).start()


@pytest.mark.parametrize("port", [-1, 70_000])
async def test_a_number_that_is_no_port_is_a_settings_error(port):
    with pytest.raises(SettingsError, match="http port"):
        await serving(port=port, fallback=True).start()


async def test_everywhere_is_shown_as_this_host():
    async with serving("0.0.0.0") as server:  # noqa: S104 - what containers ask for
        assert server.url == f"http://127.0.0.1:{server.port}"


async def test_stopping_ends_what_is_still_being_answered():
    begun = asyncio.Event()

    async def endless() -> Response:
        begun.set()
        await asyncio.Event().wait()
        raise AssertionError

    server = serving(routes={"/": endless})
    await server.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(get("/"))
    async with asyncio.timeout(DEADLINE_S):
        await begun.wait()
        await server.stop()
        assert await reader.read() == b""
    writer.close()
    await server.stop()
    with pytest.raises(OSError, match="onnect"):
        await asyncio.open_connection("127.0.0.1", server.port)


async def test_a_stopped_server_can_start_again_on_its_port():
    server = serving()
    async with server:
        first = server.port
    async with server:
        assert server.port == first
