"""What a router of the demo notes of each request, and how the notes are judged.

Each note is one line of a file, written before the request goes on: a router that is
killed leaves all its notes behind. Times are of the machine's monotonic clock, which
all processes of a machine share.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final, TypeAlias

import msgspec

from events import Incarnation, ModelName

from .outcome import Traffic

DEAD_GRACE_S: Final = 2.0
"""A worker that was killed is out of every router within its lease and this."""


class Picked(msgspec.Struct, frozen=True, kw_only=True, tag="picked"):
    """`pick` gave a worker."""

    at_s: float
    model: ModelName
    worker: str
    incarnation: Incarnation


class PickFailed(msgspec.Struct, frozen=True, kw_only=True, tag="pick_failed"):
    """`pick` raised."""

    at_s: float
    model: ModelName
    reason: str


class Answered(msgspec.Struct, frozen=True, kw_only=True, tag="answered"):
    """The request got its answer."""

    at_s: float
    model: ModelName


class Unreachable(msgspec.Struct, frozen=True, kw_only=True, tag="unreachable"):
    """The worker gave no answer; it is ejected, and another is picked."""

    at_s: float
    model: ModelName
    worker: str
    reason: str


class CutOff(msgspec.Struct, frozen=True, kw_only=True, tag="cut_off"):
    """The worker went away in the midst of its answer, and the client was told."""

    at_s: float
    model: ModelName


class GivenUp(msgspec.Struct, frozen=True, kw_only=True, tag="given_up"):
    """None of the workers picked for the request gave an answer."""

    at_s: float
    model: ModelName


Note: TypeAlias = Picked | PickFailed | Answered | Unreachable | CutOff | GivenUp

_DECODER: Final = msgspec.json.Decoder(Note)


class Death(msgspec.Struct, frozen=True, kw_only=True):
    """A worker's life that ended with SIGKILL."""

    at_s: float
    incarnation: Incarnation
    lease_ttl_s: float

    @property
    def out_at_s(self) -> float:
        """From then on no router may pick it."""
        return self.at_s + self.lease_ttl_s + DEAD_GRACE_S


class Notebook:
    """The file of a router's notes; one that exists is continued."""

    def __init__(self, path: Path) -> None:
        """Open the file at ``path``."""
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def write(self, note: Note) -> None:
        """Add ``note``; it is safe when this returns, also from a SIGKILL."""
        os.write(self._file, msgspec.json.encode(note) + b"\n")

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


def read_notes(path: Path) -> list[Note]:
    """The notes in the file at ``path``; none if there is no file.

    A line that was cut off by a kill is left out.
    """
    if not path.exists():
        return []
    *lines, _ = path.read_bytes().split(b"\n")
    return [_DECODER.decode(line) for line in lines]


def picks_to_dead(notes: Iterable[Note], deaths: Iterable[Death]) -> int:
    """How many picks gave a worker that should have been out by then."""
    out_at_s = {death.incarnation: death.out_at_s for death in deaths}
    return sum(
        isinstance(note, Picked)
        and note.incarnation in out_at_s
        and note.at_s > out_at_s[note.incarnation]
        for note in notes
    )


def judge_notes(notes: Iterable[Note], deaths: Iterable[Death]) -> Traffic:
    """What became of all requests."""
    notes = tuple(notes)
    kinds = [type(note) for note in notes]
    return Traffic(
        picks=kinds.count(Picked),
        failed_picks=kinds.count(PickFailed),
        picks_to_dead=picks_to_dead(notes, deaths),
        answered=kinds.count(Answered),
        retried=kinds.count(Unreachable),
        cut_off=kinds.count(CutOff),
        failed_requests=kinds.count(GivenUp),
    )
