"""The port table as people and programs read it: who holds what, where there is room.

A table has a state for each port and knows no clock. What is read is stretches of
neighbouring ports with one story, at a moment: a port that was let go rests until the
cool-down has passed, then it is free and not listed any more. Its state stays in the
table and in the digest all the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any, Final, Literal, assert_never

import msgspec

from events import Host, PortOwner

from . import digest
from .block import DEFAULT_RANGE, PortRange
from .port import Held, PortKey, PortState, PortTable, Resting, Unreadable

NEVER: Final = datetime.max.replace(tzinfo=UTC)


class Moment(msgspec.Struct, frozen=True):
    """When a table is looked at, and how long a port rests in the eyes of who looks."""

    at: datetime | None
    """By the broker's clock; None: time does not pass, whatever rests goes on so."""
    cooldown_s: float

    def free_at(self, resting: Resting) -> datetime:
        """When the port may be claimed again."""
        try:
            return resting.since + timedelta(seconds=self.cooldown_s)
        except OverflowError:  # an import may bring any time along
            return NEVER

    def rests(self, state: PortState) -> bool:
        """Whether the port was let go and may not be claimed yet."""
        if not isinstance(state, Resting) or self.cooldown_s <= 0:
            return False
        return self.at is None or self.at < self.free_at(state)

    def is_free(self, state: PortState) -> bool:
        """Whether the port was let go and may be claimed again."""
        return isinstance(state, Resting) and not self.rests(state)


class Stretch(msgspec.Struct, frozen=True, kw_only=True):
    """Neighbouring ports of a host with one story: a claim's block, or what it has.

    Every key is always there; what does not apply is None.
    """

    host: Host
    start: int
    end: int
    """The last port of it."""
    size: int
    state: Literal["held", "resting", "unreadable"]
    since: datetime
    """When the last of its ports came into this state."""
    claim_id: str | None = None
    owner: PortOwner | None = None
    reason: str | None = None
    """What the claim is for."""
    lease_ttl_s: float | None = None
    block_start: int | None = None
    block_size: int | None = None
    """More than ``size``: other ports of the block have another story."""
    cause: Literal["released", "expired", "unusable"] | None = None
    """Why it rests."""
    free_at: datetime | None = None
    """When the last of it has rested."""


class HostSummary(msgspec.Struct, frozen=True, kw_only=True):
    """How full a host is, in ports.

    What is free is counted in the range of the listing, and of a narrowed one all is:
    then the four numbers add up to its length.
    """

    host: Host
    held: int
    resting: int
    unreadable: int
    free: int
    largest_hole: int
    """Most neighbouring free ports: a larger block cannot be had now."""
    largest_hole_start: int | None


class PortListing(msgspec.Struct, frozen=True, kw_only=True):
    """What there is to read of a table, in order of hosts and ports.

    Of one host the digest is of that host's ports alone; a range leaves it as it is.
    """

    digest: str
    moment: Moment
    within: PortRange
    """Where what is free is counted."""
    narrowed: bool
    """Whether ``within`` was asked for: what does not touch it is not listed."""
    hosts: tuple[HostSummary, ...]
    stretches: tuple[Stretch, ...]


def list_ports(
    table: PortTable,
    moment: Moment,
    *,
    within: PortRange | None = None,
    host: Host | None = None,
) -> PortListing:
    """The table, or one ``host`` of it, at a ``moment``.

    ``within`` a range only what touches it is listed, each stretch whole. None: all
    is, and what is free is counted in the default range.
    """
    found = sorted(
        ((key, state) for key, state in table.ports.items() if host in {None, key[0]}),
        key=lambda item: item[0],
    )
    by_host: dict[Host, list[tuple[PortKey, PortState]]] = {}
    for key, state in found:
        by_host.setdefault(key[0], []).append((key, state))
    total = digest.total_of(state for _, state in found)
    stretches = _stretches((state for _, state in found), moment)
    return PortListing(
        digest=table.digest if host is None else digest.digest_text(total),
        moment=moment,
        within=within or DEFAULT_RANGE,
        narrowed=within is not None,
        hosts=tuple(
            _summary(name, [state for _, state in ports], moment, within)
            for name, ports in by_host.items()
        ),
        stretches=tuple(
            stretch
            for stretch in stretches
            if within is None or _touches(stretch, within)
        ),
    )


def port_document(listing: PortListing) -> dict[str, Any]:
    """The listing as plain data: fixed keys, whatever there is."""
    return {
        "digest": listing.digest,
        "at": _plain(listing.moment.at),
        "cooldown_s": listing.moment.cooldown_s,
        "within": [listing.within.first, listing.within.last],
        "hosts": [msgspec.to_builtins(summary) for summary in listing.hosts],
        "blocks": [msgspec.to_builtins(stretch) for stretch in listing.stretches],
    }


def _plain(value: object) -> object:
    plain: object = msgspec.to_builtins(value)
    return plain


# ---- stretches -----------------------------------------------------------------
def _stretches(states: Iterable[PortState], moment: Moment) -> Iterator[Stretch]:
    """The stretches of ``states``, which come in order; what is free is none."""
    run: list[PortState] = []
    for state in states:
        if moment.is_free(state):
            continue
        if run and not _continues(run[-1], state):
            yield _stretch(run, moment)
            run = []
        run.append(state)
    if run:
        yield _stretch(run, moment)


def _continues(before: PortState, state: PortState) -> bool:
    """Whether a port has the story of its neighbour ``before``."""
    if (before.host, before.port + 1) != (state.host, state.port):
        return False
    match before, state:
        case Held(), Held():
            return _claim(before) == _claim(state)
        case Resting(), Resting():
            story = (before.claim_id, before.cause)
            return story == (state.claim_id, state.cause)
        case _:
            return False


def _claim(held: Held) -> tuple[object, ...]:
    return (
        held.claim_id,
        held.block_start,
        held.block_size,
        held.owner,
        held.reason,
        held.lease_ttl_s,
    )


def _stretch(run: list[PortState], moment: Moment) -> Stretch:
    """One stretch of the states in ``run``, which have one story."""
    head = run[0]
    place: dict[str, Any] = {
        "host": head.host,
        "start": head.port,
        "end": run[-1].port,
        "size": len(run),
        "since": max(state.since for state in run),
    }
    match head:
        case Held():
            return Stretch(
                **place,
                state="held",
                claim_id=head.claim_id,
                owner=head.owner,
                reason=head.reason,
                lease_ttl_s=head.lease_ttl_s,
                block_start=head.block_start,
                block_size=head.block_size,
            )
        case Resting():
            return Stretch(
                **place,
                state="resting",
                claim_id=head.claim_id,
                cause=head.cause,
                free_at=max(moment.free_at(s) for s in run if isinstance(s, Resting)),
            )
        case Unreadable():
            return Stretch(**place, state="unreadable")
        case _:
            assert_never(head)


def _touches(stretch: Stretch, within: PortRange) -> bool:
    return stretch.start <= within.last and within.first <= stretch.end


# ---- hosts ---------------------------------------------------------------------
def _summary(
    host: Host, states: list[PortState], moment: Moment, only: PortRange | None
) -> HostSummary:
    if only is not None:
        states = [state for state in states if state.port in only]
    within = only or DEFAULT_RANGE
    taken = [state.port for state in states if not moment.is_free(state)]
    inside = [port for port in taken if port in within]
    ends = [within.first - 1, *inside, within.last + 1]
    size, before = max((port - before - 1, -before) for before, port in pairwise(ends))
    return HostSummary(
        host=host,
        held=sum(isinstance(state, Held) for state in states),
        resting=sum(moment.rests(state) for state in states),
        unreadable=sum(isinstance(state, Unreadable) for state in states),
        free=len(within) - len(inside),
        largest_hole=size,
        largest_hole_start=1 - before if size else None,
    )
