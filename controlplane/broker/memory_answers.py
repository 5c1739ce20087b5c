"""What a `MemoryServer` answers to one client: at once, its errors translated.

Synchronous: who asks decides how long the question and the answer are on their way.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from controlplane.broker import Message, Outgoing, Stored, StreamSpec, StreamState
from controlplane.broker.memory_server import MemoryServer
from controlplane.broker.memory_stream import MemoryStream, RefusedError
from controlplane.broker.streams import config_differences, stream_config
from controlplane.broker.subjects import matches
from controlplane.broker.translate import append_error, denied, named
from controlplane.errors import (
    HistoryForkedError,
    LogUnavailableError,
    SettingsError,
    StreamMissingError,
)

_MAX_BATCH: Final = 1000


class MemoryAnswers:
    """The answers to a client at ``url`` that may not use ``denied`` subjects."""

    def __init__(
        self, server: MemoryServer, url: str, denied_subjects: Sequence[str] = ()
    ) -> None:
        self.url: Final = url
        self._server: Final = server
        self._denied: Final = tuple(denied_subjects)

    # ---- subjects --------------------------------------------------------------
    def allows(self, subject: str) -> bool:
        """Whether the client may use ``subject``."""
        return not any(matches(pattern, subject) for pattern in self._denied)

    def check(self, subject: str, *, verb: str) -> None:
        """Raise `SettingsError` unless the client may use ``subject``."""
        if not self.allows(subject):
            raise denied(subject, verb=verb)

    # ---- streams ---------------------------------------------------------------
    def create(self, spec: StreamSpec) -> None:
        """See `Broker.create_stream`."""
        self._server.create(spec)

    def differences(self, spec: StreamSpec) -> tuple[str, ...] | None:
        """See `Broker.stream_differences`."""
        held = self._server.streams.get(spec.name)
        if held is None:
            return None
        return config_differences(spec, stream_config(held.spec))

    def delete(self, name: str) -> None:
        """See `Broker.delete_stream`."""
        self._server.delete(name)

    def purge(self, name: str, up_to: int | None, subject: str | None) -> None:
        """See `Broker.purge_stream`."""
        self.stream(name, f"purging {name}").purge(up_to=up_to, pattern=subject)

    def state(self, name: str) -> StreamState:
        """See `Broker.state`."""
        return self.stream(name, f"asking for the state of {name}").state()

    def count(self, name: str, subject: str) -> int:
        """See `Broker.count`."""
        doing = f"counting what {name} has on {subject}"
        return self.stream(name, doing).count(subject)

    # ---- messages --------------------------------------------------------------
    def store(self, name: str, messages: Sequence[Outgoing]) -> Stored:
        """See `Broker.store_batch`."""
        for message in messages:
            self.check(message.subject, verb="publish to")
        owner = self._server.owner(messages[-1].subject)
        if owner is None:
            doing, subject = f"appending to {name}", messages[-1].subject
            raise self.unavailable(doing, f"no stream listens on {subject}")
        try:
            stored = self._server.append(owner, messages)
        except RefusedError as refused:
            raise append_error(
                refused.error, stream=owner.spec.name, messages=messages, url=self.url
            ) from refused
        if owner.spec.name != name:
            raise SettingsError(
                field="stream",
                value=owner.spec.name,
                rule=f"{named(messages)} must belong to {name}",
            )
        return stored

    def get(self, name: str, sequence: int) -> Message | None:
        """See `Broker.get`."""
        return self.stream(name, f"reading {name}").get(sequence)

    def last(self, name: str, subject: str) -> Message | None:
        """See `Broker.last`."""
        return self.stream(name, f"reading {name}").last(subject)

    def read(
        self,
        name: str,
        after: int,
        until: int | None,
        subject: str | None,
        *,
        last_per_subject: bool,
    ) -> list[Message]:
        """All that `Broker.read` yields."""
        held = self.stream(name, f"reading {name}")
        end = held.last_sequence if until is None else min(until, held.last_sequence)
        find = held.lasts if last_per_subject else held.between
        return find(after, end, subject)

    # ---- what may be missing ---------------------------------------------------
    def stream(self, name: str, doing: str) -> MemoryStream:
        """The stream. Raises `StreamMissingError`."""
        stream = self._server.streams.get(name)
        if stream is None:
            raise StreamMissingError(
                url=self.url, doing=doing, reason="stream not found"
            )
        return stream

    def unbroken(self, name: str, seen: int) -> MemoryStream:
        """The stream, if it still holds what a follower has ``seen``.

        Raises `HistoryForkedError`.
        """
        held = self._server.streams.get(name)
        if held is None:
            raise HistoryForkedError(reason=f"stream {name} is missing", revision=seen)
        if held.last_sequence < seen:
            reason = f"it ends at {held.last_sequence} now"
            raise HistoryForkedError(reason=reason, revision=seen)
        return held

    def unavailable(self, doing: str, reason: str) -> LogUnavailableError:
        """The error of a call that got no answer."""
        return LogUnavailableError(url=self.url, doing=doing, reason=reason)


def check_batch_size(messages: Sequence[Outgoing]) -> None:
    """Raise `SettingsError` for what no batch can be."""
    if not 0 < len(messages) <= _MAX_BATCH:
        raise SettingsError(
            field="batch", value=len(messages), rule=f"1 to {_MAX_BATCH} messages"
        )
