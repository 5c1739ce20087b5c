"""Cells in memory whose logs go into archives and back, and files that were hurt."""

from __future__ import annotations

import json
from contextlib import contextmanager
from pathlib import Path

import pytest

import controlplane as cp
from controlplane import topology
from controlplane.archive import importing, writing
from controlplane.archive.frames import frame, whole_frames
from controlplane.broker import Outgoing
from controlplane.broker.memory import MemoryBroker, MemoryServer
from controlplane.eventlog import EventLog
from projections import FoldState, fold_all
from tests.support.dating import dated

SETTINGS = cp.Settings(connect_timeout_s=0.3)


class KilledError(BaseException):
    """The process is no more: nobody catches this."""


class MortalBroker(MemoryBroker):
    """Dies at an append: ``kill_at`` counts them; before or ``after`` it is stored."""

    kill_at = -1
    after = False

    async def store_batch(self, stream, messages, *, timeout_s=None):
        self.kill_at -= 1
        if self.kill_at == 0 and not self.after:
            raise KilledError
        stored = await super().store_batch(stream, messages, timeout_s=timeout_s)
        if self.kill_at == 0:
            raise KilledError
        return stored


class LogCell:
    """A cell in memory; ``await LogCell.made("a", server)``."""

    def __init__(self, name, server):
        self.server = server
        self.broker = MortalBroker(server, connect_timeout_s=0.3)
        self.log = EventLog(self.broker, name, SETTINGS)

    @classmethod
    async def made(cls, name="default", server=None):
        cell = cls(name, server or MemoryServer())
        await cell.broker.start()
        await topology.init(cell.broker, name, SETTINGS)
        return cell

    async def tell(self, story):
        """Store a story, as it is, at its times."""
        last = (await self.log.state()).last_revision
        told = zip(story, story.payloads, strict=True)
        for place, (record, payload) in enumerate(told, last + 1):
            subject = record.subject
            if not subject.startswith("log."):
                subject = f"log.{subject}"  # the log takes no others
            await self.store(
                Outgoing(
                    subject=self.log.names.absolute(subject),
                    payload=payload,
                    headers=dated(record.recorded_at, place),
                )
            )

    async def store(self, message):
        await self.broker.store(self.log.names.log_stream, message)

    async def remove(self, subject):
        """Purge a relative subject: legitimate holes."""
        await self.broker.purge_stream(
            self.log.names.log_stream, subject=self.log.names.absolute(subject)
        )

    async def stored(self):
        return [r async for batch in self.log.read_stored() for r in batch]

    async def records(self):
        return [record async for record in self.log.read()]


def digests(records):
    """After each record: fleet, ports and what could not be read."""
    state, found = FoldState(), []
    for record in records:
        state = fold_all(state, [record])
        found.append(
            (state.fleet_state.digest, state.ports.digest, state.anomalies.counts)
        )
    return found


@contextmanager
def small_pieces(records=3):
    """Blocks and batches of a few records, so that short logs have many."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writing, "BLOCK_RECORDS_MAX", records)
        patch.setattr(importing, "BATCH_RECORDS_MAX", records)
        yield


def lines_of(path: Path) -> list[bytes]:
    """The lines of an archive."""
    with path.open("rb") as file:
        content = b"".join(content for content, _ in whole_frames(file))
    return content.splitlines(keepends=True)


def rewrite(path: Path, *lines: bytes) -> Path:
    """The same lines, or others, packed by somebody who knows nothing of archives."""
    path.write_bytes(frame(b"".join(lines or lines_of(path))))
    return path


def edited(line: bytes, **fields) -> bytes:
    """A line of JSON with other fields."""
    return json.dumps({**json.loads(line), **fields}).encode() + b"\n"
