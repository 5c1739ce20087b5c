"""What a worker is, as its engineer says it. Checked before anything is sent."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final, TypeVar

import msgspec

from controlplane.namespaces import worker_namespace
from events import (
    Capacity,
    Incarnation,
    InvalidIdentityError,
    ModelCard,
    ModelName,
    Namespace,
    Needs,
    Role,
    Status,
    WorkerId,
    check_labels,
    check_lease_ttl_s,
    check_model,
    check_name,
    check_namespace,
    check_needs,
    check_role,
    check_status,
    check_worker_id,
)

from .addressing import check_address_with_names

DOCUMENT_BYTES_MAX: Final = 64 * 1024
MAY_BE_NONE: Final = frozenset({"max_loras", "max_lora_rank", "total_kv_blocks"})
"""Of these 0 says something: no adapters, no KV cache. Other counts begin at 1."""

_T = TypeVar("_T")
_Counts = TypeVar("_Counts", ModelCard, Capacity)


class WorkerSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A worker as it wants to be registered.

    Roles, status and needs may be given as text, sequences as lists. Raises
    `InvalidIdentityError` naming the field, its value and the rule that it breaks.
    """

    model: ModelName
    address: str
    """How routers reach it. ``{name}`` is the first port of its block of that name,
    ``{host}`` the host of its ports: both are filled in when they are claimed."""
    namespace: Namespace | None = None
    """None: from the environment, see `worker_namespace`."""
    worker_id: WorkerId | None = None
    """None: generated."""
    component: str = "backend"
    endpoint: str = "generate"
    role: Role = Role.AGGREGATED
    needs: Needs = ()
    card: ModelCard = ModelCard()
    capacity: Capacity = Capacity()
    capabilities: tuple[str, ...] = ()
    adapters: tuple[ModelName, ...] = ()
    labels: dict[str, str] = {}
    lease_ttl_s: float = 10.0
    status: Status = Status.STARTING

    def __post_init__(self) -> None:
        """Refuse what breaks a rule, and keep the rest in its one form."""
        check_model(self.model)
        check_address_with_names(self.address)
        if self.namespace is not None:
            check_namespace(self.namespace)
        if self.worker_id is not None:
            check_worker_id(self.worker_id)
        check_name("component", self.component)
        check_name("endpoint", self.endpoint)
        self._keep("role", check_role(self.role))
        self._keep("needs", checked_needs(self.needs))
        checked_card(self.card)
        checked_capacity(self.capacity)
        self._keep("capabilities", _names("capabilities", self.capabilities))
        adapters = _names("adapters", self.adapters, check_adapter)
        for adapter in adapters:
            check_adapter_of(self.model, adapter)
        self._keep("adapters", adapters)
        self._keep("labels", checked_labels(self.labels))
        self._keep("lease_ttl_s", check_lease_ttl_s(self.lease_ttl_s))
        self._keep("status", check_status(self.status))

    def _keep(self, field: str, value: object) -> None:
        msgspec.structs.force_setattr(self, field, value)


class ResolvedSpec(WorkerSpec, frozen=True, kw_only=True):
    """A spec whose namespace and worker id are decided."""

    namespace: Namespace
    worker_id: WorkerId


def resolve(
    spec: WorkerSpec, *, environ: Mapping[str, str], generated: Incarnation
) -> ResolvedSpec:
    """``spec`` with its namespace from ``environ`` and, if it has none, a worker id.

    ``generated`` is the worker id of a worker that was given none.
    """
    fields: dict[str, Any] = msgspec.structs.asdict(spec)
    fields["namespace"] = worker_namespace(spec.namespace, environ)
    fields["worker_id"] = spec.worker_id or generated
    return ResolvedSpec(**fields)


def check_adapter(value: str) -> ModelName:
    """Return ``value`` if it may name an adapter, else raise."""
    return check_model(value, "adapter")


def check_adapter_of(model: ModelName, adapter: ModelName) -> ModelName:
    """Return ``adapter`` if a worker of ``model`` may load it, else raise.

    Two things of one name could not be told apart by whoever asks for it.
    """
    if check_adapter(adapter) == model:
        rule = "another name than its model's"
        raise InvalidIdentityError(field="adapter", value=adapter, rule=rule)
    return adapter


def checked_needs(value: Collection[Collection[Role | str]]) -> Needs:
    """``value`` as alternatives of roles, else raise."""
    try:
        return check_needs(value)
    except TypeError as error:
        rule = "alternatives, each a list of roles, as [['prefill']]"
        raise InvalidIdentityError(field="needs", value=value, rule=rule) from error


def checked_labels(value: Mapping[str, str]) -> dict[str, str]:
    """A copy of ``value`` if it is a small mapping of short texts, else raise."""
    if not isinstance(value, Mapping):
        rule = "a mapping of text to text"
        raise InvalidIdentityError(field="labels", value=value, rule=rule)
    return dict(check_labels(value))


def checked_card(value: ModelCard) -> ModelCard:
    """Return ``value`` if each of its fields has its type and range, else raise."""
    return _counting("card", _document("card", value, ModelCard))


def checked_capacity(value: Capacity) -> Capacity:
    """Return ``value`` if each of its fields has its type and range, else raise."""
    return _counting("capacity", _document("capacity", value, Capacity))


def _counting(field: str, value: _Counts) -> _Counts:
    """Return ``value`` if its numbers can be counts.

    Folds take what older logs say; here is where it is said.
    """
    for name in value.__struct_fields__:
        count = getattr(value, name)
        least = 0 if name in MAY_BE_NONE else 1
        if isinstance(count, int) and count < least:
            rule = f"{least} or more"
            raise InvalidIdentityError(field=f"{field} {name}", value=count, rule=rule)
    return value


def _document(field: str, value: _T, kind: type[_T]) -> _T:
    """Return ``value`` if it comes back from its own bytes as it was."""
    if not isinstance(value, kind):
        rule = f"a {kind.__name__}"
        raise InvalidIdentityError(field=field, value=value, rule=rule)
    try:
        payload = msgspec.json.encode(value)
        msgspec.json.decode(payload, type=kind)
    except (
        msgspec.MsgspecError,
        UnicodeEncodeError,
        OverflowError,
        TypeError,
        RecursionError,
    ) as error:
        raise InvalidIdentityError(field=field, value=value, rule=str(error)) from error
    if len(payload) > DOCUMENT_BYTES_MAX:
        rule = f"at most {DOCUMENT_BYTES_MAX} bytes as JSON"
        raise InvalidIdentityError(field=field, value=len(payload), rule=rule)
    return value


def _capability(value: str) -> str:
    return check_name("capability", value)


def _names(
    field: str, value: Iterable[str], check: Callable[[str], str] = _capability
) -> tuple[str, ...]:
    """The names in their order, each once."""
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        rule = "a list of names"
        raise InvalidIdentityError(field=field, value=value, rule=rule)
    return tuple(dict.fromkeys([check(name) for name in value]))
