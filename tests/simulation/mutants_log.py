"""Deliberate faults at the log: outcomes, expectations, recognition, whose life."""

from __future__ import annotations

from typing import Any

import msgspec

from controlplane import recognition, viewfeed
from controlplane.broker import Outgoing
from controlplane.errors import AppendOutcomeUnknownError, LogUnavailableError
from controlplane.eventlog import Appended, EventLog
from controlplane.identifiers import new_uuid7
from controlplane.recognition import Recognition
from controlplane.viewfeed import CHUNK_BYTES, SnapshotPointer, ViewFeed, pack_snapshot
from controlplane.worker import core as worker_core
from controlplane.worker.core import WorkerCore
from controlplane.worker.standing import Superseded, Vacant
from events import PortClaimed
from projections import SnapshotUnusableError

from .mutating import Mutant, Patch, always

_with = msgspec.structs.replace


def _not_stored(error: Any) -> LogUnavailableError:
    return LogUnavailableError(url="sim://", doing="appending", reason=error.reason)


def _unknown_fails(append_once: Any) -> Any:
    async def appended(self: Any, pending: Any) -> Any:
        try:
            return await append_once(self, pending)
        except AppendOutcomeUnknownError as error:
            raise _not_stored(error) from error

    return appended


def _unknown_succeeds(append_once: Any) -> Any:
    async def appended(self: Any, pending: Any) -> Any:
        try:
            return await append_once(self, pending)
        except AppendOutcomeUnknownError:
            return Appended((pending[-1].expected or 0) + 1)

    return appended


def _nothing_found(append_once: Any) -> Any:
    async def appended(self: Any, pending: Any) -> Any:
        try:
            return await append_once(self, pending)
        except AppendOutcomeUnknownError as error:
            found = await self._recognition.find(pending)
            if found is None:
                raise _not_stored(error) from error
            return Appended(found)

    return appended


def _by_a_replica(_: Any) -> Any:
    async def last(self: Any, subject: str) -> Any:
        found = None
        batches = self._broker.read(
            self._stream, subject=self.names.absolute(subject), last_per_subject=True
        )
        async for batch in batches:
            found = batch[-1]
        return None if found is None else self.record(found)

    return last


def _any_own_claim(is_own: Any) -> Any:
    def own(record: Any, event: Any) -> bool:
        if isinstance(event, PortClaimed):
            return getattr(record.event, "claim_id", "") == event.claim_id
        return is_own(record, event)

    return own


async def _held(*_args: Any) -> bool:
    return True


async def _nobody(*_args: Any) -> None:
    """Nothing is one's own."""


def _as_it_was(again: Any) -> Any:
    """The registration expects what this life knew before it asked."""

    def registers(
        self: Any, incarnation: Any, read: Any, notice: Any, cause: Any
    ) -> Any:
        return again(self, incarnation, _with(read, last=self.revision), notice, cause)

    return registers


def _never_fresh(again: Any) -> Any:
    def registers(self: Any, _incarnation: Any, *rest: Any) -> Any:
        return again(self, self.incarnation, *rest)

    return registers


def _never_superseded(judge: Any) -> Any:
    def judged(*args: Any, **named: Any) -> Any:
        verdict = judge(*args, **named)
        return Vacant() if isinstance(verdict, Superseded) else verdict

    return judged


def _unexpecting(_: Any) -> Any:
    async def store_snapshot(self: Any, message: Outgoing) -> Any:
        message = _with(message, expect_subject_sequence=None)
        return await self._broker.store(self.names.snapshot_stream, message)

    return store_snapshot


def _pointer_first(_: Any) -> Any:
    async def write_snapshot(self: Any, snapshot: Any, now: Any) -> bool:
        before, expected = await self._pointer()
        if before is not None and not viewfeed._is_forward(before, snapshot):
            return False
        packed, checksum = pack_snapshot(snapshot)
        snapshot_id = new_uuid7()
        starts = range(0, len(packed), CHUNK_BYTES)
        pointer = SnapshotPointer(
            snapshot_id=snapshot_id,
            position=snapshot.position,
            revision=snapshot.revision,
            chunks=len(starts),
            bytes=len(packed),
            checksum=checksum,
            taken_at=now,
            fold_version=snapshot.fold_version,
        )
        await self._store_snapshot(
            Outgoing(
                subject=self.names.snapshot_pointer,
                payload=msgspec.json.encode(pointer),
                expect_subject_sequence=expected,
            )
        )
        for number, start in enumerate(starts):
            subject = self.names.snapshot_chunk(snapshot_id, number)
            piece = packed[start : start + CHUNK_BYTES]
            await self._store_snapshot(Outgoing(subject=subject, payload=piece))
        return True

    return write_snapshot


def _by_name(_: Any) -> Any:
    async def packed(self: Any, pointer: Any) -> bytes:
        numbers = sorted(range(pointer.chunks), key=str)
        return b"".join([await self._chunk(pointer, number) for number in numbers])

    return packed


def _its_last_chunk(_: Any) -> Any:
    async def standing_snapshot(self: Any) -> Any:
        pointer = await self.snapshot_pointer()
        if pointer is None:
            return None
        try:
            await self._chunk(pointer, pointer.chunks - 1)
        except SnapshotUnusableError:
            return None
        return pointer.position

    return standing_snapshot


MUTANTS = (
    Mutant(
        "unknown-outcome-is-failure",
        "an append without an answer counts as certainly not stored",
        (Patch(EventLog, "_append_once", _unknown_fails),),
        plans=("lagging",),
    ),
    Mutant(
        "unknown-outcome-is-success",
        "an append without an answer counts as stored",
        (Patch(EventLog, "_append_once", _unknown_succeeds),),
        plans=("late-words",),
    ),
    Mutant(
        "nothing-found-is-refusal",
        "a read that finds nothing after an unknown outcome counts as a refusal",
        (Patch(EventLog, "_append_once", _nothing_found),),
        plans=("late-words",),
    ),
    Mutant(
        "read-by-a-replica",
        "a subject's last record is asked of a replica that may lag",
        (Patch(EventLog, "last", _by_a_replica),),
        plans=("lagging",),
    ),
    Mutant(
        "released-claim-is-a-grant",
        "one's own claim_id on a release is read as a grant",
        (
            Patch(recognition, "_is_own", _any_own_claim),
            Patch(Recognition, "_is_held", lambda _: _held),
        ),
        plans=("claim-expire-repeat",),
    ),
    Mutant(
        "stale-expectation-reused",
        "a worker registers again on what it knew before it asked",
        (Patch(WorkerCore, "_again", _as_it_was),),
    ),
    Mutant(
        "expired-life-comes-back",
        "a worker that expired registers as the same incarnation",
        (Patch(WorkerCore, "_again", _never_fresh),),
    ),
    Mutant(
        "superseded-life-comes-back",
        "a worker whose place was taken registers again",
        (Patch(worker_core, "judge", _never_superseded),),
    ),
    Mutant(
        "conflict-is-never-own",
        "a repeat of what is stored already counts as refused",
        (Patch(Recognition, "find", lambda _: _nobody),),
        plans=("lagging",),
    ),
    Mutant(
        "snapshot-pointer-backwards",
        "a late snapshot is pointed to though a newer one is there",
        (
            Patch(viewfeed, "_is_forward", always(value=True)),
            Patch(ViewFeed, "_store_snapshot", _unexpecting),
        ),
        plans=("late-pointers", "late-snapshot"),
    ),
    Mutant(
        "pointer-before-snapshot",
        "the pointer to a snapshot is stored before the snapshot",
        (Patch(ViewFeed, "write_snapshot", _pointer_first),),
    ),
    Mutant(
        "snapshot-chunks-by-name",
        "the chunks of a snapshot are put together in the order of their names",
        (Patch(ViewFeed, "_packed", _by_name),),
        plans=("chunks-gone", "chunks-replaced"),
    ),
    Mutant(
        "snapshot-stands-by-its-last-chunk",
        "a snapshot that misses a chunk is taken for whole if its last one is there",
        (Patch(ViewFeed, "standing_snapshot", _its_last_chunk),),
        plans=("chunks-gone",),
    ),
)
