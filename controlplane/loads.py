"""Load reports: how busy a worker is, said beside the log and never stored.

A report may be lost, and soon fades: it helps routers to choose, and nothing else may
depend on it. Its subject names the worker.
"""

from __future__ import annotations

from typing import Final

import msgspec

from events import Incarnation, Namespace, WorkerId, decode_token, read_or_none

from .errors import SettingsError

COUNT_MAX: Final = 2**31
"""More requests than any engine holds."""


class LoadReport(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """How busy one incarnation is; None: not known. All None takes it back."""

    incarnation: Incarnation
    kv_usage: float | None = None
    """The share of its KV cache in use, 0 to 1."""
    running: int | None = None
    """Requests that it works on."""
    waiting: int | None = None
    """Requests that it took and has no room for yet."""


_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(LoadReport)


def checked_load(
    incarnation: Incarnation,
    *,
    kv_usage: float | None,
    running: int | None,
    waiting: int | None,
) -> LoadReport:
    """The report. Raises `SettingsError` for what can be no load."""
    return LoadReport(
        incarnation=incarnation,
        kv_usage=_checked_share("kv_usage", kv_usage),
        running=_checked_count("running", running),
        waiting=_checked_count("waiting", waiting),
    )


def encode_load(report: LoadReport) -> bytes:
    """The report as msgpack."""
    return _ENCODER.encode(report)


def decode_load(payload: bytes) -> LoadReport | None:
    """The report in ``payload``; None: it is none, or says what can be no load."""
    report = read_or_none(_DECODER, payload)
    if report is None:
        return None
    fits = (
        _is_share(report.kv_usage)
        and _is_count(report.running)
        and _is_count(report.waiting)
    )
    return report if fits else None


def reporting_worker(subject: str) -> tuple[Namespace, WorkerId] | None:
    """Whose report comes on a relative ``subject``; None: nobody's."""
    kind, _, rest = subject.partition(".")
    namespace, _, token = rest.partition(".")
    worker_id = decode_token(token) if kind == "load" else None
    return None if worker_id is None else (namespace, worker_id)


def _checked_share(field: str, value: float | None) -> float | None:
    if value is None:
        return None
    number = not isinstance(value, bool) and isinstance(value, int | float)
    if number and _is_share(value):
        return float(value)
    raise SettingsError(field=field, value=value, rule="a number from 0 to 1")


def _checked_count(field: str, value: float | None) -> int | None:
    if value is None:
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # engines' metrics are floats
    if isinstance(value, int) and not isinstance(value, bool) and _is_count(value):
        return value
    rule = f"a whole number from 0 to {COUNT_MAX}"
    raise SettingsError(field=field, value=value, rule=rule)


def _is_share(value: float | None) -> bool:
    return value is None or 0 <= value <= 1  # which NaN is not


def _is_count(value: int | None) -> bool:
    return value is None or 0 <= value <= COUNT_MAX
