"""Reading an archive: block by block, none believed before its checksum was seen."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final, TypeVar

import msgspec

from events import (
    UNREADABLE,
    Record,
    Revision,
    StoredRecord,
    records_of,
    stored_of,
)

from .ahead import read_ahead
from .errors import (
    ArchiveBeheadedError,
    ArchiveDamagedError,
    ArchiveMissingError,
    ArchiveNewerError,
    ArchiveTruncatedError,
)
from .form import (
    BLOCK,
    FORMAT,
    MANIFEST,
    Chain,
    Format,
    Header,
    Manifest,
    Mark,
    read_ending,
)
from .frames import FramesEndedError, FramesError, Unpacked, find_footer
from .turns import at_the_end

PIECE_BYTES: Final = 1 << 17
R = TypeVar("R", Record, StoredRecord)
_WRONG: Final = (FramesError, *UNREADABLE, ValueError)
_MARK: Final = msgspec.json.Decoder(Mark)
_FORMAT: Final = msgspec.json.Decoder(Format)
_HEADER: Final = msgspec.json.Decoder(Header)


def read_archive(path: str | Path, *, whole: bool = True) -> Iterator[Record]:
    """Yield every record of the archive at ``path``, in order.

    An archive of a log whose beginning was gone holds the rest, and a replay of it
    would show a fleet that never was: it raises `HistoryTruncatedError` instead of the
    first record. With ``whole=False`` what is left is read, to be looked at.

    Records are decided as they were in the log: what could not be read stands in its
    place. Raises `ArchiveMissingError`, `ArchiveTruncatedError`,
    `ArchiveDamagedError` or `ArchiveNewerError`, at the latest at the end; all are
    `ArchiveUnusableError`, and every record before it is sound.
    """
    archive = Archive(Path(path))
    first = archive.header().first_revision if whole else 1
    for records in archive.records():
        if first > 1:
            raise ArchiveBeheadedError(archive.path, first=first)
        yield from records


class Archive:
    """The archive at ``path``. Each call reads the file, and raises as `read_archive`.

    One at a time: the pieces of a file are cheap to open, and nothing stays open.
    """

    def __init__(self, path: Path) -> None:
        """Nothing is read yet."""
        self.path = path

    def header(self) -> Header:
        """What was known of the log when its export began."""
        place = _Place(self.path)
        with _opened(self.path) as file, place.errors(file):
            return place.read_header(_unpacked(file, 0))[0]

    async def manifest(self) -> Manifest:
        """What it holds, by its own word where that is quickly found."""
        with _opened(self.path) as file:
            offset = find_footer(file)
            if offset is not None:
                try:
                    _Place(self.path).read_header(_unpacked(file, 0))
                    return read_ending(_unpacked(file, offset).line())
                except (*_WRONG, FramesEndedError):
                    pass  # reading all of it says what is wrong, if anything is
        return await self.verified()

    async def verified(self) -> Manifest:
        """What it holds, after reading all of it."""
        return await at_the_end(_walk(self.path))

    def records(
        self, after: Revision = 0, until: Revision | None = None
    ) -> Generator[list[Record], None, None]:
        """Yield the records in (after, until], some at a time.

        Nothing is waited for: in an event loop read it `in_turns`. Therefore it yields
        for every block, an empty list for one that holds none of them.
        """
        return self._within(records_of, after, until)

    def stored(
        self, after: Revision = 0, until: Revision | None = None
    ) -> Generator[list[StoredRecord], None, None]:
        """As `records`, with each payload as it was stored."""
        return self._within(stored_of, after, until)

    def _within(
        self,
        decode: Callable[[bytes], list[R]],
        after: Revision,
        until: Revision | None,
    ) -> Generator[list[R], None, None]:
        sound: Revision = 0
        for lines, mark in read_ahead(_walk(self.path)):
            if mark.last_revision > after:
                for records in _decoded(self.path, decode, lines, mark, sound):
                    yield _between(records, after, until)
            else:
                yield []
            sound = mark.last_revision
            if until is not None and sound >= until:
                return


def _between(records: list[R], after: Revision, until: Revision | None) -> list[R]:
    """Those in (after, until]; mostly all."""
    first, last = records[0].revision, records[-1].revision
    if first > after and (until is None or last <= until):
        return records
    return [
        record
        for record in records
        if after < record.revision and (until is None or record.revision <= until)
    ]


def _decoded(
    path: Path,
    decode: Callable[[bytes], list[R]],
    lines: bytes,
    mark: Mark,
    sound: Revision,
) -> Iterator[list[R]]:
    """The records of a block, some at a time; its end is looked at first."""
    try:
        _check_end(decode(lines[lines.rfind(b"\n", 0, -1) + 1 :]), mark)
        for piece in _pieces(lines):
            records = decode(piece)
            yield records
            sound = records[-1].revision
    except (*UNREADABLE, ValueError) as error:
        raise ArchiveDamagedError(path, after=sound, why=str(error)) from error


def _check_end(records: list[R], mark: Mark) -> None:
    """Raises ValueError when a block ends otherwise than it says."""
    if records[-1].revision != mark.last_revision:
        message = f"block {mark.block} does not hold what it says"
        raise ValueError(message)


def _pieces(lines: bytes) -> Iterator[bytes]:
    """Whole lines, few enough to be in the processor's cache still when folded."""
    start = 0
    while start < len(lines):
        end = lines.rfind(b"\n", start, start + PIECE_BYTES) + 1
        if end <= start:  # a line longer than that
            end = lines.find(b"\n", start) + 1 or len(lines)
        yield lines[start:end]
        start = end


def _walk(path: Path) -> Generator[tuple[bytes, Mark], None, Manifest]:
    """Yield the lines of each block, once its checksum was seen; the manifest."""
    place = _Place(path)
    with _opened(path) as file, place.errors(file):
        source = _unpacked(file, 0)
        header, chain = place.read_header(source)
        while not source.peek(MANIFEST):
            lines, last = source.through_line_with(BLOCK)
            if not last:
                raise _cut(lines)
            mark = _MARK.decode(last)
            chain.take(lines, mark)
            place.after = chain.last_revision
            yield lines, mark
        manifest = read_ending(source.line())
        expected = chain.manifest(header, manifest.last_revision, manifest.exported_at)
        if manifest != expected or manifest.last_revision < chain.last_revision:
            message = "the manifest does not say what was read"
            raise ValueError(message)
        if source.line():
            message = "something stands behind the manifest"
            raise ValueError(message)
        return manifest


def _cut(rest: bytes) -> Exception:
    """What it means that no block ends in ``rest``."""
    if MANIFEST in rest:
        return ValueError("the last block has no end")
    return FramesEndedError()


class _Place:
    """How far a file was read: what is said when it ends or breaks there."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.after: Revision = 0

    def read_header(self, source: Unpacked) -> tuple[Header, Chain]:
        """The first line. Raises `ArchiveNewerError`, and what `errors` takes."""
        line = source.line()
        if not line.endswith(b"\n"):
            raise FramesEndedError
        try:
            found = _FORMAT.decode(line).archive
        except UNREADABLE as error:
            message = "it does not begin as an archive does"
            raise ValueError(message) from error
        if found > FORMAT:
            raise ArchiveNewerError(self._path, found=found, known=FORMAT)
        return _HEADER.decode(line), Chain(line)

    @contextmanager
    def errors(self, file: BinaryIO) -> Iterator[None]:
        """Say what is wrong with the file, and up to where it is sound."""
        try:
            yield
        except FramesEndedError as error:
            if find_footer(file) is None:
                raise ArchiveTruncatedError(self._path, after=self.after) from error
            why = "a piece of it is not whole"
            raise self._damaged(why) from error
        except _WRONG as error:
            raise self._damaged(str(error)) from error

    def _damaged(self, why: str) -> ArchiveDamagedError:
        return ArchiveDamagedError(self._path, after=self.after, why=why)


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    try:
        file = path.open("rb")
    except (OSError, ValueError) as error:
        raise ArchiveMissingError(path, str(error)) from error
    with file:
        yield file


def _unpacked(file: BinaryIO, offset: int) -> Unpacked:
    file.seek(offset)
    return Unpacked(file)
