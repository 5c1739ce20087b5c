"""Writing an archive, block by block, so that a kill costs the last one at most.

Blocks go to ``{name}.part`` beside the archive, which gets its own name when it is
complete. Where a block ends depends on the records alone, so an export that was killed
and went on is the same file as one that was not.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import BinaryIO, Final, Self

import msgspec

from events import (
    Record,
    Revision,
    StoredRecord,
    encode_line,
    read_or_none,
    records_of,
    stored_of,
)

from .errors import ExportRefusedError, ExportStoppedError
from .form import (
    BLOCK,
    BLOCK_BYTES_MAX,
    BLOCK_RECORDS_MAX,
    FORMAT,
    Chain,
    Header,
    Manifest,
    Mark,
    ending_line,
)
from .frames import begins_frame, footer, frame, whole_frames
from .turns import at_the_end

MODE: Final = 0o600
"""An archive names workers and their addresses: only its owner may read it."""
HEADER_BYTES_MAX: Final = 4096
_NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT)
_HEADER: Final = msgspec.json.Decoder(Header)
_MARK: Final = msgspec.json.Decoder(Mark)


class ArchiveWriter:
    """The archive that is to be at ``path``. A context, and used within it only.

    Entering finds what is complete in the part; leaving keeps what is there. Every call
    that writes raises `ExportStoppedError`.
    """

    def __init__(self, path: Path) -> None:
        """Open the part, and lock it. Raises `ExportRefusedError`."""
        self.path = path
        self.part = path.with_name(f"{path.name}.part")
        self.last: StoredRecord | None = None
        """The last record that is in a complete block."""
        self._file = _locked(self.part)
        self._found_lines = b""
        self._lines: list[bytes] = []
        self._pending_bytes = 0
        self._header: Header | None = None
        self._chain = Chain(b"")

    @property
    def header(self) -> Header | None:
        """What the part begins with; None: nothing is there yet."""
        return self._header

    @property
    def last_block(self) -> list[Record]:
        """The records of the last complete block that was found in the part."""
        return records_of(self._found_lines) if self._found_lines else []

    @property
    def size(self) -> int:
        """Bytes of the file so far."""
        return self._file.tell()

    def begin(self, header: Header) -> None:
        """Write the first line."""
        line = msgspec.json.encode(header) + b"\n"
        self._header, self._chain = header, Chain(line)
        self._write(frame(line))

    def add(self, records: Sequence[StoredRecord]) -> None:
        """Write the next ``records``, which follow `last`."""
        for record in records:
            line = encode_line(record)
            self._lines.append(line)
            self._pending_bytes += len(line)
            if (
                len(self._lines) >= BLOCK_RECORDS_MAX
                or self._pending_bytes >= BLOCK_BYTES_MAX
            ):
                self._end_block(record)
            self._newest = record

    def finish(self, last_revision: Revision, exported_at: datetime) -> Manifest:
        """Write what is left and the manifest, and give the file its name."""
        if self._header is None:
            raise AssertionError
        if self._lines:
            self._end_block(self._newest)
        manifest = self._chain.manifest(self._header, last_revision, exported_at)
        offset = self._file.tell()
        self._write(frame(ending_line(manifest)) + footer(offset))
        with self._writing():
            os.fsync(self._file.fileno())
            self.part.replace(self.path)
            _sync_directory(self.path.parent)
        return manifest

    async def __aenter__(self) -> Self:
        """Go on. Raises `ExportRefusedError` for a file that no export began."""
        try:
            with self._writing():
                await at_the_end(self._go_on())
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the part; the lock goes with it."""
        with suppress(OSError):  # what was not written already failed before
            self._file.close()

    def _end_block(self, last: StoredRecord) -> None:
        lines = b"\n".join(self._lines) + b"\n"
        mark = self._chain.next(
            lines, records=len(self._lines), last_revision=last.revision
        )
        self._chain.take(lines, mark)
        self._write(frame(lines + msgspec.json.encode(mark) + b"\n"))
        self._lines, self._pending_bytes, self.last = [], 0, last

    def _write(self, content: bytes) -> None:
        """Append; what is written survives this process."""
        with self._writing():
            self._file.write(content)
            self._file.flush()

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Say it when the machine refuses to write, or to read what it wrote."""
        try:
            yield
        except OSError as error:
            raise ExportStoppedError(self.part, error) from error

    def _go_on(self) -> Generator[None, None, None]:
        """Find what is complete in the part, piece by piece; cut off what is not."""
        end = 0
        for content, ends in whole_frames(self._file):
            if self._header is None:
                self._header = read_or_none(_HEADER, content)
                if self._header is None or self._header.archive != FORMAT:
                    raise self._foreign()
                self._chain = Chain(content)
            elif not self._took(content):
                break
            end = ends
            yield
        if end == 0 and not self._is_begun():
            raise self._foreign()
        self._file.seek(end)
        self._file.truncate()

    def _is_begun(self) -> bool:
        """Whether the file is empty, or a first line that was not written whole."""
        self._file.seek(0)
        start = self._file.read(HEADER_BYTES_MAX)
        return len(start) < HEADER_BYTES_MAX and begins_frame(start)

    def _foreign(self) -> ExportRefusedError:
        return ExportRefusedError(
            f"{self.part} was not begun by this version's log export; move it away, "
            "or name another file"
        )

    def _took(self, content: bytes) -> bool:
        """Whether ``content`` is the next block, which it is no more then."""
        start = content.rfind(b"\n", 0, -1) + 1
        lines, line = content[:start], content[start:]
        mark = read_or_none(_MARK, line) if line.startswith(BLOCK) else None
        if mark is None:
            return False
        try:
            self._chain.take(lines, mark)
        except ValueError:
            return False
        self._found_lines = lines
        place = lines.rfind(b"\n", 0, -1) + 1
        self.last = stored_of(lines[place:])[0]
        return True


def _locked(part: Path) -> BinaryIO:
    """The part, open at its start.

    Raises `ExportRefusedError`, or `ExportStoppedError` when there is no room.
    """
    while True:
        try:
            opened = os.open(part, os.O_RDWR | os.O_CREAT, MODE)
        except (OSError, ValueError) as error:
            if isinstance(error, OSError) and error.errno in _NO_ROOM:
                raise ExportStoppedError(part, error) from error
            message = f"cannot write {part}: {error}; name another file"
            raise ExportRefusedError(message) from error
        file: BinaryIO = open(opened, "r+b")  # noqa: PTH123, SIM115 - with a mode; closed by its owner
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.close()
            next_step = "let it end, or name another file"
            message = f"another export is writing {part}; {next_step}"
            raise ExportRefusedError(message) from error
        except OSError as error:  # a file system without locks
            file.close()
            message = f"cannot lock {part}: {error}; name a file somewhere else"
            raise ExportRefusedError(message) from error
        if _is_at(file, part):
            return file
        file.close()  # whoever had the lock has just given the file its name


def _is_at(file: BinaryIO, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def _sync_directory(directory: Path) -> None:
    opened = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
