"""What happened, line by line: when, who, what. Its digest names the run."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b

from controlplane.logs import ROOT

from .loop import PROCESS, SimLoop


class Trace:
    """Lines of a run. The digest covers every line, whether lines are kept or not.

    Notes are for readers: they are kept among the lines, and not part of the digest.
    """

    def __init__(self, loop: SimLoop, *, keep: bool) -> None:
        self._loop, self.keeps = loop, keep
        self._hash = blake2b(digest_size=16)
        self.kept: list[str] = []
        self.errors: list[tuple[float, str, str]] = []
        """When, who and what the product logged as an error."""

    def line(self, who: str, what: str) -> None:
        text = f"{self._loop.time():10.4f} {who:<6} {what}"
        self._hash.update(text.encode())
        if self.keeps:
            self.kept.append(text)

    @property
    def now(self) -> float:
        return self._loop.time()

    def note(self, what: str) -> None:
        if self.keeps:
            self.kept.append(f"{'':10} {'':<6} | {what}")

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()

    @contextmanager
    def listening(self) -> Iterator[None]:
        """What the product logs becomes notes; without readers, only its errors."""
        logger = logging.getLogger(ROOT)
        before = logger.level, logger.propagate
        handler = _Noting(self)
        logger.propagate = False
        logger.setLevel(logging.INFO if self.keeps else logging.ERROR)
        logger.addHandler(handler)
        try:
            yield
        finally:
            logger.removeHandler(handler)
            logger.level, logger.propagate = before
            logger.setLevel(before[0])


class _Noting(logging.Handler):
    def __init__(self, trace: Trace) -> None:
        super().__init__()
        self._trace = trace

    def emit(self, record: logging.LogRecord) -> None:
        process, message = PROCESS.get(), record.getMessage()
        who = "-" if process is None else process.name
        self._trace.note(f"{who} says: {message}")
        if record.levelno >= logging.ERROR:
            self._trace.errors.append((self._trace.now, who, message))
