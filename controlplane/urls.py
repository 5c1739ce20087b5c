"""The broker's URLs, checked before anything tries to reach them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from urllib.parse import urlsplit

from .errors import SettingsError

SCHEMES: Final = ("nats", "tls", "ws", "wss")
RULE: Final = "URLs of NATS servers, as nats://10.0.0.7:4222 (or tls, ws, wss)"


def check_urls(asked: str | Sequence[str]) -> list[str]:
    """Each of the URLs; a text may hold several, with commas between.

    Raises `SettingsError` for what is none, and if there is none.
    """
    texts = [asked] if isinstance(asked, str) else asked
    if not isinstance(texts, Sequence) or not all(isinstance(t, str) for t in texts):
        raise SettingsError(field="url", value=asked, rule=RULE)
    urls = [part.strip() for text in texts for part in text.split(",") if part.strip()]
    if not urls:
        raise SettingsError(field="url", value=asked, rule=RULE)
    for url in urls:
        if not _is_server(url):
            raise SettingsError(field="url", value=_without_login(url), rule=RULE)
    return urls


def _is_server(url: str) -> bool:
    if any(c.isspace() or not c.isprintable() for c in url):
        return False
    try:
        parts = urlsplit(url if "://" in url else f"nats://{url}")
        usable = parts.port != 0 and bool(parts.hostname)
    except ValueError:
        return False
    return usable and parts.scheme in SCHEMES


def _without_login(url: str) -> str:
    """The URL as it may be shown and logged."""
    scheme, separator, _ = url.rpartition("://")
    return scheme + separator + url[len(scheme + separator) :].rpartition("@")[2]
