"""``run``: any engine as a worker of the fleet."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, TypeVar

import msgspec
from cyclopts import Parameter, validators

from controlplane.errors import SettingsError
from controlplane.plane import connect
from controlplane.sidecar import ADDRESS, HTTP, NONE, TCP, Limits, Plan, Sidecar
from controlplane.worker import WorkerSpec
from events import Capacity, InvalidIdentityError, ModelCard
from projections import DEFAULT_RANGE, PortRange, Want

from .exits import from_arguments
from .options import CONNECTING, Connecting
from .running import run as run_command
from .whole import Whole

RoleName = Literal["aggregated", "prefill", "decode", "encode"]
Many = Annotated[tuple[str, ...], Parameter(consume_multiple=False)]
Seconds = Annotated[float, Parameter(validator=validators.Number(gte=0, lte=1e9))]
Positive = Annotated[float, Parameter(validator=validators.Number(gt=0, lte=1e9))]
Times = Annotated[Whole, Parameter(validator=validators.Number(gte=1))]
EXTRA: Final = "extra."
_T = TypeVar("_T", ModelCard, Capacity)
_ENGINE: Final = Parameter(name="*", group="Worker")
_PATIENCE: Final = Parameter(name="*", group="Health, load and ending")


@_ENGINE
@dataclass(frozen=True, kw_only=True)
class AsWorker:
    """What the engine is in the fleet."""

    model: str
    """The model's name, as requests ask for it."""
    namespace: str | None = None
    """The deployment; else from CP_NAMESPACE, else "default"."""
    worker_id: str | None = None
    """A name that outlives restarts; else generated."""
    role: RoleName = "aggregated"
    """The part of a request that it serves."""
    needs: Many = ()
    """Roles that must be live for it to serve: prefill,encode. Again: or these."""
    component: str = "backend"
    """Part of the WorkerSet's name."""
    endpoint: str = "generate"
    """Part of the WorkerSet's name."""
    address: str = ADDRESS
    """How routers reach it; {host} and {name of a port} are filled in."""
    ports: Many = ()
    """Blocks of ports: NAME=SIZE, NAME=SIZE@FIRST-LAST; "http=1" is always there."""
    card: Many = ()
    """What changes answers: FIELD=VALUE, as kv_block_size=16, extra.NAME=VALUE."""
    capacity: Many = ()
    """How much it can take: FIELD=NUMBER, as max_num_seqs=256."""
    capability: Many = ()
    """Something that it can do, as "chat"."""
    adapter: Many = ()
    """A LoRA adapter that it has loaded."""
    adapters_url: str | None = None
    """Its /v1/models, if it loads adapters while it runs: those with a parent."""
    label: Many = ()
    """NAME=VALUE."""
    lease_ttl: float = 10.0
    """Seconds without a beat after which it is believed dead (5 to 3600)."""


@_PATIENCE
@dataclass(frozen=True, kw_only=True)
class Patience:
    """How the engine's state is known, and how long things may take."""

    health: str = TCP
    """URL that answers 2xx when healthy; "tcp": port http accepts; "none"."""
    health_timeout: Positive = Limits().health_timeout_s
    """Seconds after which an engine that was never healthy is ended."""
    health_interval: Positive = 2.0
    """Seconds between two probes."""
    probe_timeout: Positive = 5.0
    """Seconds that one probe, or a page of metrics, may take."""
    unhealthy_after: Times = Limits().unhealthy_after
    """Failed probes in a row after which it is "starting" again."""
    metrics: str | None = None
    """URL of its metrics, or "none"; else /metrics beside the health URL."""
    metrics_interval: Positive = 1.0
    """Seconds between two looks at its metrics."""
    drain_timeout: Seconds = Limits().drain_timeout_s
    """Seconds that draining may take: routers told, requests finished."""
    drain_min: Seconds = Limits().drain_min_s
    """Seconds after the routers know in which a request may still arrive."""
    stop_timeout: Seconds = Limits().stop_timeout_s
    """Seconds from the engine's signal to SIGKILL."""
    require_broker: bool = False
    """Do not wait for a broker that is away: exit 69."""


PATIENCE: Final = Patience()


def run(
    *command: Annotated[str, Parameter(show_default=False)],
    worker: AsWorker,
    patience: Patience = PATIENCE,
    options: Connecting = CONNECTING,
) -> int:
    """Run an engine as a worker: claim ports, start it, register, probe, drain.

    Put its command after "--"; {http} in it is its port. It exits with the engine's
    code (128 + N: killed by signal N), 75 if that cannot start or is never healthy.

    Parameters
    ----------
    command
        The engine's command, after "--".
    worker
        What the engine is in the fleet.
    patience
        How its state is known, and how long things may take.

    options
        What commands of its kind share.

    """
    with from_arguments():
        plan = made_plan(command, worker, patience)
    return run_command(
        lambda: _run(plan, options, require_broker=patience.require_broker),
        options,
        own_signals=True,
        log_level="info",
    )


async def _run(plan: Plan, options: Connecting, *, require_broker: bool) -> int:
    with from_arguments():
        plane = connect(
            options.url or None,
            cell=options.cell or None,
            creds=options.creds or None,
        )
    async with plane:
        with from_arguments():
            sidecar = Sidecar(plane, plan, require_broker=require_broker)
        return await sidecar.run()


def made_plan(command: Sequence[str], worker: AsWorker, patience: Patience) -> Plan:
    """The plan that the arguments mean.

    Raises `SettingsError` or `InvalidIdentityError` naming the argument.
    """
    spec = WorkerSpec(
        model=worker.model,
        address=worker.address,
        namespace=worker.namespace,
        worker_id=worker.worker_id,
        component=worker.component,
        endpoint=worker.endpoint,
        role=worker.role,  # type: ignore[arg-type]  # a spec takes its name
        needs=tuple(tuple(_words("needs", text)) for text in worker.needs),  # type: ignore[arg-type]  # names, too
        card=_card(worker.card),
        capacity=_fields("capacity", worker.capacity, Capacity),
        capabilities=worker.capability,
        adapters=worker.adapter,
        labels=dict(_pairs("label", worker.label)),
        lease_ttl_s=worker.lease_ttl,
    )
    url = patience.health not in (TCP, NONE)
    guessed = patience.metrics is None and url
    metrics = _beside(patience.health) if guessed else patience.metrics
    return Plan(
        command=tuple(command),
        spec=spec,
        ports=_ports(worker.ports),
        health=patience.health,
        metrics=None if metrics == NONE else metrics,
        metrics_guessed=guessed,
        adapters=worker.adapters_url,
        health_interval_s=patience.health_interval,
        probe_timeout_s=patience.probe_timeout,
        metrics_interval_s=patience.metrics_interval,
        limits=Limits(
            health_timeout_s=patience.health_timeout,
            unhealthy_after=patience.unhealthy_after,
            drain_timeout_s=patience.drain_timeout,
            drain_min_s=patience.drain_min,
            stop_timeout_s=patience.stop_timeout,
        ),
    )


def _beside(health: str) -> str:
    """Where a server that answers ``health`` is likely to have its metrics."""
    scheme, separator, rest = health.partition("://")
    return f"{scheme}{separator}{rest.partition('/')[0]}/metrics"


# ---- ports -------------------------------------------------------------------------
def _ports(given: Iterable[str]) -> dict[str, Want]:
    wants = {HTTP: Want(HTTP, 1)}
    for text in given:
        for word in _words("ports", text):
            name, want = _want(word)
            if name in wants and name != HTTP:
                raise SettingsError(field="ports", value=word, rule="each name once")
            wants[name] = want
    return wants


def _want(word: str) -> tuple[str, Want]:
    rule = "NAME=SIZE or NAME=SIZE@FIRST-LAST, as kv_events=1 or side=8@21000-22000"
    name, _, rest = word.partition("=")
    size, at, within = rest.partition("@")
    first, _, last = within.partition("-")
    numbers = (size, first, last) if at else (size,)
    named = name.replace("-", "_").isidentifier() and name[0].isalpha()
    if not (named and name.isascii() and all(map(_is_whole, numbers))):
        raise SettingsError(field="ports", value=word, rule=rule)
    area = PortRange(int(first), int(last)) if at else DEFAULT_RANGE
    return name, Want(name, int(size), area)


def _is_whole(text: str) -> bool:
    return text.isascii() and text.isdecimal()


# ---- fields ------------------------------------------------------------------------
def _words(field: str, text: str) -> list[str]:
    words = [word.strip() for word in text.split(",")]
    if not all(words):
        rule = "names with commas between, none of them empty"
        raise SettingsError(field=field, value=text, rule=rule)
    return words


def _pairs(field: str, given: Iterable[str]) -> list[tuple[str, str]]:
    pairs = []
    for text in given:
        name, separator, value = text.partition("=")
        if not (name and separator):
            raise SettingsError(field=field, value=text, rule="NAME=VALUE")
        pairs.append((name, value))
    return pairs


def _card(given: Sequence[str]) -> ModelCard:
    pairs = _pairs("card", given)
    extra = {n.removeprefix(EXTRA): v for n, v in pairs if n.startswith(EXTRA)}
    plain = [f"{n}={v}" for n, v in pairs if not n.startswith(EXTRA)]
    card = _fields("card", plain, ModelCard, but_for=("extra",))
    return msgspec.structs.replace(card, extra=extra)


def _fields(
    field: str, given: Sequence[str], kind: type[_T], but_for: tuple[str, ...] = ()
) -> _T:
    """An object of ``kind``, whose fields are texts and whole numbers."""
    known = {f.name: f.type for f in msgspec.structs.fields(kind)}
    values: dict[str, Any] = {}
    for name, text in _pairs(field, given):
        if name not in known or name in but_for:
            rule = f"one of {', '.join(n for n in known if n not in but_for)}"
            raise SettingsError(field=field, value=name, rule=rule)
        try:
            values[name] = msgspec.convert(text, known[name], strict=False)
        except msgspec.ValidationError as error:
            rule = f"{name}: {error}"
            raise InvalidIdentityError(field=field, value=text, rule=rule) from error
    return kind(**values)
