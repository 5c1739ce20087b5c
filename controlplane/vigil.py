"""Whether a silent router is gone: while the broker was away, nobody could speak.

Presence grows old by the broker's clock, also while nobody can renew it. After an
outage of a minute every entry is gone, those of living routers too, and the first that
speaks again would be taken for all there are. So before a gate says that all routers
have something, it asks who was there before: reports are kept for long, with the time
when each was stored. Whoever was there, and did not say goodbye, is missing until it
speaks, or until the gate itself had contact for as long as a router may be silent.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection
from typing import Final

from .broker import Broker, Message
from .presence import goodbyes, report_in
from .settings import Settings
from .topology import Names

SPEAKING_S: Final = 15.0
"""A router reports each 10 s. If none does for longer, perhaps none could speak."""
LOOK_S: Final = 1.0
"""Between two looks, or for one, so much at most passes while there is contact."""
BLOCK: Final = 256
LEFT: Final = "stopped"
"""The reason of a router's last report, if it left by itself."""


class Vigil:
    """One gate's own knowledge of how long the broker has been there."""

    def __init__(
        self,
        broker: Broker,
        names: Names,
        settings: Settings,
        clock: Callable[[], float],
    ) -> None:
        """Ask through ``broker``; ``clock``: monotonic seconds."""
        self._broker, self._names = broker, names
        self._settings, self._clock = settings, clock
        self._since = self._looked_at = clock()
        self._lately: frozenset[str] | None = None
        """Who was there, asked since there is contact; None: not asked yet."""

    def looked(self) -> None:
        """The broker answered just now. Call it for each look."""
        now = self._clock()
        if now - self._looked_at > LOOK_S:
            self._since, self._lately = now, None
        self._looked_at = now

    async def unheard(self, seen: Collection[str]) -> tuple[str, ...]:
        """Who may be there besides the routers ``seen``, and had no time to say so.

        Raises `LogUnavailableError`, as every look.
        """
        if self._clock() - self._since >= self._settings.presence_ttl_s:
            return ()
        if self._lately is None:
            self._lately = await lately_there(self._broker, self._names, self._settings)
        unheard = self._lately.difference(seen)
        if unheard:
            unheard -= await goodbyes(self._broker, self._names)
        return tuple(sorted(unheard))


async def lately_there(
    broker: Broker, names: Names, settings: Settings
) -> frozenset[str]:
    """Routers that reported in the last minute in which routers could speak.

    That is as long as an entry of presence is kept, and the time is left out in which
    no router at all reported for more than `SPEAKING_S`. Who left by itself is not
    among them.
    """
    state = await broker.state(names.report_stream)
    kept_s = settings.presence_ttl_s + settings.presence_lapse_s
    later, speaking_s = state.now, 0.0
    reasons: dict[str, str] = {}
    async for message in _backwards(broker, names.report_stream, state.last_sequence):
        silence_s = (later - message.stored_at).total_seconds()
        later = min(later, message.stored_at)
        if silence_s <= SPEAKING_S:
            speaking_s += max(0.0, silence_s)
        if speaking_s > kept_s:
            break
        report = report_in(message, names)
        if report is not None:
            reasons.setdefault(report.presence.name, report.reason)
    return frozenset(name for name, reason in reasons.items() if reason != LEFT)


async def _backwards(broker: Broker, stream: str, last: int) -> AsyncIterator[Message]:
    """What the stream holds up to ``last``, the newest first."""
    first = (await broker.state(stream)).first_sequence
    while last >= first > 0:
        after = max(first - 1, last - BLOCK)
        found = [
            message
            async for batch in broker.read(stream, after=after, until=last)
            for message in batch
        ]
        for message in reversed(found):
            yield message
        last = after
