"""Deltas: the view's changes, numbered. What the view stream carries.

The k-th delta of an epoch is the same bytes whoever computes it, so the stream can be
checked, resumed and taken over by number. An epoch is one numbering; it starts with
an `EpochStarted`, and its delta of ordinal k stands at the stream's sequence
``base + k``, where the start stands at ``base``.
"""

from __future__ import annotations

from typing import Final, TypeAlias, assert_never

import msgspec

from events import Revision, read_or_none

from .anomaly import AnomalyCounts
from .applying import apply
from .entities import (
    FleetChange,
    Gone,
    KnownGone,
    KnownPut,
    Put,
    SetGone,
    SetPut,
    SettingGone,
    SettingPut,
    WorkerGone,
    WorkerPut,
)
from .errors import DivergenceError
from .fleet import FleetState


class Epoch(msgspec.Struct, frozen=True, order=True):
    """One numbering of deltas. Later epochs of one log are greater.

    Equal epochs number the same deltas alike, whoever computes them: log, fold and
    the revision of the start decide all of them.
    """

    count: int
    fold_version: int
    log_id: str
    revision: Revision
    """The first delta is that of a later record."""

    def __str__(self) -> str:
        """The epoch as routers, documents and people compare it."""
        return f"{self.log_id}.{self.fold_version}.{self.count}@{self.revision}"


def parse_epoch(text: str) -> Epoch | None:
    """The epoch that is written as ``text``; None: none is written so."""
    rest, _, revision = text.rpartition("@")
    rest, _, count = rest.rpartition(".")
    log_id, _, fold_version = rest.rpartition(".")
    if not all(n.isascii() and n.isdecimal() for n in (fold_version, count, revision)):
        return None
    epoch = Epoch(int(count), int(fold_version), log_id, int(revision))
    return epoch if str(epoch) == text else None


class Delta(
    msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="delta.v1"
):
    """The change of the view that one record makes."""

    epoch: Epoch
    ordinal: int
    """From 1 in each epoch, without gaps."""
    revision: Revision
    fingerprint: str
    """Identifies the record at ``revision``."""
    previous_revision: Revision
    """The revision of the delta before, or of the epoch's start."""
    changes: tuple[FleetChange, ...]
    anomalies: AnomalyCounts
    digest: str
    """Of the fleet after the changes."""


class EpochStarted(
    msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="epoch_started.v1"
):
    """A new numbering begins; ordinal 0. Routers resync from it."""

    epoch: Epoch
    fingerprint: str
    """Identifies the record at ``revision``; empty at the beginning of the log."""
    anomalies: AnomalyCounts
    digest: str
    reason: str

    @property
    def revision(self) -> Revision:
        """The revision that the fleet stands at when the epoch starts."""
        return self.epoch.revision


ViewMessage: TypeAlias = Delta | EpochStarted

_ENCODER: Final = msgspec.json.Encoder(order="deterministic")
_DECODER: Final = msgspec.json.Decoder(ViewMessage)


def encode_view(message: ViewMessage) -> bytes:
    """The message as JSON; equal messages are equal bytes."""
    return _ENCODER.encode(message)


def decode_view(payload: bytes) -> ViewMessage | None:
    """The message that ``payload`` is; None: it is foreign to the view stream."""
    return read_or_none(_DECODER, payload)


def apply_delta(state: FleetState, delta: Delta) -> FleetState:
    """The fleet after ``delta``. Raises `DivergenceError` if its digest differs."""
    after = apply(state, delta.changes)
    if after.digest != delta.digest:
        where = f"epoch {delta.epoch} ordinal {delta.ordinal}"
        raise DivergenceError(where=where, expected=delta.digest, got=after.digest)
    return after


def diff(before: FleetState, after: FleetState) -> tuple[FleetChange, ...]:
    """The changes that lead from one fleet to the other.

    Removals first, then changes, then additions, each in the order of their keys;
    nothing for what is the same.
    """
    old = {entity_key(put): put for put in before.entities()}
    new = {entity_key(put): put for put in after.entities()}
    gone = [gone_of(old[key]) for key in sorted(old) if key not in new]
    both = [new[key] for key in sorted(new) if key in old and old[key] != new[key]]
    added = [new[key] for key in sorted(new) if key not in old]
    return (*gone, *both, *added)


def entity_key(put: Put) -> tuple[str, ...]:
    """What an entity is found by; sorts entities of all kinds."""
    match put:
        case WorkerPut(worker):
            return ("worker", *worker.key)
        case SetPut(key):
            return ("set", *key.sort_key())
        case SettingPut(setting):
            return ("setting", *setting.key)
        case KnownPut(name):
            return ("known", name)
        case _:
            assert_never(put)


def gone_of(put: Put) -> Gone:
    """The change that removes the entity."""
    match put:
        case WorkerPut(worker):
            return WorkerGone(*worker.key)
        case SetPut(key):
            return SetGone(key)
        case SettingPut(setting):
            return SettingGone(setting.key)
        case KnownPut(name):
            return KnownGone(name)
        case _:
            assert_never(put)
