"""Keys of a terminal: bytes in, names of keys out. Pure."""

from __future__ import annotations

import codecs
from typing import Final

ESCAPE: Final = "\x1b"
_SEQUENCES: Final = {
    "[A": "up",
    "[B": "down",
    "[C": "right",
    "[D": "left",
    "[H": "home",
    "[F": "end",
    "OA": "up",
    "OB": "down",
    "OC": "right",
    "OD": "left",
    "OH": "home",
    "OF": "end",
    "[1~": "home",
    "[7~": "home",
    "[4~": "end",
    "[8~": "end",
    "[5~": "page up",
    "[6~": "page down",
}
_CONTROLS: Final = {
    "\r": "enter",
    "\n": "enter",
    "\x7f": "backspace",
    "\x08": "backspace",
    "\x03": "quit",
    "\x04": "quit",
    "\x0c": "redraw",
}
LONGEST: Final = 16
"""No key is longer; what goes on for longer is noise."""


class Keys:
    """Takes apart what a terminal sends, however it is cut into pieces."""

    def __init__(self) -> None:
        """Nothing was typed yet."""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""

    @property
    def is_open(self) -> bool:
        """Whether the escape key was hit, or a longer key is on its way."""
        return bool(self._rest)

    def feed(self, typed: bytes) -> list[str]:
        """The keys that are complete: their names, or the characters themselves."""
        self._rest += self._decoder.decode(typed)
        keys: list[str] = []
        while self._rest:
            size, key = self._first()
            if size == 0:
                break
            self._rest = self._rest[size:]
            if key:
                keys.append(key)
        return keys

    def close(self) -> list[str]:
        """Nothing follows: it was the escape key."""
        was_open, self._rest = self.is_open, ""
        return ["escape"] if was_open else []

    def _first(self) -> tuple[int, str]:
        """How long the first key is, and its name; 0: there is more to come."""
        text = self._rest
        if text[0] != ESCAPE:
            key = _CONTROLS.get(text[0], text[0])
            return 1, key if len(key) > 1 or key.isprintable() else ""
        if len(text) == 1:
            return 0, ""
        if text[1] not in "[O":  # twice the key, or one with Alt
            return (1, "escape") if text[1] == ESCAPE else (2, "")
        for size in range(3, min(len(text), LONGEST) + 1):
            if text[size - 1].isalpha() or text[size - 1] == "~":
                return size, _SEQUENCES.get(text[1:size], "")
        return (LONGEST, "") if len(text) >= LONGEST else (0, "")
