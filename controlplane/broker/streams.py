"""Streams and single messages, through the JetStream API."""

from __future__ import annotations

from base64 import b64decode
from typing import Final

from controlplane.broker import Message, StreamSpec, StreamState
from controlplane.broker.api import Answer, JetStreamApi, error_of
from controlplane.broker.translate import (
    MESSAGE_NOT_FOUND,
    STREAM_EXISTS,
    STREAM_NOT_FOUND,
)
from controlplane.broker.wire import nanoseconds, parse_headers, parse_time
from controlplane.errors import TopologyDriftError

_SERVERS_OWN: Final = "_nats."
_ABSENT: Final[Answer] = {
    "description": "",
    "max_age": 0,
    "max_bytes": -1,
    "max_msgs_per_subject": -1,
    "deny_delete": False,
    "allow_atomic": False,
    "allow_direct": False,
    "allow_rollup_hdrs": False,
    "republish": None,
}
"""What a configuration means that does not mention a field."""


class Streams:
    """The stream verbs of `Broker`."""

    def __init__(self, api: JetStreamApi) -> None:
        self._api: Final = api

    async def create(self, spec: StreamSpec) -> None:
        """See `Broker.create_stream`."""
        body = {**stream_config(spec), "metadata": dict(spec.metadata)}
        doing = f"creating stream {spec.name}"
        answer = await self._api.ask(
            f"STREAM.CREATE.{spec.name}", body, doing=doing, tolerate=(STREAM_EXISTS,)
        )
        if error_of(answer) is None:
            return
        if differences := await self.differences(spec):
            raise TopologyDriftError(differences=differences)

    async def differences(self, spec: StreamSpec) -> tuple[str, ...] | None:
        """See `Broker.stream_differences`."""
        answer = await self._api.query(
            f"STREAM.INFO.{spec.name}",
            {},
            doing=f"comparing stream {spec.name}",
            tolerate=(STREAM_NOT_FOUND,),
        )
        if error_of(answer) is not None:
            return None
        return config_differences(spec, answer["config"])

    async def delete(self, name: str) -> None:
        """See `Broker.delete_stream`."""
        await self._api.ask(
            f"STREAM.DELETE.{name}",
            {},
            doing=f"deleting stream {name}",
            tolerate=(STREAM_NOT_FOUND,),
        )

    async def purge(self, name: str, *, up_to: int | None, subject: str | None) -> None:
        """See `Broker.purge_stream`."""
        body: Answer = {}
        if up_to is not None:
            body["seq"] = up_to
        if subject is not None:
            body["filter"] = subject
        await self._api.ask(f"STREAM.PURGE.{name}", body, doing=f"purging {name}")

    async def state(self, name: str) -> StreamState:
        """See `Broker.state`."""
        answer = await self._api.query(
            f"STREAM.INFO.{name}", {}, doing=f"asking for the state of {name}"
        )
        return stream_state(answer)

    async def count(self, name: str, subject: str) -> int:
        """See `Broker.count`."""
        answer = await self._api.query(
            f"STREAM.INFO.{name}",
            {"subjects_filter": subject},
            doing=f"counting what {name} has on {subject}",
        )
        found: dict[str, int] = answer["state"].get("subjects") or {}
        return sum(found.values())

    async def get(self, name: str, sequence: int) -> Message | None:
        """See `Broker.get`."""
        return await self._message(name, {"seq": sequence}) if sequence > 0 else None

    async def last(self, name: str, subject: str) -> Message | None:
        """See `Broker.last`."""
        return await self._message(name, {"last_by_subj": subject})

    async def _message(self, name: str, body: Answer) -> Message | None:
        answer = await self._api.query(
            f"STREAM.MSG.GET.{name}",
            body,
            doing=f"reading a message of {name}",
            tolerate=(MESSAGE_NOT_FOUND,),
        )
        found = answer.get("message")
        if found is None:
            return None
        return Message(
            subject=found["subject"],
            payload=b64decode(found.get("data") or ""),
            sequence=found["seq"],
            stored_at=parse_time(found["time"]),
            headers=parse_headers(b64decode(found.get("hdrs") or "")),
        )


def stream_state(answer: Answer) -> StreamState:
    """Read ``STREAM.INFO``, which says that an empty stream begins at 0."""
    config, state = answer["config"], answer["state"]
    metadata = config.get("metadata") or {}
    empty = state["messages"] == 0
    return StreamState(
        first_sequence=state["last_seq"] + 1 if empty else state["first_seq"],
        last_sequence=state["last_seq"],
        messages=state["messages"],
        bytes=state["bytes"],
        max_bytes=config.get("max_bytes", -1),
        metadata={k: v for k, v in metadata.items() if not k.startswith(_SERVERS_OWN)},
        now=parse_time(answer["ts"]),
        replicas=config.get("num_replicas", 1),
        subjects=state.get("num_subjects", 0),
    )


def stream_config(spec: StreamSpec) -> Answer:
    """Say a spec in the API's words, without the metadata."""
    window_s = spec.duplicate_window_s
    if spec.max_age_s > 0:  # the server refuses a window longer than the age
        window_s = min(window_s, spec.max_age_s)
    republish = None
    if spec.republish is not None:
        republish = {"src": spec.republish[0], "dest": spec.republish[1]}
    return {
        "name": spec.name,
        "subjects": list(spec.subjects),
        "description": spec.description,
        "retention": "limits",
        "storage": "file",
        "discard": "new" if spec.discard_new else "old",
        "max_age": nanoseconds(spec.max_age_s) if spec.max_age_s > 0 else 0,
        "max_bytes": spec.max_bytes if spec.max_bytes > 0 else -1,
        "max_msgs_per_subject": max(spec.max_messages_per_subject, 0) or -1,
        "duplicate_window": nanoseconds(window_s),
        "num_replicas": spec.replicas,
        "deny_delete": spec.deny_delete,
        "allow_atomic": spec.allow_atomic,
        "allow_direct": spec.allow_direct,
        "allow_rollup_hdrs": spec.allow_rollup,
        "republish": republish,
    }


def config_differences(spec: StreamSpec, found: Answer) -> tuple[str, ...]:
    """Name each difference between a spec and a stream's configuration."""
    return tuple(
        f"stream {spec.name}: {key} is {_said(found.get(key, _ABSENT.get(key)))}, "
        f"should be {_said(wanted)}"
        for key, wanted in stream_config(spec).items()
        if found.get(key, _ABSENT.get(key)) != wanted
    )


def _said(value: object) -> str:
    return "absent" if value is None else str(value)
