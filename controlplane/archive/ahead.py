"""Reading ahead: the next item is being made while the last one is used."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

T = TypeVar("T")
_END: Final = object()


def read_ahead(items: Generator[T, None, object]) -> Iterator[T]:
    """Yield what ``items`` yields; each is made in a thread, one ahead.

    For items whose making lets go of the interpreter, as unpacking and checksums do.
    What making one raises is raised in its turn. When nobody wants more, ``items`` is
    closed once the one that is being made is done.
    """
    try:
        with ThreadPoolExecutor(1, "read-ahead") as thread:
            coming = thread.submit(next, items, _END)
            while (item := coming.result()) is not _END:
                coming = thread.submit(next, items, _END)
                yield item  # type: ignore[misc]
    finally:
        items.close()
