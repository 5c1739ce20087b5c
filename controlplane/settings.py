"""Every number that may be set, with its unit and its reason."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from .errors import SettingsError

INT_MAX: Final = 2**63 - 1
"""The broker keeps its limits in 64 bits."""
NUMBER_MAX: Final = 1e9
"""Seconds, above all: the broker counts them in nanoseconds and 64 bits."""
BEATS_MIN: Final = 2
STREAM_BYTES_MIN: Final = 1 << 20
"""Less than the largest message, and a stream could refuse one for good."""
SHARES: Final = frozenset({"guard_share", "log_reserve"})
UNLIMITED: Final = frozenset({"log_max_bytes"})
MAY_BE_ZERO: Final = frozenset({"port_cooldown_s"})
COUNTS: Final[Mapping[str, tuple[int, int]]] = {
    "publish_batch_max": (1, 1000),
    "view_max_bytes": (STREAM_BYTES_MIN, INT_MAX),
    "reports_max_bytes": (STREAM_BYTES_MIN, INT_MAX),
}
"""Least and most of the counts that have bounds of their own."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """How the parts behave. The defaults suit a production cell.

    Raises `SettingsError` for a value that cannot work.
    """

    connect_timeout_s: float = 4.0
    """How long a call that needs the broker waits for it."""
    append_timeout_s: float = 30.0
    """How long an append is repeated while its outcome is unknown."""
    beats_per_ttl: float = 3.0
    """A worker beats this often within its lease."""
    lease_s: float = 2.0
    """The projector's lease: a new leader takes over that long after a crash."""
    head_every_s: float = 1.0
    """The leader says this often where the view stands."""
    canary_every_s: float = 0.5
    """A projector checks this often that beats can reach it."""
    blind_gap_s: float = 1.0
    """A longer gap between canary returns counts as blind."""
    canary_lost_s: float = 5.0
    """A leader whose canary has not returned for so long stands down."""
    guard_share: float = 0.5
    """More than this share of all lives expiring at once is held back…"""
    guard_min: int = 5
    """…if it is at least so many…"""
    guard_hold_s: float = 30.0
    """…for at most so long."""
    snapshot_every: int = 1000
    """Deltas between snapshots…"""
    snapshot_records: int = 50_000
    """…or so many records: those of ports make no delta."""
    publish_batch_max: int = 500
    """Deltas in one atomic batch (the broker allows 1000)."""
    checkpoint_every_s: float = 5.0
    """A router writes its checkpoint file so often, and on exit."""
    presence_ttl_s: float = 10.0
    """A router that said nothing for so long is no longer live."""
    presence_lapse_s: float = 60.0
    """A router that went without goodbye is called missing for so long."""
    load_every_s: float = 0.5
    """A worker's load is sent so often at most, however often it is reported."""
    load_fresh_s: float = 5.0
    """A load report counts in full for so long…"""
    load_forget_s: float = 15.0
    """…then less and less, and no more after so long."""
    behind_max_s: float = 1.0
    """A router behind the head for so long fetches what it lacks."""
    view_max_age_s: float = 24 * 3600.0
    """The view stream keeps deltas so long…"""
    view_max_bytes: int = 256 << 20
    """…and at most so many bytes of them. The broker reserves that much."""
    reports_max_bytes: int = 64 << 20
    """Room for what routers reported; they are kept for a week at most."""
    port_cooldown_s: float = 5.0
    """A port that was let go rests so long before another claim may have it; 0: not."""
    log_max_bytes: int = -1
    """Limit of the log; -1: none. Near it only what frees is let in."""
    log_reserve: float = 0.1
    """The least share of a limited log that is kept for leaving and expiry."""

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        for field, default in zip(
            self.__struct_fields__, self.__struct_defaults__, strict=True
        ):
            value = getattr(self, field)
            rule = _broken_rule(field, value, type(default))
            if rule is not None:
                raise SettingsError(field=field, value=value, rule=rule)


def _broken_rule(field: str, value: object, kind: type) -> str | None:
    """The rule that ``value`` breaks as ``field``; None: it will do."""
    if kind is int:
        least, most = COUNTS.get(field, (1, INT_MAX))
        if type(value) is int and (
            least <= value <= most or (field in UNLIMITED and value == -1)
        ):
            return None
        bounds = f"of at least {least}" if most == INT_MAX else f"{least} to {most}"
        return f"a whole number {bounds}" + (", or -1" if field in UNLIMITED else "")
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "a number"
    return _broken_bound(field, value)


def _broken_bound(field: str, value: float) -> str | None:
    """As `_broken_rule`, of what is a number of any kind."""
    if field in SHARES:
        return None if 0 < value < 1 else "a share: above 0 and below 1"
    if field == "beats_per_ttl" and value < BEATS_MIN:
        return f"at least {BEATS_MIN} beats in a lease: one may be lost"
    may_be_zero = field in MAY_BE_ZERO
    if 0 < value <= NUMBER_MAX or (value == 0 and may_be_zero):
        return None
    floor = "0 or above" if may_be_zero else "above 0"
    return f"{floor}, at most {NUMBER_MAX:g}"
