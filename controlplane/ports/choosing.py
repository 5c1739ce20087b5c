"""What one claim asks for, what it chooses by what is known, and when it may not."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

import msgspec

from controlplane.errors import LogUnavailableError, PortsExhaustedError
from controlplane.identifiers import new_uuid7
from controlplane.settings import Settings
from events import PortOwner, Revision
from projections import Lacking, PortBlock, Want, choose

from .watching import HostWatch


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """Blocks to claim, and what was known of them when they were chosen."""

    blocks: tuple[PortBlock, ...]
    """One for each want, in their order."""
    expected: Mapping[int, Revision]
    """Where the last record of each port stands, by what it was chosen by.

    Not by what is known later: a look that ends meanwhile may have found a holder, and
    a claim that expects the holder's record is stored on top of it.
    """
    elsewhere: bool
    """Whether it does not go on beside the last one."""

    @property
    def ports(self) -> list[int]:
        """All of them."""
        return [port for block in self.blocks for port in block]


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """What is claimed, where and for whom."""

    watch: HostWatch
    wants: tuple[Want, ...]
    owner: PortOwner
    lease_ttl_s: float
    bind_check: bool
    began: float

    def choose(
        self, cooldown_s: float, chance: Random, *, by_the_log: bool = False
    ) -> Choice | Lacking:
        """Blocks to claim, by what is known; or what is lacking.

        ``by_the_log``: with the ports, too, that only claims of this process which are
        not decided yet keep others off. They are not to be claimed, but who lacks
        something in spite of them lacks it by the log.
        """
        watch = self.watch
        starts = choose(
            watch.known,
            self.wants,
            now=watch.now,
            cooldown_s=cooldown_s,
            shunned=watch.certain() if by_the_log else watch.shunned,
            chance=chance,
            busy=watch.in_use() if by_the_log else (),
            near=watch.beside,
        )
        if isinstance(starts, Lacking):
            return starts
        blocks = tuple(
            PortBlock(watch.host, start, want.size, new_uuid7())
            for start, want in zip(starts, self.wants, strict=True)
        )
        ahead = -1 if watch.beside is None else starts[0] - watch.beside
        if not by_the_log:
            watch.beside = blocks[-1].start + blocks[-1].size
        return Choice(
            blocks=blocks,
            expected={p: watch.known.expected(p) for b in blocks for p in b},
            elsewhere=not 0 <= ahead < blocks[0].size,
        )

    def exhausted(self, lacking: Lacking) -> PortsExhaustedError:
        """There is no room for it."""
        return PortsExhaustedError(
            wanted=lacking.wanted,
            free=lacking.free,
            largest_hole=lacking.largest_hole,
            resting=lacking.resting,
            busy=lacking.busy,
            unreadable=lacking.unreadable,
            host=self.watch.host,
            within=lacking.within,
            reason=lacking.name,
        )


async def await_settling(watch: HostWatch, settings: Settings, url: str) -> None:
    """Wait until a claim of this process on the host is decided, if any is not.

    Raises `LogUnavailableError` if that takes longer than an append may.
    """
    within_s = max(settings.append_timeout_s, settings.connect_timeout_s)
    if not await watch.settled(within_s):
        reason = "claims of this process are in doubt there, and no answer came"
        doing = f"claiming ports of {watch.host}"
        raise LogUnavailableError(url=url, doing=doing, reason=reason)
