"""A proxy that knows NATS: it loses single messages on their way to a client.

What a broken connection cannot show: an acknowledgement that is lost while everything
around it goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from tests.support.proxy import Proxy, Sieve

_LINE_END = b"\r\n"
_MESSAGES = (b"MSG ", b"HMSG ")

Lost = Callable[[str, bytes], bool]
"""Whether to lose a message: its subject, its payload (with headers, if any)."""


@dataclass
class _Rule:
    which: Lost
    left: int
    breaking: bool


class NatsProxy(Proxy):
    """Passes whole NATS messages on; loses those it is told to lose."""

    def __init__(self, port: int, *, host: str = "127.0.0.1") -> None:
        super().__init__(port, host=host)
        self._rules: list[_Rule] = []
        self.lost = 0
        """So many messages were lost."""

    def lose(self, which: Lost, count: int = 1, *, breaking: bool = False) -> None:
        """Lose the next ``count`` messages to clients that are ``which``.

        ``breaking``: with each of them every connection breaks.
        """
        self._rules.append(_Rule(which, count, breaking))

    def lose_answers(
        self, count: int = 1, stream: str = "", *, breaking: bool = False
    ) -> None:
        """Lose the next acknowledgements of what was stored: of ``stream``, or any."""
        answers = partial(is_acknowledgement, stream=stream)
        self.lose(lambda _, payload: answers(payload), count, breaking=breaking)

    def lose_no_more(self) -> None:
        """From now on nothing is lost."""
        self._rules.clear()

    def loses(self, subject: str, payload: bytes) -> bool:
        """Whether this message is lost; it counts then."""
        for rule in self._rules:
            if rule.left and rule.which(subject, payload):
                rule.left -= 1
                self.lost += 1
                if rule.breaking:
                    asyncio.get_running_loop().call_soon(self.drop)
                return True
        return False

    def _sieve(self) -> Sieve:
        return _Frames(self.loses)


def is_acknowledgement(payload: bytes, stream: str = "") -> bool:
    """Whether it says that something was stored, in ``stream`` or in any."""
    start = f'{{"stream":"{stream}'.encode() + (b'"' if stream else b"")
    return payload.startswith(start) and b'"seq":' in payload


class _Frames(Sieve):
    """Cuts a server's bytes into frames; holds an unfinished one back."""

    def __init__(self, loses: Lost) -> None:
        self._loses = loses
        self._rest = b""

    def feed(self, piece: bytes) -> bytes:
        buffer, at, kept = self._rest + piece, 0, []
        while (end := _end_of_frame(buffer, at)) is not None:
            frame = buffer[at:end]
            if not self._is_lost(frame):
                kept.append(frame)
            at = end
        self._rest = buffer[at:]
        return b"".join(kept)

    def _is_lost(self, frame: bytes) -> bool:
        if not frame.startswith(_MESSAGES):
            return False
        head, payload = frame.split(_LINE_END, 1)
        subject = head.split()[1].decode()
        return self._loses(subject, payload.removesuffix(_LINE_END))


def _end_of_frame(buffer: bytes, start: int) -> int | None:
    """Where the frame that begins at ``start`` ends; None: not here yet."""
    line_end = buffer.find(_LINE_END, start)
    if line_end < 0:
        return None
    end = line_end + len(_LINE_END)
    if buffer.startswith(_MESSAGES, start):
        end += int(buffer[start:line_end].split()[-1]) + len(_LINE_END)
    return end if end <= len(buffer) else None
