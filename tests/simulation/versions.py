"""Two software versions side by side: the product's, and the one before it.

The old one folds by an older fold version and does not know one event type. It is made
of the product by patches, which the loop puts on before a process of that version runs
and takes off again before another does.
"""

from __future__ import annotations

import sys
from typing import Any, Final, get_args

import msgspec

from events import AnyEvent, TrafficWeightSet, codec
from events.upcast import UpcasterChain
from projections import FOLD_VERSION
from tests.simulation.history import Folding
from tests.simulation.pristine import private_codec

OLD: Final = "old"
OLD_FOLD_VERSION: Final = FOLD_VERSION - 1
UNKNOWN_TO_OLD: Final = TrafficWeightSet
_ROOMS: Final = ("controlplane", "projections", "events")


HISTORY_VERSIONS: Final = {
    FOLD_VERSION: Folding(),
    OLD_FOLD_VERSION: Folding(
        decode_record=private_codec(without={UNKNOWN_TO_OLD}).decode_record
    ),
}
"""How the oracle folds for each version."""


def _old_names() -> dict[str, Any]:
    """What the old version has in the place of the product's names."""
    kinds = [kind for kind in get_args(AnyEvent) if kind is not UNKNOWN_TO_OLD]
    union = kinds[0]
    for kind in kinds[1:]:
        union = union | kind
    types = {str(kind.__struct_config__.tag): kind for kind in kinds}
    return {
        "FOLD_VERSION": OLD_FOLD_VERSION,
        "EVENT_TYPES": types,
        "CHAIN": UpcasterChain((), types),
        "_EVENT": msgspec.json.Decoder(union),
    }


class Versions:
    """Puts the old version on and takes it off."""

    def __init__(self) -> None:
        self._patches: list[tuple[dict[str, Any], str, Any, Any]] = []
        self._on = False

    def switch(self, version: object) -> None:
        """The next callback is of a process of ``version``."""
        if (version == OLD) is not self._on:
            self._on = not self._on
            for names, name, new, old in self._found():
                names[name] = old if self._on else new

    def _found(self) -> list[tuple[dict[str, Any], str, Any, Any]]:
        if not self._patches:
            for name, old in _old_names().items():
                new = FOLD_VERSION if name == "FOLD_VERSION" else getattr(codec, name)
                self._patches += [
                    (names, name, new, old)
                    for names in _namespaces()
                    if name in names and names[name] is new
                ]
        return self._patches


def _namespaces() -> list[dict[str, Any]]:
    return [
        vars(module)
        for name, module in sorted(sys.modules.items())
        if module is not None and name.split(".")[0] in _ROOMS
    ]
