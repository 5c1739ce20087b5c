"""Old tags read as new ones. The chain is checked when it is made, at import."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, TypeAlias

import msgspec

Document: TypeAlias = dict[str, Any]


class Upcaster(msgspec.Struct, frozen=True, kw_only=True):
    """How a document of tag ``old`` reads as one of tag ``new``; must be pure."""

    old: str
    new: str
    read_as: Callable[[Document], Document]


class UpcasterChain:
    """Leads every old tag to a current one.

    Raises ValueError at creation for a cycle, a gap (a step that ends in no current
    tag), a duplicate (two steps from one tag) or a step away from a current tag.
    """

    def __init__(self, upcasters: Iterable[Upcaster], current: Collection[str]) -> None:
        """Check ``upcasters`` against the tags that events have today."""
        steps: dict[str, Upcaster] = {}
        for step in upcasters:
            if step.old in steps:
                message = f"duplicate: two upcasters read {step.old}"
                raise ValueError(message)
            if step.old in current:
                message = f"upcaster from {step.old}, which is a current tag"
                raise ValueError(message)
            steps[step.old] = step
        self._steps: Mapping[str, Upcaster] = steps
        for tag in steps:
            self._check(tag, current)

    def _check(self, tag: str, current: Collection[str]) -> None:
        seen = [tag]
        while tag in self._steps:
            tag = self._steps[tag].new
            if tag in seen:
                message = f"cycle: {' -> '.join([*seen, tag])}"
                raise ValueError(message)
            seen.append(tag)
        if tag not in current:
            message = f"gap: {' -> '.join(seen)} ends in no current tag"
            raise ValueError(message)

    def __contains__(self, tag: object) -> bool:
        """Whether a document of this tag can be read as a current one."""
        return tag in self._steps

    def upcast(self, tag: str, document: Document) -> Document:
        """The document as its current tag has it, with that tag as ``type``."""
        while (step := self._steps.get(tag)) is not None:
            tag = step.new
            document = {**step.read_as(document), "type": tag}
        return document
