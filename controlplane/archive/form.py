"""The form of an archive: its lines, and the chain of checksums through them.

::

    {"archive": 1, "cell": …, "log_id": …, "first_revision": …}
    a record a line, see `events.encode_line`
    {"block": 1, "records": …, "last_revision": …, "checksum": …}
    …records and blocks…
    {"manifest": {…}, "seal": …}

Each checksum covers everything before it, so no record is believed before the block
that it stands in was seen whole, and nothing can be lost, moved or altered unseen.
That guards against accidents; whoever means harm can compute checksums too.
"""

from __future__ import annotations

from datetime import datetime
from hashlib import blake2b
from typing import Final

import msgspec

from events import Cell, Revision

FORMAT: Final = 1
BLOCK_RECORDS_MAX: Final = 2048
BLOCK_BYTES_MAX: Final = 1 << 20
"""A block ends with the record that reaches either."""
BLOCK: Final = b'{"block":'
MANIFEST: Final = b'{"manifest":'


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """The first line: whose records these are."""

    archive: int
    """The format."""
    cell: Cell
    log_id: str
    first_revision: Revision
    """The first that the log still had."""


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """The line after a block of records."""

    block: int
    """Counted from 1."""
    records: int
    last_revision: Revision
    checksum: str
    """Of everything before this line."""


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What the whole archive holds."""

    cell: Cell
    log_id: str
    first_revision: Revision
    """The first that the log still had; above 1 its beginning was gone."""
    last_revision: Revision
    """The last that the log ever had when it was exported."""
    records: int
    blocks: int
    bytes: int
    """Of the lines of all records, unpacked."""
    checksum: str
    """Of the last block: of everything before the manifest."""
    exported_at: datetime
    """The broker's clock."""


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """The last line."""

    manifest: msgspec.Raw
    seal: str
    """The checksum of the manifest."""


class Format(msgspec.Struct, frozen=True):
    """What the first line of any format says."""

    archive: int


class Chain:
    """The checksums from the header to a place in the archive."""

    def __init__(self, header_line: bytes) -> None:
        """Begin after the header's line, its end included."""
        self.checksum = checksum(header_line)
        self.blocks = self.records = self.bytes = 0
        self.last_revision: Revision = 0

    def next(self, lines: bytes, *, records: int, last_revision: Revision) -> Mark:
        """The mark after a block of ``lines``."""
        return Mark(
            block=self.blocks + 1,
            records=records,
            last_revision=last_revision,
            checksum=checksum(bytes.fromhex(self.checksum), lines),
        )

    def take(self, lines: bytes, mark: Mark) -> None:
        """Go on behind ``mark``. Raises ValueError when it is not what comes next."""
        expected = self.next(
            lines, records=lines.count(b"\n"), last_revision=mark.last_revision
        )
        if mark != expected or mark.last_revision <= self.last_revision:
            message = f"block {expected.block} does not have its checksum"
            raise ValueError(message)
        self.checksum, self.blocks = mark.checksum, mark.block
        self.records += mark.records
        self.bytes += len(lines)
        self.last_revision = mark.last_revision

    def manifest(
        self, header: Header, last_revision: Revision, exported_at: datetime
    ) -> Manifest:
        """The manifest of an archive that ends here."""
        return Manifest(
            cell=header.cell,
            log_id=header.log_id,
            first_revision=header.first_revision,
            last_revision=last_revision,
            records=self.records,
            blocks=self.blocks,
            bytes=self.bytes,
            checksum=self.checksum,
            exported_at=exported_at,
        )


def checksum(*parts: bytes) -> str:
    """The checksum of ``parts``, one after another."""
    digest = blake2b(digest_size=16)
    for part in parts:
        digest.update(part)
    return digest.hexdigest()


def ending_line(manifest: Manifest) -> bytes:
    """The last line, with its end."""
    raw = msgspec.json.encode(manifest)
    ending = Ending(manifest=msgspec.Raw(raw), seal=checksum(raw))
    return msgspec.json.encode(ending) + b"\n"


def read_ending(line: bytes) -> Manifest:
    """The manifest in the last line. Raises `UNREADABLE` or ValueError."""
    ending = msgspec.json.decode(line, type=Ending)
    if checksum(bytes(ending.manifest)) != ending.seal:
        message = "the manifest does not have its checksum"
        raise ValueError(message)
    return msgspec.json.decode(ending.manifest, type=Manifest)
