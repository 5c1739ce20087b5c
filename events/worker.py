"""What happens to workers. One subject per worker carries all its incarnations."""

from __future__ import annotations

import hashlib
from typing import Any, Final

import msgspec

from .event import Event
from .identity import (
    Checksum,
    Incarnation,
    ModelName,
    Namespace,
    Needs,
    Role,
    Status,
    Whole,
    WorkerId,
)

_CANONICAL: Final = msgspec.json.Encoder(order="deterministic")
KNOWN_MAX: Final = 1024
_KNOWN: Final[dict[bytes, Checksum]] = {}
"""Checksums worked out already: nothing but time depends on it."""


class ModelCard(msgspec.Struct, frozen=True, kw_only=True):
    """A model's serving configuration, as far as the fleet must agree on it."""

    kv_block_size: Whole | None = None
    context_length: Whole | None = None
    tokenizer_digest: str | None = None
    chat_template_digest: str | None = None
    quantization: str | None = None
    tool_call_parser: str | None = None
    reasoning_parser: str | None = None
    max_loras: Whole | None = None
    max_lora_rank: Whole | None = None
    extra: dict[str, str] = {}
    source: str | None = None
    """A path or URL. It does not change answers, so no checksum covers it."""

    @property
    def checksum(self) -> Checksum:
        """BLAKE2b-128 over the fields that change answers; unset ones do not count."""
        return _digest(self._answering())

    def _answering(self) -> dict[str, Any]:
        fields = msgspec.structs.asdict(self)
        return {
            k: v for k, v in fields.items() if k != "source" and v not in (None, {})
        }


class Capacity(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """How much a worker can take. Information for routers; not in any checksum."""

    total_kv_blocks: Whole | None = None
    max_num_seqs: Whole | None = None
    max_num_batched_tokens: Whole | None = None
    data_parallel_size: Whole | None = None


class WorkerEvent(Event, frozen=True, kw_only=True):
    """An event of one life of one worker."""

    namespace: Namespace
    worker_id: WorkerId
    incarnation: Incarnation


class WorkerRegistered(
    WorkerEvent, frozen=True, kw_only=True, tag="worker_registered.v1"
):
    """A life of a worker began, or said again all that it is."""

    component: str
    endpoint: str
    role: Role
    model: ModelName
    address: str
    lease_ttl_s: float
    status: Status
    needs: Needs = ()
    card: ModelCard = ModelCard()
    capabilities: tuple[str, ...] = ()
    adapters: tuple[str, ...] = ()
    capacity: Capacity = Capacity()
    labels: dict[str, str] = {}

    @property
    def checksum(self) -> Checksum:
        """Of card and needs: what all workers of a WorkerSet must have in common."""
        return serving_checksum(self.card, self.needs)


class WorkerStatusChanged(
    WorkerEvent, frozen=True, kw_only=True, tag="worker_status_changed.v1"
):
    """A worker said what it is doing now."""

    status: Status
    reason: str = ""


class WorkerUpdated(WorkerEvent, frozen=True, kw_only=True, tag="worker_updated.v1"):
    """A worker changed what it said of itself; None leaves a field as it was."""

    address: str | None = None
    capacity: Capacity | None = None
    labels: dict[str, str] | None = None


class AdapterLoaded(WorkerEvent, frozen=True, kw_only=True, tag="adapter_loaded.v1"):
    """A worker serves one more LoRA adapter; its name is routable as a model."""

    adapter: ModelName


class AdapterUnloaded(
    WorkerEvent, frozen=True, kw_only=True, tag="adapter_unloaded.v1"
):
    """A worker serves one LoRA adapter less."""

    adapter: ModelName


class WorkerDeregistered(
    WorkerEvent, frozen=True, kw_only=True, tag="worker_deregistered.v1"
):
    """A worker left by itself."""

    reason: str = ""


class WorkerExpired(WorkerEvent, frozen=True, kw_only=True, tag="worker_expired.v1"):
    """The leader saw no beat for longer than the lease: the life is over."""

    silent_for_s: float
    observed_by: str


def serving_checksum(card: ModelCard, needs: Needs) -> Checksum:
    """The checksum of a registration: its card's answering fields and its needs.

    The order in which alternatives and their roles are written does not matter.
    Whole fleets share a few, so the latest are remembered by what they are made of.
    """
    written = _CANONICAL.encode((card, needs))
    known = _KNOWN.get(written)
    if known is None:
        if len(_KNOWN) >= KNOWN_MAX:
            _KNOWN.clear()
        known = _KNOWN[written] = _serving_checksum(card, needs)
    return known


def _serving_checksum(card: ModelCard, needs: Needs) -> Checksum:
    alternatives = sorted({tuple(sorted({r.value for r in roles})) for roles in needs})
    return _digest({"card": card._answering(), "needs": alternatives})  # noqa: SLF001 - same room, one canonical form


def _digest(document: dict[str, Any]) -> Checksum:
    return hashlib.blake2b(_CANONICAL.encode(document), digest_size=16).hexdigest()
