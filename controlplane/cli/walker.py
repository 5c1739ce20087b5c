"""What each key of ``replay --step`` does, and the screen after it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from rich.text import Text

from controlplane.playback import Stop, Walk
from events import Undecodable, UnknownEvent

from .lens import Lens
from .records import record_parts
from .step_lines import Frame, changes_of, empty_screen, help_screen, moment_screen

PAGE: Final = 20
LEAVING: Final = frozenset({"q", "quit", "escape"})
PROMPTS: Final = {"/": "search: ", ":": "revision: "}


class Walker:
    """A walk that keys direct. Draw `screen` after each `press`."""

    def __init__(self, walk: Walk, lens: Lens) -> None:
        """Direct ``walk``, which has begun; show what ``lens`` shows."""
        self._walk, self._lens = walk, lens
        self._said = self._wanted = self._typed = ""
        self._prompt = ""
        """What is being asked for; empty: nothing."""
        self._helping = False
        self._scroll = 0
        self._moves: dict[str, Callable[[], Awaitable[bool]]] = {
            "right": self._walk.forward,
            "left": self._walk.back,
            "page down": lambda: self._page(self._walk.forward),
            "page up": lambda: self._page(self._walk.back),
            "home": self._home,
            "end": self._end,
            "c": lambda: self._walk.find(self._shows_change),
            "C": lambda: self._walk.find(self._shows_change, back=True),
            "p": lambda: self._walk.find(_is_poison),
            "P": lambda: self._walk.find(_is_poison, back=True),
            "n": lambda: self._search(back=False),
            "N": lambda: self._search(back=True),
        }
        same = {"l": "right", " ": "right", "h": "left", "g": "home", "G": "end"}
        self._moves |= {key: self._moves[name] for key, name in same.items()}

    def screen(self, width: int, height: int) -> list[Text]:
        """As many lines as the terminal has."""
        said = f"{PROMPTS[self._prompt]}{self._typed}_" if self._prompt else self._said
        frame = Frame(
            width=width,
            height=height,
            last=self._walk.last,
            lens=self._lens,
            said=said,
            scroll=self._scroll,
        )
        if self._helping:
            return help_screen(frame)
        stop = self._walk.stop
        return empty_screen(frame) if stop is None else moment_screen(stop, frame)

    async def press(self, key: str) -> bool:
        """Do what the key says; False: it says to leave."""
        self._said = ""
        if self._prompt:
            await self._type(key)
        elif self._helping:
            self._helping = False
        elif key in LEAVING:
            return False
        elif key == "?":
            self._helping = True
        elif key in PROMPTS:
            self._prompt, self._typed = key, ""
        elif key in ("up", "down"):
            self._scroll += 1 if key == "down" else -1
        elif key in self._moves:
            self._scroll = 0
            if not await self._moves[key]():
                self._said = self._said or _nothing(key)
        return True

    async def _type(self, key: str) -> None:
        """A key at a prompt."""
        if key in ("escape", "quit"):
            self._prompt = ""
        elif key == "backspace":
            self._typed = self._typed[:-1]
        elif key == "enter":
            prompt, self._prompt = self._prompt, ""
            await self._answer(prompt)
        elif len(key) == 1:
            self._typed += key

    async def _answer(self, prompt: str) -> None:
        self._scroll = 0
        if prompt == ":":
            if self._typed.isascii() and self._typed.isdecimal():
                await self._walk.to(int(self._typed))
            else:
                self._said = f"{self._typed!r} is no revision"
            return
        self._wanted = self._typed or self._wanted
        await self._search(back=False)

    async def _search(self, *, back: bool) -> bool:
        if not self._wanted:
            self._said = "search for what? /"
            return True
        wanted = self._wanted.casefold()
        if not await self._walk.find(lambda stop: wanted in _text(stop), back=back):
            where = "before" if back else "behind"
            self._said = f"{self._wanted!r} is not in any record {where} this one"
        return True

    async def _page(self, go: Callable[[int], Awaitable[bool]]) -> bool:
        """As far as there is."""
        await go(PAGE)
        return True

    async def _home(self) -> bool:
        await self._walk.home()
        return True

    async def _end(self) -> bool:
        await self._walk.end()
        return True

    def _shows_change(self, stop: Stop) -> bool:
        return bool(changes_of(stop, self._lens))


def _nothing(key: str) -> str:
    before = key in ("left", "h", "C", "P")
    match key:
        case "c" | "C":
            what = "no record {} this one changed what is shown"
        case "p" | "P":
            what = "every record {} this one can be read"
        case _:
            return "this is the first record" if before else "this is the last record"
    return what.format("before" if before else "behind")


def _is_poison(stop: Stop) -> bool:
    return isinstance(stop.record.event, UnknownEvent | Undecodable)


def _text(stop: Stop) -> str:
    """What is searched: what is seen of the record, and who said it."""
    kind, who, what = record_parts(stop.record)
    event = stop.record.event
    by = getattr(event, "by", "")
    return f"{kind.plain} {who} {what} {by} {event.event_id}".casefold()
