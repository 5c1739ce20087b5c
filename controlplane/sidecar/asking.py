"""Asking an engine over HTTP/1.1 or TCP: one question a connection, all bounded."""

from __future__ import annotations

import asyncio
from typing import Final, NamedTuple
from urllib.parse import urlsplit

HEAD_BYTES_MAX: Final = 64 * 1024
BODY_BYTES_MAX: Final = 8 << 20
SHOWN: Final = 200
"""So much of a body is shown to people."""
OK, NOT_OK = 200, 300


class Answer(NamedTuple):
    """What came back."""

    status: int
    reason: str
    body: bytes

    @property
    def good(self) -> bool:
        """Whether the status is 2xx."""
        return OK <= self.status < NOT_OK

    def __str__(self) -> str:
        text = " ".join(self.body[:SHOWN].decode("utf-8", "replace").split())
        said = f"{self.status} {self.reason}".strip()
        return f"{said}: {text}" if text and not self.good else said


async def get(url: str, timeout_s: float) -> Answer:
    """Ask for ``url`` (http or https). Raises `OSError` without a whole answer.

    A `TimeoutError` is one.
    """
    try:
        split = urlsplit(url)
        tls = split.scheme == "https"
        port = split.port or (443 if tls else 80)
    except ValueError as error:
        message = f"{url!r} is no URL: {error}"
        raise ConnectionError(message) from error
    target = (split.path or "/") + (f"?{split.query}" if split.query else "")
    host = split.netloc.rpartition("@")[2]
    head = (
        f"GET {target} HTTP/1.1\r\nHost: {host}\r\nAccept: */*\r\n"
        "User-Agent: controlplane\r\nConnection: close\r\n\r\n"
    )
    async with asyncio.timeout(timeout_s):
        reader, writer = await _connected(split.hostname or "", port, tls=tls)
        try:
            writer.write(head.encode("latin-1"))
            return await _read(reader)
        except (ValueError, IndexError, EOFError) as error:
            message = f"no answer in HTTP: {error}"
            raise ConnectionError(message) from error
        finally:
            writer.close()


async def knock(host: str, port: int, timeout_s: float) -> None:
    """Connect and leave. Raises `OSError` when nobody listens."""
    async with asyncio.timeout(timeout_s):
        _, writer = await _connected(host, port)
        writer.close()


async def _connected(
    host: str, port: int, *, tls: bool = False
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Raises `OSError`, also for a host that could be nobody's name."""
    try:
        return await asyncio.open_connection(
            host, port, ssl=tls or None, limit=HEAD_BYTES_MAX
        )
    except ValueError as error:  # a name that DNS cannot have, a zero in it
        message = f"{host!r} cannot be looked up: {error}"
        raise ConnectionError(message) from error


async def _read(reader: asyncio.StreamReader) -> Answer:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except asyncio.LimitOverrunError as error:
        raise ValueError(str(error)) from error
    first, *lines = head.split("\r\n")
    version, status, reason = (*first.split(" ", 2), "")[:3]
    if not version.startswith("HTTP/1."):
        message = f"it began with {first[:SHOWN]!r}"
        raise ValueError(message)
    fields = {
        k.strip().lower(): v.strip() for k, _, v in (x.partition(":") for x in lines)
    }
    if "chunked" in fields.get("transfer-encoding", "").lower():
        body = await _chunks(reader)
    elif "content-length" in fields:
        body = await reader.readexactly(_bounded(int(fields["content-length"])))
    else:
        body = await _rest(reader)
    return Answer(int(status), reason, body)


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    body = bytearray()
    while size := int((await reader.readline()).split(b";")[0], 16):
        _bounded(len(body) + size)
        body += await reader.readexactly(size)
        await reader.readline()
    return bytes(body)


async def _rest(reader: asyncio.StreamReader) -> bytes:
    body = bytearray()
    while chunk := await reader.read(HEAD_BYTES_MAX):
        body += chunk
        _bounded(len(body))
    return bytes(body)


def _bounded(size: int) -> int:
    if not 0 <= size <= BODY_BYTES_MAX:
        message = f"a body of {size} bytes"
        raise ValueError(message)
    return size
