"""The least that reading a stream takes in Python: nothing is decoded, or checked.

A connection of its own, a pull consumer without acknowledgements, two pulls ahead.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from urllib.parse import urlsplit

BATCH = 5000
INBOX, MADE = b"bench.raw", b"bench.made"
READ_S = 120


class RawReader(asyncio.Protocol):
    """Counts the messages of a stream until it has seen as many as it wants."""

    def __init__(self, stream: str, wanted: int) -> None:
        """Read ``wanted`` messages of ``stream``."""
        self._stream, self._wanted = stream, wanted
        self._name = secrets.token_hex(8)
        self._held, self._seen, self._asked, self._made = b"", 0, 0, False
        self.done: asyncio.Future[float] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Say hello, make the consumer and pull."""
        self._transport = transport
        config = {"name": self._name, "ack_policy": "none", "mem_storage": True}
        config |= {"inactive_threshold": 10**10}
        body = json.dumps({"stream_name": self._stream, "config": config}).encode()
        path = f"$JS.API.CONSUMER.CREATE.{self._stream}.{self._name}".encode()
        transport.write(b'CONNECT {"verbose":false,"headers":true}\r\n')
        transport.write(b"SUB %b 1\r\nSUB %b 2\r\n" % (INBOX, MADE))
        transport.write(b"PUB %b %b %d\r\n%b\r\n" % (path, MADE, len(body), body))
        self._began = time.process_time()

    def _pull(self) -> None:
        path = f"$JS.API.CONSUMER.MSG.NEXT.{self._stream}.{self._name}".encode()
        body = json.dumps({"batch": BATCH, "expires": READ_S * 10**9}).encode()
        while self._asked <= self._seen + BATCH:
            self._asked += BATCH
            head = b"PUB %b %b %d\r\n" % (path, INBOX, len(body))
            self._transport.write(head + body + b"\r\n")

    def data_received(self, data: bytes) -> None:
        """Pass over each whole message."""
        data, place = self._held + data, 0
        while (end := data.find(b"\r\n", place)) >= 0:
            if data.startswith((b"HMSG", b"MSG"), place):
                size = int(data[data.rfind(b" ", place, end) + 1 : end])
                if end + size + 4 > len(data):
                    break
                # A message has a reply subject; a status and an answer have none.
                self._seen += data.find(b" $JS.ACK.", place, end) >= 0
                self._made |= data.startswith(b"MSG %b" % MADE, place)
                end += size + 2
            elif data.startswith(b"PING", place):
                self._transport.write(b"PONG\r\n")
            place = end + 2
        self._held = data[place:]
        if self._seen >= self._wanted and not self.done.done():
            self.done.set_result(time.process_time() - self._began)
        if self._made:
            self._pull()


async def read_raw(url: str, stream: str, count: int) -> tuple[float, float]:
    """Seconds of the clock and of the processor to read the stream's messages."""
    address = urlsplit(url)
    began = time.perf_counter()
    transport, reader = await asyncio.get_running_loop().create_connection(
        lambda: RawReader(stream, count), address.hostname, address.port
    )
    processor_s = await asyncio.wait_for(reader.done, READ_S)
    elapsed_s = time.perf_counter() - began
    transport.close()
    return elapsed_s, processor_s
