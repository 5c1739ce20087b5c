"""What can be claimed: blocks of consecutive ports within a range."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from events import Host, InvalidIdentityError, check_name

PORT_MIN: Final = 1024
PORT_MAX: Final = 49151
"""Below are the system's ports, above those that kernels give out for a moment."""
PORTS_MAX: Final = 900
"""Of one incarnation, so that its expiry fits one atomic batch of 1000."""


class PortRange(msgspec.Struct, frozen=True):
    """Ports from ``first`` to ``last``, both included.

    Raises `InvalidIdentityError` for a range in which nothing may be claimed.
    """

    first: int
    last: int

    def __post_init__(self) -> None:
        """Refuse what is no range of ports that may be claimed."""
        ends = (self.first, self.last)
        if (
            not all(type(end) is int for end in ends)
            or not PORT_MIN <= self.first < self.last <= PORT_MAX
        ):
            rule = f"first < last, both whole numbers from {PORT_MIN} to {PORT_MAX}"
            raise InvalidIdentityError(field="within", value=ends, rule=rule)

    def __len__(self) -> int:
        return self.last - self.first + 1

    def __contains__(self, port: object) -> bool:
        return port in range(self.first, self.last + 1)

    def __str__(self) -> str:
        return f"{self.first}-{self.last}"


DEFAULT_RANGE: Final = PortRange(20000, 30000)


class Want(msgspec.Struct, frozen=True):
    """A block of ``size`` consecutive ports, for the reason ``name``.

    Raises `InvalidIdentityError` for what can never be granted.
    """

    name: str
    size: int
    within: PortRange = DEFAULT_RANGE

    def __post_init__(self) -> None:
        """Refuse what no host could give."""
        if self.name != "":
            check_name("reason", self.name)
        if not isinstance(self.within, PortRange):
            rule = "a PortRange, as PortRange(20000, 30000)"
            raise InvalidIdentityError(field="within", value=self.within, rule=rule)
        if type(self.size) is not int or not 1 <= self.size <= len(self.within):
            most = len(self.within)
            rule = (
                f"a whole number from 1 to {min(most, PORTS_MAX)}: {self.within} has "
                f"{most} ports, and one incarnation has at most {PORTS_MAX}"
            )
            raise InvalidIdentityError(field="size", value=self.size, rule=rule)


class PortBlock(msgspec.Struct, frozen=True):
    """Consecutive ports of a host, held by one claim. Iterates over their numbers."""

    host: Host
    start: int
    size: int
    claim_id: str

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.start, self.start + self.size))

    def __len__(self) -> int:
        return self.size

    def __contains__(self, port: object) -> bool:
        return port in range(self.start, self.start + self.size)


class Lacking(msgspec.Struct, frozen=True, kw_only=True):
    """No place for a want, and how its range looks beside the others' blocks.

    ``resting`` ports become free by waiting; ``largest_hole`` is of ``free`` ones. What
    somebody found in use outside the log is ``busy``, also as long as it rests.
    """

    name: str
    within: PortRange
    wanted: int
    free: int
    largest_hole: int
    resting: int
    busy: int = 0
    unreadable: int = 0


class Room(msgspec.Struct, frozen=True, kw_only=True):
    """How many ports of a range are free and resting; the others are taken."""

    free: int
    largest_hole: int
    resting: int


def check_wants(wants: Sequence[Want], held: int = 0) -> Sequence[Want]:
    """Return ``wants`` if a life that has ``held`` ports may have them, else raise."""
    count = sum(want.size for want in wants)
    if held + count > PORTS_MAX:
        sizes = {str(want.within): len(want.within) for want in wants}
        ranges = ", ".join(f"{within} has {size}" for within, size in sizes.items())
        rule = (
            f"at most {PORTS_MAX} ports for one incarnation"
            + (f", which has {held} already" if held else "")
            + f" ({ranges}): its expiry has to fit one atomic batch"
        )
        raise InvalidIdentityError(field="size", value=count, rule=rule)
    return wants
