"""Messages off the socket, many at a time; everything else is nats-py's to read.

A replay is bound by how fast messages are taken apart. nats-py tries expressions on
them one after another and moves all the bytes behind each; here whole messages are cut
out of what arrived, and only lines of another kind are handed on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from nats.errors import ProtocolError
from nats.protocol.parser import Parser

from controlplane.broker.wire import RawMessage

if TYPE_CHECKING:
    from nats.aio.client import Client

_END: Final = b"\r\n"
_PLAIN_WORDS: Final = 4
"""``MSG subject sid [reply] size``: so many without a reply."""
_HEADED_WORDS: Final = 5
"""``HMSG subject sid [reply] headers size``: so many without a reply."""


class MessageParser(Parser):
    """As its parent, which sees whole lines only, and none that begins a message.

    Messages go to the sink of their subscription; those without one are dropped.
    """

    def __init__(
        self, client: Client, sinks: Mapping[int, Callable[[RawMessage], None]]
    ) -> None:
        """Read for ``client`` and give messages to ``sinks``."""
        self._sinks: Final = sinks
        super().__init__(client)

    def reset(self) -> None:
        """Forget what has arrived in part."""
        super().reset()
        self._held: list[bytes] = []
        self._held_bytes = self._needed_bytes = 0

    async def parse(self, data: bytes = b"") -> None:
        """Take in what arrived. Raises `ProtocolError` for what is not NATS."""
        self._held.append(data)
        self._held_bytes += len(data)
        if self._held_bytes < self._needed_bytes:
            return
        if len(self._held) > 1:
            data = b"".join(self._held)
        self._held.clear()
        self._needed_bytes = place = 0
        while True:
            place = self._take_messages(data, place)
            end = data.find(_END, place)
            if end < 0 or self._needed_bytes:
                break
            end += len(_END)
            # It may ask for something to be sent, which takes its time.
            await super().parse(data[place:end])
            place = end
        if place < len(data):
            self._held.append(data[place:])
        self._held_bytes = len(data) - place

    def _take_messages(self, data: bytes, place: int) -> int:
        """Give away the whole messages from ``place`` on; where others begin."""
        find, sinks, size = data.find, self._sinks, len(data)
        while True:
            line_end = find(_END, place)
            if line_end < 0:
                return place
            words = data[place:line_end].split()
            start = line_end + 2
            try:
                if words[0] == b"HMSG":
                    body, end = start + int(words[-2]), start + int(words[-1])
                    answered = len(words) - _HEADED_WORDS
                elif words[0] == b"MSG":
                    body, end = start, start + int(words[-1])
                    answered = len(words) - _PLAIN_WORDS
                else:
                    return place
                sink = sinks.get(int(words[2]))
            except (IndexError, ValueError) as error:
                raise ProtocolError from error
            if not (start <= body <= end and 0 <= answered <= 1):
                raise ProtocolError
            if end + 2 > size:
                self._needed_bytes = end + 2 - place
                return place
            if sink is not None:
                reply = words[3] if answered else b""
                headers = data[start:body] if body > start else None
                sink(RawMessage(words[1], reply, data[body:end], headers))
            place = end + 2
