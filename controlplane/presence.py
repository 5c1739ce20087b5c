"""Routers say that they are there, and where they stand; others ask who is.

An entry of a bucket per router. Whether it is live is judged by the broker's clock.
A router that says goodbye empties its entry; one whose entry grew old without goodbye
is missing, for a while, not absent.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterable
from datetime import datetime
from typing import Final

import msgspec

from events import Revision, decode_token, read_or_none

from .broker import Broker, Message, Outgoing
from .eventlog import EventLog
from .settings import Settings
from .topology import Names


class Presence(msgspec.Struct, frozen=True, kw_only=True):
    """What a router says of itself."""

    name: str
    epoch: str | None
    revision: Revision
    digest: str
    source: str
    stale_for_s: float
    fingerprint: str = ""
    """Identifies the record at ``fingerprint_at`` as the router has it; empty: none."""
    fingerprint_at: Revision = 0


class RouterReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a router saw at a moment, kept for looking back."""

    presence: Presence
    at: datetime
    """The router's clock, for information."""
    ejected: tuple[str, ...]
    """``namespace/worker_id`` of those that this router keeps away from."""
    reason: str
    """``regular``, ``resync: …``, ``ejected``, ``contact lost``, ``divergence`` (with
    the digest that was wrong), ``stopped``."""
    ejected_for_s: tuple[float, ...] = ()
    """How long each of the ``ejected`` still was; empty: not said."""


class KeptReport(msgspec.Struct, frozen=True):
    """A report as it is kept."""

    stored_at: datetime
    """The broker's clock. One that could not be sent at once is stored later."""
    report: RouterReport


class RouterSeen(msgspec.Struct, frozen=True, kw_only=True):
    """A router as others see it."""

    presence: Presence
    age_s: float
    """Seconds since it said so, by the broker's clock."""
    live: bool


class WaitResult(msgspec.Struct, frozen=True, kw_only=True):
    """Whether routers reached a revision; ``missing`` names those that have not."""

    reached: bool
    missing: tuple[str, ...] = ()


_DECODER: Final = msgspec.json.Decoder(Presence)
_REPORT: Final = msgspec.json.Decoder(RouterReport)


async def say_presence(broker: Broker, names: Names, presence: Presence) -> int:
    """Store ``presence`` as the router's entry; at which sequence."""
    payload = msgspec.json.encode(presence)
    return await _store(broker, names, presence.name, payload)


async def say_goodbye(broker: Broker, names: Names, name: str, said: int) -> None:
    """Empty the router's entry, which it stored at ``said``: it left by itself.

    Raises `AppendConflictError` when another of that name spoke since: it is there.
    """
    await _store(broker, names, name, b"", expected=said)


async def say_report(broker: Broker, names: Names, report: RouterReport) -> None:
    """Store ``report`` beside the router's earlier ones."""
    subject = names.report(report.presence.name)
    message = Outgoing(subject=subject, payload=msgspec.json.encode(report))
    await broker.store(names.report_stream, message, timeout_s=2.0)


async def reports(
    broker: Broker, names: Names, router: str
) -> tuple[RouterReport, ...]:
    """What a router reported, in order, as far back as it is kept."""
    found = [kept async for kept in kept_reports(broker, names, router)]
    return tuple(kept.report for kept in found)


async def kept_reports(
    broker: Broker, names: Names, router: str | None = None
) -> AsyncIterator[KeptReport]:
    """Yield what a router, or every one, reported, in order, as far as it is kept.

    What is no report, or is another's than its subject says, is passed over.
    """
    subject = None if router is None else names.report(router)
    async for batch in broker.read(names.report_stream, subject=subject):
        for message in batch:
            report = report_in(message, names)
            if report is not None:
                yield KeptReport(message.stored_at, report)


def report_in(message: Message, names: Names) -> RouterReport | None:
    """The report in ``message``; None: it is none, or another's than it says."""
    report = read_or_none(_REPORT, message.payload)
    if report is None or message.subject != names.report(report.presence.name):
        return None
    return report


async def _store(
    broker: Broker,
    names: Names,
    name: str,
    payload: bytes,
    expected: int | None = None,
) -> int:
    bucket = names.presence_bucket
    message = Outgoing(
        subject=names.entry(bucket, name),
        payload=payload,
        expect_subject_sequence=expected,
    )
    stored = await broker.store(f"KV_{bucket}", message, timeout_s=2.0)
    return stored.sequence


async def routers(
    broker: Broker, names: Names, settings: Settings
) -> tuple[RouterSeen, ...]:
    """Every router that is live, or that lapsed lately without goodbye, by name."""
    messages = [message async for message in _entries(broker, names)]
    now = (await broker.state(f"KV_{names.presence_bucket}")).now
    found = (_seen(message, now, settings) for message in messages)
    return tuple(
        sorted((r for r in found if r is not None), key=lambda r: r.presence.name)
    )


async def goodbyes(broker: Broker, names: Names) -> frozenset[str]:
    """The names of routers that left by themselves lately, by their empty entries."""
    left = [m.subject async for m in _entries(broker, names) if not m.payload]
    found = (decode_token(subject.rsplit(".", 1)[-1]) for subject in left)
    return frozenset(name for name in found if name is not None)


async def _entries(broker: Broker, names: Names) -> AsyncIterator[Message]:
    stream = f"KV_{names.presence_bucket}"
    async for batch in broker.read(stream, last_per_subject=True):
        for message in batch:
            yield message


def _seen(message: Message, now: datetime, settings: Settings) -> RouterSeen | None:
    if not message.payload:
        return None
    presence = read_or_none(_DECODER, message.payload)
    if presence is None:
        return None
    if decode_token(message.subject.rsplit(".", 1)[-1]) != presence.name:
        return None
    age_s = max(0.0, (now - message.stored_at).total_seconds())
    if age_s > settings.presence_ttl_s + settings.presence_lapse_s:
        return None
    return RouterSeen(
        presence=presence, age_s=age_s, live=age_s <= settings.presence_ttl_s
    )


async def names_astray(log: EventLog, seen: Iterable[RouterSeen]) -> frozenset[str]:
    """Routers whose last known record the log does not hold: they follow lost history.

    A record that was purged is no lost one.
    """
    known: dict[tuple[Revision, str], bool] = {}
    astray: set[str] = set()
    for router in seen:
        said = router.presence
        place = (said.fingerprint_at, said.fingerprint)
        if not said.fingerprint:
            continue
        if place not in known:
            record = await log.at(said.fingerprint_at)
            known[place] = record is None or record.fingerprint == said.fingerprint
        if not known[place]:
            astray.add(said.name)
    return frozenset(astray)


def judge_wait(
    seen: Iterable[RouterSeen],
    epoch: str | None,
    revision: Revision,
    wanted: int | None,
    *,
    log_end: Revision,
    astray: Collection[str] = (),
) -> WaitResult:
    """Whether ``wanted`` routers (None: all) have reached ``revision``.

    Only the current ``epoch`` counts. No live router: not reached. With a count,
    lapsed routers are not waited for. ``log_end``: where the log ended after ``seen``
    was; a router that stands beyond it stands in lost history. ``astray``: names of
    others that do, see `names_astray`.
    """
    everyone = tuple(seen)
    live = [router for router in everyone if router.live]
    reached = {
        router.presence.name
        for router in live
        if router.presence.epoch == epoch
        and revision <= router.presence.revision <= log_end
        and router.presence.name not in astray
    }
    missing = tuple(r.presence.name for r in everyone if r.presence.name not in reached)
    if wanted is None:
        return WaitResult(reached=bool(live) and not missing, missing=missing)
    return WaitResult(reached=len(reached) >= wanted, missing=missing)
