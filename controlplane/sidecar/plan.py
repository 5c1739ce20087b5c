"""What a sidecar is to run, and as what: checked before anything is claimed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Self
from urllib.parse import urlsplit

import msgspec

from controlplane.errors import SettingsError
from controlplane.worker import WorkerSpec
from projections import PortBlock, Want

from .environment import check_port_names
from .filling import check_places, fill
from .steps import Limits

HTTP: Final = "http"
"""The name of the block that is always claimed."""
ADDRESS: Final = "http://{host}:{http}"
TCP: Final = "tcp"
NONE: Final = "none"
FACTS: Final = ("host", "model", "namespace", "worker_id")
"""What has a name in a command besides ports."""
SCHEMES: Final = ("http", "https")


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A command, and the worker that it is. Raises `SettingsError` for what cannot be.

    ``health`` is a URL, or ``tcp``: healthy is who accepts connections at its port
    ``http``; or ``none``: whoever runs. ``metrics`` is a URL, or None: nobody asks.
    """

    command: tuple[str, ...]
    spec: WorkerSpec
    ports: dict[str, Want]
    health: str = TCP
    metrics: str | None = None
    metrics_guessed: bool = False
    """Nobody named that page: its absence is no news."""
    adapters: str | None = None
    """URL of a list of models, of which those with a parent are loaded adapters."""
    health_interval_s: float = 2.0
    probe_timeout_s: float = 5.0
    metrics_interval_s: float = 1.0
    limits: Limits = Limits()

    def __post_init__(self) -> None:
        """Refuse what could only fail later."""
        if not self.command or not self.command[0]:
            rule = "a command to run, after --"
            raise SettingsError(field="command", value=list(self.command), rule=rule)
        check_port_names(self.ports)
        taken = [name for name in self.ports if name in FACTS]
        if taken:
            rule = f"not the name of something else: {', '.join(FACTS)}"
            raise SettingsError(field="ports", value=taken[0], rule=rule)
        known = (*self.ports, *FACTS)
        for word in self.command:
            check_places("command", word, known)
        urls = {
            "health": self.health,
            "metrics": self.metrics,
            "adapters-url": self.adapters,
        }
        for field, url in urls.items():
            no_url = field != "adapters-url" and url in (TCP, NONE)
            if url is not None and not no_url:
                _check_url(field, check_places(field, url, known), known)

    def at(self, ports: Mapping[str, PortBlock], facts: Mapping[str, str]) -> Self:
        """The same with all names filled in."""
        values = {**facts, **{name: str(block.start) for name, block in ports.items()}}
        return msgspec.structs.replace(
            self,
            command=tuple(fill(word, values) for word in self.command),
            health=fill(self.health, values),
            metrics=None if self.metrics is None else fill(self.metrics, values),
            adapters=None if self.adapters is None else fill(self.adapters, values),
        )


def _check_url(field: str, url: str, known: tuple[str, ...]) -> None:
    rule = f"a URL of {' or '.join(SCHEMES)}, as http://127.0.0.1:{{http}}/{field}"
    filled = fill(url, dict.fromkeys(known, "1"))
    try:
        split = urlsplit(filled)
        usable = split.scheme in SCHEMES and bool(split.hostname) and split.port != 0
    except ValueError:
        usable = False
    if not usable or not filled.isascii() or any(c.isspace() for c in filled):
        raise SettingsError(field=field, value=url, rule=rule)
    who, at, _ = split.netloc.rpartition("@")
    if at:
        # They would not be sent, and an engine's 401 says nothing of that.
        rule = "a URL without user and password: they are not sent"
        raise SettingsError(field=field, value=url.replace(who, "***"), rule=rule)
