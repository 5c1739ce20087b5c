"""Every number that may be set, with its unit and its reason."""

from __future__ import annotations

import msgspec

from .errors import SettingsError


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
    """Deltas between snapshots."""
    publish_batch_max: int = 500
    """Deltas in one atomic batch (the broker allows 1000)."""
    checkpoint_every_s: float = 5.0
    """A router writes its checkpoint file so often, and on exit."""
    presence_ttl_s: float = 10.0
    """A router that said nothing for so long is no longer live."""
    presence_lapse_s: float = 60.0
    """A router that went without goodbye is called missing for so long."""
    behind_max_s: float = 1.0
    """A router behind the head for so long fetches what it lacks."""
    view_max_age_s: float = 24 * 3600.0
    """The view stream keeps deltas so long…"""
    view_max_bytes: int = 256 << 20
    """…and at most so many bytes of them. The broker reserves that much."""
    reports_max_bytes: int = 64 << 20
    """Room for what routers reported; they are kept for a week at most."""
    log_max_bytes: int = -1
    """Limit of the log; -1: none. Near it only what frees is let in."""
    log_reserve: float = 0.1
    """The least share of a limited log that is kept for leaving and expiry."""

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        for field in self.__struct_fields__:
            value = getattr(self, field)
            if field != "log_max_bytes" and not value > 0:
                raise SettingsError(field=field, value=value, rule="must be above 0")
        if self.beats_per_ttl < 2:  # noqa: PLR2004 - one lost beat must not kill
            rule = "at least 2 beats in a lease"
            raise SettingsError(
                field="beats_per_ttl", value=self.beats_per_ttl, rule=rule
            )
        if not self.guard_share < 1 or not self.log_reserve < 1:
            value = (self.guard_share, self.log_reserve)
            rule = "shares are below 1"
            raise SettingsError(
                field="guard_share, log_reserve", value=value, rule=rule
            )
