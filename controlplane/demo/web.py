"""HTTP/1.1 as the demo needs it: one request per connection, nothing streamed."""

from __future__ import annotations

import asyncio
from typing import Final, NamedTuple
from urllib.parse import urlsplit

HEAD_BYTES_MAX: Final = 16 * 1024
BODY_BYTES_MAX: Final = 1 << 20


class Message(NamedTuple):
    """A request or an answer."""

    start: list[str]
    """The words of its first line."""
    body: bytes


async def read_message(reader: asyncio.StreamReader) -> Message:
    """Read one whole request or answer.

    Raises ConnectionError when it is cut off, ValueError when it is none.
    """
    try:
        head = await reader.readuntil(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        fields = dict(line.lower().split(":", 1) for line in lines if ":" in line)
        length = int(fields.get("content-length", "0"))
        if not 0 <= length <= BODY_BYTES_MAX:
            message = f"a body of {length} bytes"
            raise ValueError(message)
        return Message(first.split(" ", 2), await reader.readexactly(length))
    except asyncio.IncompleteReadError as error:
        message = "the connection was closed in the middle"
        raise ConnectionError(message) from error
    except asyncio.LimitOverrunError as error:
        raise ValueError(str(error)) from error


async def ask(
    method: str, url: str, body: bytes = b"", *, timeout_s: float = 5.0
) -> tuple[int, bytes]:
    """Send a request; status and body of the answer.

    Raises OSError or TimeoutError (which is one) when there is no whole answer.
    """
    split = urlsplit(url)
    target = split.path + (f"?{split.query}" if split.query else "")
    head = (
        f"{method} {target or '/'} HTTP/1.1\r\nHost: {split.netloc}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        "Connection: close\r\n\r\n"
    )
    async with asyncio.timeout(timeout_s):
        reader, writer = await asyncio.open_connection(split.hostname, split.port)
        try:
            writer.write(head.encode("latin-1") + body)
            answer = await read_message(reader)
            return int(answer.start[1]), answer.body
        except (ValueError, IndexError) as error:
            raise ConnectionError(str(error)) from error
        finally:
            writer.close()
