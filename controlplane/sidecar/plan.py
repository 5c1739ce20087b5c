"""What a sidecar is to run, and as what: checked before anything is claimed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final
from urllib.parse import quote, urlsplit

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
HOST: Final = "host"
FACTS: Final = (HOST, "model", "namespace", "worker_id")
"""What has a name in a command besides ports."""
SCHEMES: Final = ("http", "https")
LOCALHOST: Final = "localhost"
HOST_MAX: Final = 254
"""Characters of a name that DNS can have, the dot of its root with them."""
_HOST_PART: Final = re.compile(r"[A-Za-z0-9_-]{1,63}")


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
        for field, url in self._urls():
            check_places(field, url, known)
        spec = self.spec
        facts = (spec.namespace, spec.worker_id)
        self.check_urls(
            **{
                name: fact
                for name, fact in zip(("namespace", "worker_id"), facts, strict=True)
                if fact is not None
            }
        )

    def check_urls(self, **facts: str) -> None:
        """Raise `SettingsError` for a URL that cannot be one with these ``facts``.

        What nobody knows before the ports are claimed is taken for something usual.
        """
        values = {**dict.fromkeys((*self.ports, *FACTS), "1"), HOST: LOCALHOST}
        values |= {"model": self.spec.model, **facts}
        for field, url in self._urls():
            _check_url(field, url, _filled_url(url, values))

    def at(self, ports: Mapping[str, PortBlock], facts: Mapping[str, str]) -> Engine:
        """What is run and asked: all names filled in."""
        starts = {name: str(block.start) for name, block in ports.items()}
        values = {**facts, **starts}
        metrics, adapters = self.metrics, self.adapters
        return Engine(
            command=tuple(fill(word, values) for word in self.command),
            health=_filled_url(self.health, values),
            metrics=None if metrics is None else _filled_url(metrics, values),
            adapters=None if adapters is None else _filled_url(adapters, values),
        )

    def _urls(self) -> Iterator[tuple[str, str]]:
        if self.health not in (TCP, NONE):
            yield "health", self.health
        if self.metrics is not None:
            yield "metrics", self.metrics
        if self.adapters is not None:
            yield "adapters-url", self.adapters


class Engine(msgspec.Struct, frozen=True, kw_only=True):
    """The command, and where its state is asked for, as in `Plan`; without names."""

    command: tuple[str, ...]
    health: str
    metrics: str | None
    adapters: str | None


def _filled_url(url: str, values: Mapping[str, str]) -> str:
    """``url`` with ``values`` percent-encoded in it, but for a slash.

    A host that is an IPv6 address stands in brackets, whether ``url`` has them or not.
    """
    encoded = {name: quote(value) for name, value in values.items()}
    host = values[HOST]
    encoded[HOST] = f"[{host}]" if ":" in host else host
    return fill(url.replace(f"[{{{HOST}}}]", f"{{{HOST}}}"), encoded)


def _check_url(field: str, url: str, filled: str) -> None:
    rule = f"a URL of {' or '.join(SCHEMES)}, as http://127.0.0.1:{{http}}/{field}"
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
    host = split.hostname or ""
    if ":" not in host and not _is_host(host):
        rule = (
            "a URL with a host: parts of 1 to 63 letters, digits, - and _, and dots; "
        )
        rule += f"its host is {host!r}"
        raise SettingsError(field=field, value=url, rule=rule)


def _is_host(name: str) -> bool:
    """Whether it can be looked up; who asks for another name gets no answer."""
    parts = name.removesuffix(".").split(".")
    return len(name) <= HOST_MAX and all(map(_HOST_PART.fullmatch, parts))
