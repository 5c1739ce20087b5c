"""Which ports a claim asks for: a decision over what is known of one host.

A port is free iff it has no record, or its last one is an understood release that has
rested for the cool-down. Blocks on their size's grid are preferred, so that equal
claims fill a range exactly; among them chance decides, so that claimants who decide at
once seldom meet. Who has a block goes on beside it, for the same reason: nobody else
does. When they meet, the log decides, and the loser chooses again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, Literal, TypeAlias

import msgspec

from events import Incarnation, Revision

from .block import Lacking, PortBlock, PortRange, Room, Want
from .host_ports import HostPorts
from .picking import RandomNumbers
from .placing import survey
from .port import Held, PortState, Resting

SAMPLES: Final = 16
"""Blocks drawn blindly for a want before the whole range is looked at."""


class Reclaiming(msgspec.Struct, frozen=True, kw_only=True):
    """What stands between a life and the ports it held; each port is in one list."""

    held: tuple[int, ...]
    """This life's already."""
    claims: tuple[tuple[int, Revision], ...]
    """Free for it: the ports to claim, each with the revision to expect."""
    waiting: tuple[int, ...]
    """An earlier life of its own holds them still: they come free by its expiry."""
    resting: tuple[int, ...]
    """Another claim let them go, and they have not rested enough."""
    taken: tuple[int, ...]
    """Another life holds them, or nobody can say."""


def choose(
    known: HostPorts,
    wants: Sequence[Want],
    *,
    now: datetime | None,
    cooldown_s: float,
    shunned: Collection[int],
    chance: RandomNumbers,
    busy: Collection[int] = (),
    near: int | None = None,
) -> tuple[int, ...] | Lacking:
    """The first port of a block for each want, all disjoint; or what is lacking.

    ``now`` is a lower bound of the broker's time, None if nothing is known of it;
    ``shunned`` ports are taken, whatever the log says (a set: it is asked often). Of
    these ``busy`` are counted for themselves: something uses them outside the log. The
    block of the grid from ``near`` on is tried first.
    """
    # The large ones first: a small one finds a place between them, not the reverse.
    order = sorted(
        range(len(wants)), key=lambda n: (-wants[n].size, len(wants[n].within))
    )
    ordered = [wants[n] for n in order]
    rested = _rested_by(now, cooldown_s)
    starts = _sampled(known, ordered, rested, shunned, chance, near)
    if starts is None:
        placed = survey(known, ordered, rested, shunned, busy).place(ordered, chance)
        if isinstance(placed, Lacking):
            starts = survey(known, ordered, rested, shunned).pack(ordered)
            if starts is None:
                return placed
        else:
            starts = placed
    at = dict(zip(order, starts, strict=True))
    return tuple(at[n] for n in range(len(wants)))


def room(
    known: HostPorts,
    within: PortRange,
    *,
    now: datetime | None,
    cooldown_s: float,
    shunned: Collection[int] = (),
) -> Room:
    """How much of ``within`` could be claimed now, and how much a little later."""
    rested = _rested_by(now, cooldown_s)
    return survey(known, [Want("", 1, within)], rested, shunned).room(within)


def reclaim(
    known: HostPorts,
    blocks: Sequence[PortBlock],
    *,
    incarnation: Incarnation,
    earlier: Collection[Incarnation] = (),
    now: datetime | None,
    cooldown_s: float,
) -> Reclaiming:
    """Whether the life ``incarnation`` can have ``blocks`` again.

    ``earlier`` lives are of the same worker and process. What one's own claim (the
    block's ``claim_id``) let go needs no rest, nor what was found in use meanwhile.
    """
    rested = _rested_by(now, cooldown_s)
    ports: dict[_Standing, list[int]] = {}
    for block in blocks:
        for port in block:
            state = known.ports.get(port)
            standing = _standing(state, block.claim_id, incarnation, earlier, rested)
            ports.setdefault(standing, []).append(port)
    return Reclaiming(
        held=tuple(ports.get("held", ())),
        claims=tuple((p, known.expected(p)) for p in ports.get("free", ())),
        waiting=tuple(ports.get("waiting", ())),
        resting=tuple(ports.get("resting", ())),
        taken=tuple(ports.get("taken", ())),
    )


_Standing: TypeAlias = Literal["held", "free", "waiting", "resting", "taken"]


def _standing(
    state: PortState | None,
    claim_id: str,
    incarnation: Incarnation,
    earlier: Collection[Incarnation],
    rested: datetime,
) -> _Standing:
    match state:
        case None:
            return "free"
        case Resting():
            # Nobody claimed what is unusable: somebody found it in use, perhaps by us.
            ours = state.claim_id == claim_id or state.cause == "unusable"
            return "free" if ours or state.since <= rested else "resting"
        case Held(owner=owner):
            if owner.incarnation == incarnation and state.claim_id == claim_id:
                return "held"
            return "waiting" if owner.incarnation in earlier else "taken"
        case _:
            return "taken"


def _rested_by(now: datetime | None, cooldown_s: float) -> datetime:
    """What was released until then has rested."""
    if cooldown_s <= 0:
        return datetime.max.replace(tzinfo=UTC)
    if now is None:
        return datetime.min.replace(tzinfo=UTC)
    return now - timedelta(seconds=cooldown_s)


def _sampled(
    known: HostPorts,
    wants: Sequence[Want],
    rested: datetime,
    shunned: Collection[int],
    chance: RandomNumbers,
    near: int | None,
) -> list[int] | None:
    """Free blocks of the grid, if a few draws find them: cheap in an empty range."""
    starts: list[int] = []
    mine: set[int] = set()
    for want in wants:
        for start in _drawn(want, chance, near):
            block = range(start, start + want.size)
            if all(
                port not in mine
                and port not in shunned
                and _is_free(known.ports.get(port), rested)
                for port in block
            ):
                break
        else:
            return None
        starts.append(start)
        mine.update(block)
    return starts


def _drawn(want: Want, chance: RandomNumbers, near: int | None) -> Iterator[int]:
    """Where blocks of the grid begin: the one from ``near`` on, then by chance."""
    first, size = want.within.first, want.size
    cells = len(want.within) // size
    if near is not None and first <= near <= first + size * (cells - 1):
        yield first + -(-(near - first) // size) * size
    for _ in range(SAMPLES):
        yield first + size * int(chance.random() * cells)


def _is_free(state: PortState | None, rested: datetime) -> bool:
    return state is None or (isinstance(state, Resting) and state.since <= rested)
