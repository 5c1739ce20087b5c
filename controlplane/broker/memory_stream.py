"""A stream in memory: total order, expectations, limits, as nats-server has them.

Synchronous and deterministic: the only time is the clock it is given.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec

from controlplane.broker import Message, Outgoing, Stored, StreamSpec, StreamState
from controlplane.broker.subjects import matches
from controlplane.broker.translate import (
    ATOMIC_DISABLED,
    DUPLICATE_IN_BATCH,
    STORE_FAILED,
    WRONG_LAST_SEQUENCE,
    WRONG_LAST_SEQUENCE_IN_BATCH,
)
from controlplane.broker.wire import ApiError, stored_headers

_RECORD_BYTES: Final = 30
_HEADER_BYTES: Final = 4
_BAD_REQUEST: Final = 400
_UNAVAILABLE: Final = 503


class RefusedError(Exception):
    """The stream answered with an error. Stays in this package."""

    def __init__(self, err_code: int, description: str, *, code: int = 400) -> None:
        self.error: Final = ApiError(
            code=code, err_code=err_code, description=description
        )
        super().__init__(description)


class _Known(msgspec.Struct, frozen=True):
    """A message id in the duplicate window."""

    message_id: str
    sequence: int
    at: datetime


class MemoryStream:
    """One stream: what it holds and how it answers."""

    def __init__(self, spec: StreamSpec, clock: Callable[[], datetime]) -> None:
        self.spec: Final = spec
        self.last_sequence = 0
        self._clock: Final = clock
        self._forget_after: Final = timedelta(seconds=spec.duplicate_window_s)
        self._keep_for: Final = timedelta(seconds=max(0.0, spec.max_age_s))
        self._first = 1
        self._messages: Final[OrderedDict[int, Message]] = OrderedDict()
        self._by_subject: Final[dict[str, deque[int]]] = {}
        self._bytes = 0
        self._window: Final[deque[_Known]] = deque()
        self._known: Final[dict[str, int]] = {}

    # ---- asking ----------------------------------------------------------------
    def state(self) -> StreamState:
        """Return where the stream stands."""
        self._expire()
        return StreamState(
            first_sequence=self._first,
            last_sequence=self.last_sequence,
            messages=len(self._messages),
            bytes=self._bytes,
            max_bytes=self.spec.max_bytes if self.spec.max_bytes > 0 else -1,
            metadata=dict(self.spec.metadata),
            now=self._clock(),
            replicas=self.spec.replicas,
            subjects=len(self._by_subject),
        )

    def count(self, pattern: str) -> int:
        """Return how many messages are held under ``pattern``."""
        self._expire()
        held = self._by_subject.items()
        return sum(len(places) for name, places in held if matches(pattern, name))

    def get(self, sequence: int) -> Message | None:
        """Return the message at ``sequence``."""
        self._expire()
        return self._messages.get(sequence)

    def last(self, pattern: str) -> Message | None:
        """Return the last message under ``pattern``."""
        self._expire()
        if pattern in self._by_subject:
            return self._messages[self._by_subject[pattern][-1]]
        ends = [s[-1] for name, s in self._by_subject.items() if matches(pattern, name)]
        return self._messages[max(ends)] if ends else None

    def last_on(self, subject: str) -> int:
        """Return the last sequence on ``subject``, 0 when it has none."""
        sequences = self._by_subject.get(subject)
        return sequences[-1] if sequences else 0

    def between(self, after: int, until: int, pattern: str | None) -> list[Message]:
        """Return what is held in (after, until], in order."""
        self._expire()
        first = max(after + 1, self._first)
        found = (self._messages.get(n) for n in range(first, until + 1))
        return [m for m in found if m and (not pattern or matches(pattern, m.subject))]

    def lasts(self, after: int, until: int, pattern: str | None) -> list[Message]:
        """Return the last message of each subject, if it is in (after, until]."""
        self._expire()
        ends = sorted(
            sequences[-1]
            for subject, sequences in self._by_subject.items()
            if not pattern or matches(pattern, subject)
        )
        return [self._messages[n] for n in ends if after < n <= until]

    # ---- storing ---------------------------------------------------------------
    def store(self, message: Outgoing) -> tuple[Stored, list[Message]]:
        """Store one message, and say which that made, or raise `RefusedError`.

        An expectation is checked before the duplicate window.
        """
        self._expire()
        if message.expect_stream_sequence not in (None, self.last_sequence):
            raise _wrong_last(self.last_sequence)
        last = self.last_on(message.subject)
        if message.expect_subject_sequence not in (None, last):
            raise _wrong_last(last)
        known = self._known.get(message.message_id or "")
        if known is not None:
            return Stored(sequence=known, duplicate=True), []
        self._check_room([message])
        stored = self._append(message, stored_headers(message))
        return Stored(sequence=stored.sequence), [stored]

    def store_batch(
        self, messages: Sequence[Outgoing], batch_id: str
    ) -> tuple[Stored, list[Message]]:
        """Store all messages or raise `RefusedError` for the first that fails."""
        self._expire()
        if not self.spec.allow_atomic:
            raise RefusedError(ATOMIC_DISABLED, "atomic publish is disabled")
        self._check_batch(messages)
        self._check_room(messages)
        size = len(messages)
        appended = [
            self._append(
                message, stored_headers(message, batch=(batch_id, place, place == size))
            )
            for place, message in enumerate(messages, 1)
        ]
        return Stored(sequence=self.last_sequence), appended

    def _check_batch(self, messages: Sequence[Outgoing]) -> None:
        """Check in the server's order: message by message, known ids first."""
        subjects: set[str] = set()
        ids: set[str] = set()
        for place, message in enumerate(messages):
            if message.message_id is not None:
                if message.message_id in self._known or message.message_id in ids:
                    raise RefusedError(
                        DUPLICATE_IN_BATCH,
                        "atomic publish contains duplicate message id",
                    )
                ids.add(message.message_id)
            if message.expect_stream_sequence not in (None, self.last_sequence + place):
                raise _wrong_last(self.last_sequence + place)
            if message.expect_stream_sequence is not None and place:
                raise RefusedError(WRONG_LAST_SEQUENCE_IN_BATCH, "wrong last sequence")
            if message.expect_subject_sequence is not None:
                if message.subject in subjects:
                    raise RefusedError(
                        WRONG_LAST_SEQUENCE_IN_BATCH, "wrong last sequence"
                    )
                last = self.last_on(message.subject)
                if message.expect_subject_sequence != last:
                    raise _wrong_last(last)
            subjects.add(message.subject)

    def _check_room(self, messages: Sequence[Outgoing]) -> None:
        if not self.spec.discard_new or self.spec.max_bytes <= 0:
            return
        needed = sum(_size(m.subject, m.payload, stored_headers(m)) for m in messages)
        if self._bytes + needed > self.spec.max_bytes:
            raise RefusedError(
                STORE_FAILED, "maximum bytes exceeded", code=_UNAVAILABLE
            )

    def _append(self, message: Outgoing, headers: Mapping[str, str] | None) -> Message:
        self.last_sequence += 1
        stored = Message(
            subject=message.subject,
            payload=message.payload,
            sequence=self.last_sequence,
            stored_at=self._clock(),
            headers=headers,
        )
        if not self._messages:
            self._first = stored.sequence
        self._messages[stored.sequence] = stored
        self._by_subject.setdefault(stored.subject, deque()).append(stored.sequence)
        self._bytes += _size(stored.subject, stored.payload, headers)
        if message.message_id is not None:
            known = _Known(message.message_id, stored.sequence, stored.stored_at)
            self._window.append(known)
            self._known[known.message_id] = known.sequence
        self._make_room(stored.subject)
        return stored

    # ---- removing --------------------------------------------------------------
    def purge(self, *, up_to: int | None, pattern: str | None) -> None:
        """Remove what is below ``up_to`` and under ``pattern``."""
        self._expire()
        doomed = [
            message.sequence
            for message in self._messages.values()
            if (up_to is None or message.sequence < up_to)
            and (not pattern or matches(pattern, message.subject))
        ]
        for sequence in doomed:
            self._remove(sequence)
        if up_to is not None and pattern is None and up_to > self.last_sequence + 1:
            self.last_sequence, self._first = up_to - 1, up_to  # so does the server

    def _make_room(self, subject: str) -> None:
        limit = self.spec.max_messages_per_subject
        while 0 < limit < len(self._by_subject.get(subject, ())):
            self._remove(self._by_subject[subject][0])
        while 0 < self.spec.max_bytes < self._bytes:
            self._remove(self._first)

    def _expire(self) -> None:
        now = self._clock()
        while self._window and now - self._window[0].at >= self._forget_after:
            forgotten = self._window.popleft()
            self._known.pop(forgotten.message_id, None)
        if not self._keep_for:
            return
        messages, age = self._messages, self._keep_for
        while messages and now - messages[self._first].stored_at >= age:
            self._remove(self._first)

    def _remove(self, sequence: int) -> None:
        message = self._messages.pop(sequence)
        self._bytes -= _size(message.subject, message.payload, message.headers)
        sequences = self._by_subject[message.subject]
        sequences.remove(sequence)
        if not sequences:
            del self._by_subject[message.subject]
        if sequence == self._first:
            self._first = next(iter(self._messages), self.last_sequence + 1)


def _wrong_last(last: int) -> RefusedError:
    return RefusedError(WRONG_LAST_SEQUENCE, f"wrong last sequence: {last}")


def _size(subject: str, payload: bytes, headers: Mapping[str, str] | None) -> int:
    """Bytes of a message in nats-server's file store."""
    size = _RECORD_BYTES + len(subject) + len(payload)
    if headers:
        lines = sum(len(key) + len(value) + 4 for key, value in headers.items())
        size += _HEADER_BYTES + 12 + lines
    return size
