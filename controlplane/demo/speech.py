"""How vLLM's OpenAI-compatible server speaks: documents of answers and of streams.

Field names, their order and their defaults are vLLM's. What is said is made up.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any, Final, TypeAlias

import msgspec

from events import ModelName

Document: TypeAlias = dict[str, Any]

CHAT: Final = "/v1/chat/completions"
TEXT: Final = "/v1/completions"
DONE: Final = b"data: [DONE]\n\n"
PROMPT_TOKENS: Final = 7
_TYPES: Final = {
    HTTPStatus.NOT_FOUND: "NotFoundError",
    HTTPStatus.METHOD_NOT_ALLOWED: "Method Not Allowed",
}


class StreamOptions(msgspec.Struct, frozen=True):
    """How a stream ends."""

    include_usage: bool = False


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """A request for a completion, as far as it is looked at."""

    model: ModelName
    stream: bool = False
    stream_options: StreamOptions | None = None


class Speech:
    """One answer: said whole, or as a stream of events."""

    def __init__(self, path: str, asked: Asked, number: int, words: list[str]) -> None:
        """Answer what was ``asked`` at ``path`` (`CHAT` or `TEXT`) with ``words``."""
        self._chat, self._asked, self._words = path == CHAT, asked, words
        self._id = f"{'chatcmpl' if self._chat else 'cmpl'}-{number:032x}"
        self._created = int(time.time())

    def whole(self) -> Document:
        """The answer in one piece."""
        said = "".join(self._words)
        choice: Document = {"index": 0}
        if self._chat:
            choice["message"] = {
                "role": "assistant",
                "content": said,
                "refusal": None,
                "tool_calls": [],
                "reasoning": None,
            }
        else:
            choice["text"] = said
        choice |= {"logprobs": None, "finish_reason": "stop", "stop_reason": None}
        kind = "chat.completion" if self._chat else "text_completion"
        return self._document(kind, [choice], usage=self._usage())

    def events(self) -> Iterator[bytes]:
        """The answer as server-sent events, ended by `DONE`."""
        kind = "chat.completion.chunk" if self._chat else "text_completion"
        if self._chat:  # the role comes first, before any word
            first = {"role": "assistant", "content": ""}
            yield self._event(kind, [{"index": 0, "delta": first, **_UNFINISHED}])
        for place, word in enumerate(self._words, start=1):
            last = place == len(self._words)
            end = _FINISHED if last else _UNFINISHED
            said = {"delta": {"content": word}} if self._chat else {"text": word}
            yield self._event(kind, [{"index": 0, **said, **end}])
        options = self._asked.stream_options
        if options is not None and options.include_usage:
            yield self._event(kind, [], usage=self._usage())
        yield DONE

    def _usage(self) -> Document:
        spoken = len(self._words)
        return {
            "prompt_tokens": PROMPT_TOKENS,
            "total_tokens": PROMPT_TOKENS + spoken,
            "completion_tokens": spoken,
        }

    def _document(self, kind: str, choices: list[Document], **more: Any) -> Document:  # noqa: ANN401 - any JSON
        return {
            "id": self._id,
            "object": kind,
            "created": self._created,
            "model": self._asked.model,
            "choices": choices,
            **more,
        }

    def _event(self, kind: str, choices: list[Document], **more: Any) -> bytes:  # noqa: ANN401 - any JSON
        document = self._document(kind, choices, **more)
        return b"data: " + msgspec.json.encode(document) + b"\n\n"


_UNFINISHED: Final[Document] = {"logprobs": None, "finish_reason": None}
_FINISHED: Final[Document] = {
    "logprobs": None,
    "finish_reason": "stop",
    "stop_reason": None,
}


def models(*names: ModelName) -> Document:
    """The list of what is served."""
    cards = [
        {"id": name, "object": "model", "created": int(time.time()), "owned_by": "vllm"}
        for name in names
    ]
    return {"object": "list", "data": cards}


def refusal(status: HTTPStatus, message: str, param: str | None = None) -> Document:
    """Why there is no answer."""
    kind = _TYPES.get(status, "BadRequestError")
    error = {"message": message, "type": kind, "param": param, "code": int(status)}
    return {"error": error}
