"""Compressed pieces of a file, one after another: what zstd calls frames.

Every piece can be read by itself, so that a file whose writer was killed is whole up
to its last complete piece. At the end stands a piece that zstd skips: it says where
the piece before it begins.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterator, Mapping
from typing import BinaryIO, Final

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

FRAME_BYTES_MAX: Final = 256 << 20
"""Far beyond any block; a few forged kilobytes could unpack to much more."""
CHUNK_BYTES: Final = 1 << 20
_OPTIONS: Final[Mapping[int, int]] = {
    zstd.CompressionParameter.compression_level: 3,
    zstd.CompressionParameter.checksum_flag: 1,
}
_FOOTER: Final = struct.Struct("<IIQ")
_MAGIC: Final = bytes.fromhex("28b52ffd")
_SKIPPED: Final = 0x184D2A5C
"""One of the sixteen numbers that begin a piece which every zstd skips."""


class FramesError(Exception):
    """The bytes are no zstd."""


class FramesEndedError(Exception):
    """The bytes end within a piece."""


def frame(content: bytes) -> bytes:
    """``content`` as a piece."""
    return zstd.compress(content, options=_OPTIONS)


def begins_frame(content: bytes) -> bool:
    """Whether ``content``, which may be empty, is how a piece begins."""
    return content.startswith(_MAGIC) or _MAGIC.startswith(content)


def footer(offset: int) -> bytes:
    """The last piece of a file: the one before it begins at ``offset``."""
    return _FOOTER.pack(_SKIPPED, 8, offset)


def find_footer(file: BinaryIO) -> int | None:
    """The offset in the footer; None: there is no footer at the end of ``file``."""
    size = file.seek(0, 2)
    if size < _FOOTER.size:
        return None
    file.seek(size - _FOOTER.size)
    mark, length, offset = _FOOTER.unpack(file.read(_FOOTER.size))
    is_footer = mark == _SKIPPED and length == 8  # noqa: PLR2004 - of the offset
    return offset if is_footer and offset < size else None


def whole_frames(file: BinaryIO) -> Iterator[tuple[bytes, int]]:
    """The complete pieces from the start of ``file``, each with where it ends."""
    pending = b""
    while True:
        decompressor, content = zstd.ZstdDecompressor(), b""
        while not decompressor.eof:
            pending = pending or file.read(CHUNK_BYTES)
            if not pending or len(content) > FRAME_BYTES_MAX:
                return
            try:
                content += decompressor.decompress(pending)
            except zstd.ZstdError:
                return
            pending = b""
        pending = decompressor.unused_data
        yield content, file.tell() - len(pending)


class Unpacked:
    """What is in all the pieces from here to the end of a file, as text in lines.

    Every call raises `FramesError`, and `FramesEndedError` where the file was cut.
    """

    def __init__(self, file: BinaryIO) -> None:
        """Read ``file`` from where it stands."""
        self._file = zstd.ZstdFile(file)
        self._held = b""

    def line(self) -> bytes:
        """The next line, with its end; without one at the end of the file."""
        return self._through(b"\n")

    def through_line_with(self, start: bytes) -> tuple[bytes, bytes]:
        """All lines before the next one that begins with ``start``, and that one.

        There is at least one before it. Without such a line: all the rest, and none.
        """
        before = self._through(b"\n" + start)
        if not before.endswith(start):
            return before, b""
        return before[: -len(start)], start + self.line()

    def peek(self, start: bytes) -> bool:
        """Whether the next line begins with ``start``."""
        while len(self._held) < len(start) and self._more():
            pass
        return self._held.startswith(start)

    def _through(self, mark: bytes) -> bytes:
        """All up to and with the next ``mark``; what is left if there is none."""
        searched = 0
        while True:
            place = self._held.find(mark, searched)
            if place >= 0:
                return self._taken(place + len(mark))
            if len(self._held) > FRAME_BYTES_MAX:
                message = f"more than {FRAME_BYTES_MAX} bytes without a mark"
                raise FramesError(message)
            searched = max(0, len(self._held) - len(mark))
            if not self._more():
                return self._taken(len(self._held))

    def _taken(self, end: int) -> bytes:
        taken, self._held = self._held[:end], self._held[end:]
        return taken

    def _more(self) -> bool:
        try:
            more = self._file.read1(CHUNK_BYTES)
        except EOFError as error:
            raise FramesEndedError from error
        except zstd.ZstdError as error:
            raise FramesError(str(error)) from error
        self._held += more
        return bool(more)
