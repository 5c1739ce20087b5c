"""The view on the wire: numbered deltas, heads, snapshots. Written by the leader."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from hashlib import blake2b
from typing import Final

import msgspec

from events import Cell, Revision, read_or_none
from projections import (
    AnomalyCounts,
    Epoch,
    Position,
    Snapshot,
    SnapshotUnusableError,
    ViewMessage,
    decode_snapshot,
    decode_view,
    encode_snapshot,
)

from .broker import Broker, CoreMessage, Outgoing, Stored, StreamState, Subscription
from .identifiers import new_uuid7
from .topology import Names

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

CHUNK_BYTES: Final = 512 * 1024
CHUNKS_AT_ONCE: Final = 8
ZSTD_LEVEL: Final = 3
UNPACKED_BYTES_MAX: Final = 512 << 20
"""Far beyond any fleet; a few forged kilobytes could unpack to much more."""
SEQUENCE_DIGITS_MAX: Final = 20
SEQUENCE_HEADER: Final = "Nats-Sequence"
"""Where a republished message says at which sequence it is stored."""


class ViewEntry(msgspec.Struct, frozen=True):
    """One message of the view stream, at ``view_seq``; None: a foreign one."""

    view_seq: int
    message: ViewMessage | None
    payload: bytes
    stored_at: datetime | None = None
    """The broker's time, where it is known."""


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """The leader's word on where the view stands."""

    log_id: str
    epoch: Epoch
    ordinal: int
    revision: Revision
    digest: str
    anomalies: AnomalyCounts
    unpublished_age_s: float
    """How long the oldest delta has been waiting for the view stream; 0: none is."""
    log_fill: float
    leader: str
    fingerprint: str = ""
    """Identifies the record at ``revision``; empty: not said."""


class SnapshotPointer(msgspec.Struct, frozen=True, kw_only=True):
    """Names the latest snapshot and where it stands."""

    snapshot_id: str
    position: Position
    revision: Revision
    chunks: int
    bytes: int
    checksum: str
    taken_at: datetime
    fold_version: int


_HEAD: Final = msgspec.json.Decoder(Head)
_POINTER: Final = msgspec.json.Decoder(SnapshotPointer)


class ViewFeed:
    """The view stream of one cell and what belongs to it.

    Every call raises `LogUnavailableError` when the broker does not answer in time.
    """

    def __init__(
        self, broker: Broker, cell: Cell, *, chunk_bytes: int = CHUNK_BYTES
    ) -> None:
        """Read and write the view of ``cell`` through ``broker``.

        Snapshots are written in pieces of ``chunk_bytes``, and read in any.
        """
        self._broker, self._chunk_bytes = broker, chunk_bytes
        self.names = Names(cell)

    # ---- the stream ------------------------------------------------------------
    async def publish(self, payloads: Sequence[bytes], *, after: int) -> Stored:
        """Store view messages so that the first one gets sequence ``after + 1``.

        Raises as `Broker.store_batch`. One call at a time: only then is ``after`` a
        fence that no two leaders can pass.
        """
        messages = [
            Outgoing(
                subject=self.names.view,
                payload=payload,
                expect_stream_sequence=None if index else after,
            )
            for index, payload in enumerate(payloads)
        ]
        if len(messages) == 1:
            return await self._broker.store(self.names.view_stream, messages[0])
        return await self._broker.store_batch(self.names.view_stream, messages)

    async def state(self) -> StreamState:
        """Where the view stream stands now, by its leader."""
        return await self._broker.state(self.names.view_stream)

    async def at(self, view_seq: int) -> ViewEntry | None:
        """The view message at ``view_seq``, from the stream's leader."""
        message = await self._broker.get(self.names.view_stream, view_seq)
        if message is None:
            return None
        found = entry(message.sequence, message.payload)
        return msgspec.structs.replace(found, stored_at=message.stored_at)

    async def read(
        self, after: int, until: int | None = None
    ) -> AsyncIterator[list[ViewEntry]]:
        """Yield the view messages in (after, until], in order, in batches; end."""
        stream = self.names.view_stream
        async for batch in self._broker.read(stream, after=after, until=until):
            yield [entry(message.sequence, message.payload) for message in batch]

    async def follow(self, after: int) -> AsyncIterator[list[ViewEntry]]:
        """Yield the view messages after ``after``, for ever; see `Broker.follow`."""
        stream = self.names.view_stream
        async for batch in self._broker.follow(stream, after=after):
            yield [entry(message.sequence, message.payload) for message in batch]

    async def subscribe_live(self, *, limit: int = 65_536) -> Subscription:
        """Receive stored view messages as they are republished: fast, not certain.

        At most ``limit`` wait for the reader; then the oldest are dropped.
        """
        return await self._broker.subscribe(self.names.live, limit=limit)

    # ---- heads -----------------------------------------------------------------
    async def publish_head(self, head: Head) -> None:
        """Say where the view stands, to whoever listens now."""
        await self._broker.publish(self.names.head, msgspec.json.encode(head))

    async def subscribe_heads(self) -> Subscription:
        """Receive heads."""
        return await self._broker.subscribe(self.names.head)

    async def last_head(self) -> tuple[Head, float] | None:
        """The last head and its age in seconds, if the leader spoke lately."""
        stream = self.names.head_stream
        message, state = await asyncio.gather(
            self._broker.last(stream, self.names.head), self._broker.state(stream)
        )
        head = None if message is None else decode_head(message.payload)
        if message is None or head is None:
            return None
        return head, max(0.0, (state.now - message.stored_at).total_seconds())

    # ---- snapshots -------------------------------------------------------------
    async def write_snapshot(self, snapshot: Snapshot, now: datetime) -> bool:
        """Store a snapshot, then point to it, only ever forward; whether it did.

        One that cannot be read any more is replaced all the same. Of older ones the
        one before is kept.
        """
        before, expected = await self._pointer()
        if (
            before is not None
            and not _is_forward(before, snapshot)
            and await self._can_be_read(before)
        ):
            return False
        packed, checksum = pack_snapshot(snapshot)
        snapshot_id = new_uuid7()
        pieces = range(0, len(packed), self._chunk_bytes)
        for number, start in enumerate(pieces):
            subject = self.names.snapshot_chunk(snapshot_id, number)
            piece = packed[start : start + self._chunk_bytes]
            await self._store_snapshot(Outgoing(subject=subject, payload=piece))
        pointer = SnapshotPointer(
            snapshot_id=snapshot_id,
            position=snapshot.position,
            revision=snapshot.revision,
            chunks=len(pieces),
            bytes=len(packed),
            checksum=checksum,
            taken_at=now,
            fold_version=snapshot.fold_version,
        )
        pointed = await self._store_snapshot(
            Outgoing(
                subject=self.names.snapshot_pointer,
                payload=msgspec.json.encode(pointer),
                expect_subject_sequence=expected,
            )
        )
        kept = {snapshot_id} | ({before.snapshot_id} if before else set())
        await self._drop_snapshots(kept, before=pointed.sequence)
        return True

    async def snapshot_pointer(self) -> SnapshotPointer | None:
        """Where the latest snapshot stands; None: there is none that can be read."""
        return (await self._pointer())[0]

    async def read_snapshot(self, pointer: SnapshotPointer) -> Snapshot:
        """The snapshot that ``pointer`` names.

        Raises `SnapshotUnusableError` when it is incomplete or damaged.
        """
        return unpack_snapshot(await self._packed(pointer), pointer.checksum)

    async def read_unnamed(self, snapshot_id: str) -> Snapshot:
        """The snapshot with this id, which no pointer names any more: by its own seal.

        Raises `SnapshotUnusableError` when it is incomplete or damaged.
        """
        subject = self.names.snapshot_chunk(snapshot_id, "*")
        pieces: dict[int, bytes] = {}
        chunks = self._broker.read(
            self.names.snapshot_stream, subject=subject, last_per_subject=True
        )
        async for batch in chunks:
            for message in batch:
                number = message.subject.rpartition(".")[2]
                if number.isascii() and number.isdecimal():
                    pieces[int(number)] = message.payload
        packed = b"".join(pieces[number] for number in sorted(pieces))
        return unpack_snapshot(packed, _checksum(packed))

    async def snapshot_ids(self) -> list[str]:
        """The snapshots of which anything is there, those begun last first."""
        ids: set[str] = set()
        first = self._broker.read(
            self.names.snapshot_stream,
            subject=self.names.snapshot_chunk("*", 0),
            last_per_subject=True,
        )
        async for batch in first:
            for message in batch:
                match self.names.relative(message.subject).split("."):
                    case ["snapshot", snapshot_id, _]:
                        ids.add(snapshot_id)
        return sorted(ids, reverse=True)

    async def standing_snapshot(self) -> Position | None:
        """Where the latest snapshot stands, if every byte of it is there."""
        pointer = await self.snapshot_pointer()
        if pointer is None:
            return None
        try:
            packed = await self._packed(pointer)
        except SnapshotUnusableError:
            return None
        return pointer.position if _checksum(packed) == pointer.checksum else None

    async def _packed(self, pointer: SnapshotPointer) -> bytes:
        pieces: list[bytes] = []
        for start in range(0, pointer.chunks, CHUNKS_AT_ONCE):
            numbers = range(start, min(start + CHUNKS_AT_ONCE, pointer.chunks))
            pieces += await asyncio.gather(*(self._chunk(pointer, n) for n in numbers))
        return b"".join(pieces)

    async def _chunk(self, pointer: SnapshotPointer, number: int) -> bytes:
        subject = self.names.snapshot_chunk(pointer.snapshot_id, number)
        message = await self._broker.last(self.names.snapshot_stream, subject)
        if message is None:
            reason = f"chunk {number} of {pointer.chunks} is missing"
            raise SnapshotUnusableError(reason=reason)
        return message.payload

    async def _can_be_read(self, pointer: SnapshotPointer) -> bool:
        try:
            await self.read_snapshot(pointer)
        except SnapshotUnusableError:
            return False
        return True

    async def _pointer(self) -> tuple[SnapshotPointer | None, int]:
        stream, subject = self.names.snapshot_stream, self.names.snapshot_pointer
        message = await self._broker.last(stream, subject)
        if message is None:
            return None, 0
        return read_or_none(_POINTER, message.payload), message.sequence

    async def _store_snapshot(self, message: Outgoing) -> Stored:
        return await self._broker.store(self.names.snapshot_stream, message)

    async def _drop_snapshots(self, kept: set[str], *, before: int) -> None:
        """Remove what was written ``before`` that sequence, but for what is ``kept``.

        Whoever was stopped meanwhile knows nothing of what others wrote since.
        """
        stream = self.names.snapshot_stream
        found = self._broker.read(stream, last_per_subject=True)
        ids: set[str] = set()
        async for batch in found:
            for message in batch:
                match self.names.relative(message.subject).split("."):
                    case ["snapshot", snapshot_id, _] if message.sequence < before:
                        ids.add(snapshot_id)
        for snapshot_id in sorted(ids - kept):
            subject = self.names.snapshot_chunk(snapshot_id, "*")
            await self._broker.purge_stream(stream, subject=subject)


def entry(view_seq: int, payload: bytes) -> ViewEntry:
    """The entry that a stored view message is."""
    return ViewEntry(view_seq, decode_view(payload), payload)


def live_entry(message: CoreMessage) -> ViewEntry | None:
    """The entry that a republished message is; None: it is no republished one."""
    text = (message.headers or {}).get(SEQUENCE_HEADER, "")
    if not (text.isascii() and text.isdecimal()) or len(text) > SEQUENCE_DIGITS_MAX:
        return None
    return entry(int(text), message.payload)


def decode_head(payload: bytes) -> Head | None:
    """The head in ``payload``; None: it is none."""
    return read_or_none(_HEAD, payload)


def pack_snapshot(snapshot: Snapshot) -> tuple[bytes, str]:
    """A snapshot's compressed bytes and their checksum."""
    packed = zstd.compress(encode_snapshot(snapshot), level=ZSTD_LEVEL)
    return packed, _checksum(packed)


def unpack_snapshot(packed: bytes, checksum: str) -> Snapshot:
    """The snapshot in compressed bytes. Raises `SnapshotUnusableError`."""
    if _checksum(packed) != checksum:
        raise SnapshotUnusableError(reason="its checksum differs")
    decompressor = zstd.ZstdDecompressor()
    try:
        payload = decompressor.decompress(packed, max_length=UNPACKED_BYTES_MAX + 1)
    except zstd.ZstdError as error:
        raise SnapshotUnusableError(reason=f"damaged: {error}") from error
    if len(payload) > UNPACKED_BYTES_MAX:
        reason = f"it unpacks to more than {UNPACKED_BYTES_MAX} bytes"
        raise SnapshotUnusableError(reason=reason)
    if not decompressor.eof or decompressor.unused_data:
        raise SnapshotUnusableError(reason="damaged: it is not one whole frame")
    return decode_snapshot(payload)


def _checksum(packed: bytes) -> str:
    return blake2b(packed, digest_size=16).hexdigest()


def _is_forward(before: SnapshotPointer, snapshot: Snapshot) -> bool:
    """Whether ``snapshot`` is newer; another log's or epoch's always counts as such."""
    old, new = before.position, snapshot.position
    if old.epoch.log_id != new.epoch.log_id:
        return True
    return (old.epoch, old.ordinal) < (new.epoch, new.ordinal) or (
        (old.epoch, old.ordinal) == (new.epoch, new.ordinal)
        and before.revision < snapshot.revision
    )
