"""Messages off the socket: whatever the pieces are in which they arrive."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nats.errors import ProtocolError

from controlplane.broker.parsing import MessageParser
from controlplane.broker.wire import Headers, RawMessage

BLOCK = b"NATS/1.0\r\nNats-Msg-Id: a b\r\n\r\n"
SUBJECTS = st.sampled_from([b"a", b"cp.default.log.worker.prod.w1"])
REPLIES = st.sampled_from([b"", b"$JS.ACK.S.c.1.7.7.1796069705123456789.0"])
PAYLOADS = st.sampled_from([b"", b"x", b"\r\n", b"MSG a 1 3\r\n", bytes(70_000)])
MESSAGES = st.builds(
    RawMessage, SUBJECTS, REPLIES, PAYLOADS, st.sampled_from([None, BLOCK])
)
OTHERS = st.sampled_from([b"PING", b"PONG", b"+OK", b"INFO {}", b"-ERR 'Odd One'"])


class Client:
    """What nats-py's parser calls; it notes the calls."""

    def __init__(self):
        self.seen = []

    async def _process_ping(self):
        self.seen.append(b"PING")

    async def _process_pong(self):
        self.seen.append(b"PONG")

    async def _process_info(self, info):
        self.seen.append(f"INFO {info}".encode())

    async def _process_err(self, text):
        self.seen.append(f"-ERR {text}".encode())


def parser(sid=7):
    client = Client()
    return MessageParser(client, {sid: client.seen.append}), client.seen


def wire(message, sid=7):
    """As the server sends it."""
    head = [message.subject, b"%d" % sid, *([message.reply] if message.reply else [])]
    if message.headers is None:
        line = [b"MSG", *head, b"%d" % len(message.payload)]
    else:
        size = len(message.headers) + len(message.payload)
        line = [b"HMSG", *head, b"%d" % len(message.headers), b"%d" % size]
    body = (message.headers or b"") + message.payload
    return b" ".join(line) + b"\r\n" + body + b"\r\n"


@given(st.lists(MESSAGES | OTHERS, max_size=12), st.data())
async def test_pieces_do_not_matter(sent, data):
    stream = b"".join(
        wire(one) if isinstance(one, RawMessage) else one + b"\r\n" for one in sent
    )
    places = st.integers(0, len(stream))
    cuts = sorted(data.draw(st.lists(places, max_size=20), "cuts"))
    reader, seen = parser()
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        await reader.parse(stream[start:end])
    heard = [one if isinstance(one, RawMessage) else one.lower() for one in sent]
    heard = [one for one in heard if one != b"+ok"]
    assert [
        one if isinstance(one, RawMessage) else one.lower() for one in seen
    ] == heard


async def test_byte_by_byte():
    message = RawMessage(b"a", b"r", b"{}", BLOCK)
    reader, seen = parser()
    for byte in (wire(message) + b"PING\r\n") * 2:
        await reader.parse(bytes([byte]))
    assert seen == [message, b"PING"] * 2


async def test_messages_that_nobody_listens_to_are_passed_over():
    reader, seen = parser()
    heard = RawMessage(b"a", b"", b"x", None)
    await reader.parse(wire(heard, sid=8) + wire(heard) + wire(heard, sid=9))
    assert seen == [heard]


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"HELLO",
        b"MSG",
        b"MSG a 7",
        b"MSG a b 1",
        b"MSG a 7 one",
        b"MSG a 7 -1",
        b"MSG a 7 r r 1",
        b"HMSG a 7 4",
        b"HMSG a 7 x 4",
        b"HMSG a 7 5 4",
    ],
)
async def test_what_is_not_nats_is_an_error(line):
    reader, _ = parser()
    with pytest.raises(ProtocolError):
        await reader.parse(line + b"\r\n")


async def test_nothing_is_left_of_an_earlier_connection():
    reader, seen = parser()
    message = RawMessage(b"a", b"", b"x" * 100, None)
    await reader.parse(wire(message)[:50])
    reader.reset()
    await reader.parse(wire(message))
    assert seen == [message]


# ---- headers -------------------------------------------------------------------------
def test_headers_read_as_a_mapping():
    headers = Headers(b"NATS/1.0\r\nA: 1\r\nB:a: b\r\n\r\n")
    assert headers.get("C") is None
    assert headers.get("C", "none") == "none"
    assert headers == {"A": "1", "B": "a: b"}
    assert headers["A"] == headers.get("A") == "1"
    assert (list(headers), len(headers), "B" in headers) == (["A", "B"], 2, True)
    assert headers.get("C") is None
    with pytest.raises(KeyError):
        headers["C"]


@pytest.mark.parametrize("raw", [b"NATS/1.0\r\n\r\n", b"\xff", b"NATS/1.0 A: 1"])
def test_a_name_within_a_value_is_no_header(raw):
    assert Headers(raw).get("A") is None
    assert Headers(raw) == {}
    assert Headers(b"NATS/1.0\r\nB: A\r\n\r\n").get("A") is None
