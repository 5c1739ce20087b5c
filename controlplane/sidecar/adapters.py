"""LoRA adapters that an engine loads and unloads while it runs.

vLLM and other servers of OpenAI's API list them under ``/v1/models``, as models that
have a ``parent``.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import msgspec

from controlplane.logs import get_logger
from controlplane.worker import WorkerHandle
from events import UNREADABLE, ControlPlaneError, InvalidIdentityError

from .asking import get

_log = get_logger("sidecar")


class _Listed(msgspec.Struct):
    id: str
    parent: str | None = None


class _Models(msgspec.Struct):
    data: list[_Listed]


_DECODER: Final = msgspec.json.Decoder(_Models)


def listed_adapters(page: bytes) -> frozenset[str]:
    """The names of the adapters on a page of models. Raises ValueError for another."""
    try:
        models = _DECODER.decode(page)
    except UNREADABLE as error:
        message = f"no list of models: {error}"
        raise ValueError(message) from error
    return frozenset(model.id for model in models.data if model.parent)


class AdapterWatch:
    """Has a worker say which adapters its engine lists."""

    def __init__(
        self, worker: WorkerHandle, url: str, *, declared: Collection[str]
    ) -> None:
        """Look at ``url``. Those ``declared`` at the start are said in any case."""
        self._worker, self._url = worker, url
        self._declared: Final = frozenset(declared)
        self._known: frozenset[str] = frozenset()

    async def look(self, timeout_s: float) -> None:
        """Say what changed since the last look.

        Raises OSError or ValueError when there is no list; then nothing changed.
        """
        answer = await get(self._url, timeout_s)
        if not answer.good:
            raise ConnectionError(str(answer))
        listed = listed_adapters(answer.body) - self._declared
        known, self._known = self._known, listed
        for name in sorted(known - listed):
            await self._say(name, loaded=False)
        for name in sorted(listed - known):
            await self._say(name, loaded=True)

    async def _say(self, name: str, *, loaded: bool) -> None:
        try:
            if loaded:
                await self._worker.load_adapter(name)
            else:
                await self._worker.unload_adapter(name)
        except InvalidIdentityError as error:
            _log.warning("adapter not announced", reason=str(error))
        except ControlPlaneError as error:
            # It is wanted now, and said as soon as the log is back.
            _log.warning("adapter not said yet", adapter=name, reason=str(error))
        else:
            _log.info("adapter said", adapter=name, loaded=loaded)
