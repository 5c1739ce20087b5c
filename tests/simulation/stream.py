"""A stream that can lose its tail: the one thing that no broker should do."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

from controlplane.broker import Message, Outgoing
from controlplane.broker.memory_stream import MemoryStream


class SimStream(MemoryStream):
    """As the product's, and it can be cut short and spoilt."""

    previous: dict[str, Message]
    """What stood on a subject before its last message: a replica may not know more."""

    def _append(self, message: Outgoing, headers: Mapping[str, str] | None) -> Message:
        if self.spec.max_messages_per_subject == 1:
            if not hasattr(self, "previous"):
                self.previous = {}
            before = self.last_on(message.subject)
            if before:
                self.previous[message.subject] = self._messages[before]
        return super()._append(message, headers)

    def before(self, message: Message) -> Message | None:
        """What stood on the subject before ``message``."""
        return getattr(self, "previous", {}).get(message.subject)

    def lose_after(self, sequence: int) -> None:
        """Forget all that stands after ``sequence``, as a power failure would.

        The sequences are given again, and the ids of what was lost are new again.
        """
        for lost in [number for number in self._messages if number > sequence]:
            self._remove(lost)
        self.last_sequence = min(self.last_sequence, sequence)
        self._first = next(iter(self._messages), self.last_sequence + 1)
        kept = [known for known in self._window if known.sequence <= sequence]
        self._window.clear()
        self._window.extend(kept)
        self._known.clear()
        self._known.update({known.message_id: known.sequence for known in kept})

    def mark(self) -> dict[str, Any]:
        """All that it holds now: see `return_to`."""
        places = {name: list(held) for name, held in self._by_subject.items()}
        return {
            "last": self.last_sequence,
            "first": self._first,
            "bytes": self._bytes,
            "messages": dict(self._messages),
            "places": places,
            "window": list(self._window),
            "previous": dict(getattr(self, "previous", {})),
        }

    def return_to(self, mark: dict[str, Any]) -> None:
        """Hold what it held then, as a disk that was put back; sequences return."""
        self.last_sequence, self._first = mark["last"], mark["first"]
        self._bytes = mark["bytes"]
        self._messages.clear()
        self._messages.update(mark["messages"])
        self._by_subject.clear()
        self._by_subject.update(
            {name: deque(held) for name, held in mark["places"].items()}
        )
        self._window.clear()
        self._window.extend(mark["window"])
        self._known.clear()
        self._known.update({known.message_id: known.sequence for known in self._window})
        self.previous = dict(mark["previous"])

    def trim_to(self, first: int) -> None:
        """Forget all that stands before ``first``, as a limit would."""
        for number in [number for number in self._messages if number < first]:
            self._remove(number)
        self._first = next(iter(self._messages), self.last_sequence + 1)

    def replace(self, message: Message) -> None:
        """Put other bytes in a message's place, as a bad disk would."""
        self._messages[message.sequence] = message

    @property
    def newest(self) -> Message | None:
        """The message stored last."""
        return next(reversed(self._messages.values()), None)
