"""What a caller of a view may give: wrong input is told by name, value and rule."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

from controlplane.errors import SettingsError
from projections import Worker, WorkerKey


def check_worker(field: str, value: object) -> WorkerKey:
    """Who ``value`` is; raise `SettingsError` if it is no worker of a view."""
    if not isinstance(value, Worker):
        rule = "a Worker, as pick returns it: a name alone may be of any namespace"
        raise SettingsError(field=field, value=value, rule=rule)
    return value.namespace, value.worker_id


def check_workers(field: str, value: object) -> list[WorkerKey]:
    """Who they are; raise `SettingsError` for what is no collection of workers."""
    if not isinstance(value, Iterable) or isinstance(value, str):
        rule = "a collection of Workers, as pick returns them"
        raise SettingsError(field=field, value=value, rule=rule)
    return [check_worker(field, worker) for worker in value]


def check_chosen(offered: Sequence[Worker], chosen: object) -> Worker:
    """What a caller's policy returned; raise `SettingsError` if it was not offered."""
    if isinstance(chosen, Worker):
        who = chosen.namespace, chosen.worker_id
        if any(who == (worker.namespace, worker.worker_id) for worker in offered):
            return chosen
    rule = "a callable that returns one of the workers that it is given"
    raise SettingsError(field="policy's choice", value=chosen, rule=rule)


def check_chance(value: object) -> None:
    """Raise `SettingsError` for what gives no random numbers."""
    if not callable(getattr(value, "random", None)):
        rule = "a source of random numbers such as random.Random(7), or None"
        raise SettingsError(field="rng", value=value, rule=rule)


def check_seconds(field: str, value: object, *, above: bool = False) -> float:
    """Return ``value`` if it is a time, ``above`` 0 or at least 0.

    A finite one: others read of it in JSON, which has no infinity. Raises
    `SettingsError`.
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        enough = value > 0 if above else value >= 0
        if enough and value <= sys.float_info.max:
            return float(value)
    rule = f"a finite number of seconds, {'more than 0' if above else '0 or more'}"
    raise SettingsError(field=field, value=value, rule=rule)
