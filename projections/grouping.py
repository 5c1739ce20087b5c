"""Choosing all the workers that one request needs: one of each role, in one namespace.

A request begins at an entry worker. Its WorkerSet's needs are alternatives of roles;
the first alternative counts whose every role has somebody to pick, and so for what
those roles need in turn.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple, TypeAlias

from events import ModelName, Needs, Role

from .entities import WorkerKey, WorkerSetKey
from .errors import ModelNotFoundError, ModelUnavailableError
from .picking import Candidates, Namespaces, Wanted, candidates, only
from .readiness import SetMeaning
from .view import Fleet

Partners: TypeAlias = Mapping[Role, Wanted]
_Look: TypeAlias = Callable[[Role], tuple[Wanted, Needs] | None]


class Groups(NamedTuple):
    """The entry workers that have partners, and the partners of each WorkerSet."""

    entries: Candidates
    partners: Mapping[WorkerSetKey, Partners]


def groups(
    fleet: Fleet,
    wanted: Wanted,
    exclude: Collection[WorkerKey] = (),
    visible: Namespaces | None = None,
) -> Groups:
    """Where a request may begin and with whom; worked out once per fleet and wish.

    What is wanted holds for the entry worker; its partners serve the same model in the
    same namespace, and the same adapter, except encoders, which have none.
    Raises as `candidates`; nobody with partners is `ModelUnavailableError` too.
    """
    visible = visible or fleet.visible
    memo = None if exclude else fleet.memo.get(("groups", wanted, visible))
    if memo is None:
        memo = _groups(fleet, wanted, exclude, visible)
        if not exclude:
            fleet.memo["groups", wanted, visible] = memo
    found: Groups = memo
    return found


def _groups(
    fleet: Fleet,
    wanted: Wanted,
    exclude: Collection[WorkerKey],
    visible: Namespaces | None,
) -> Groups:
    found = candidates(fleet, wanted, exclude, visible)
    partners: dict[WorkerSetKey, Partners] = {}
    for meaning, _ in found.sets:
        look = _looking(fleet, wanted, meaning, exclude, visible)
        whole = _completed(meaning.members.needs, {meaning.key.role: wanted}, look)
        if whole is not None:
            del whole[meaning.key.role]
            partners[meaning.key] = whole
    if not partners:
        reasons = {"needs_unmet": found.ends[-1]}
        raise ModelUnavailableError(model=wanted.model, reasons=reasons)
    if len(partners) < len(found.sets):
        found = only(found, lambda meaning, _: meaning.key in partners)
    return Groups(found, partners)


def _completed(
    needs: Needs, group: dict[Role, Wanted], look: _Look
) -> dict[Role, Wanted] | None:
    """The group with all that ``needs`` asks for; None: somebody is missing."""
    if not needs:
        return group
    for roles in needs:
        whole: dict[Role, Wanted] | None = dict(group)
        for role in roles:
            whole = None if whole is None else _with(role, whole, look)
        if whole is not None:
            return whole
    return None


def _with(
    role: Role, group: dict[Role, Wanted], look: _Look
) -> dict[Role, Wanted] | None:
    """The group with somebody of this role, and what he needs."""
    if role in group:
        return group
    seen = look(role)
    if seen is None:
        return None
    wanted, needs = seen
    return _completed(needs, {**group, role: wanted}, look)


def _looking(
    fleet: Fleet,
    wanted: Wanted,
    meaning: SetMeaning,
    exclude: Collection[WorkerKey],
    visible: Namespaces | None,
) -> _Look:
    """How partners for the WorkerSet's workers are looked for."""
    key = meaning.key
    adapter = _adapter(wanted, key.model)

    def look(role: Role) -> tuple[Wanted, Needs] | None:
        partner = Wanted(
            model=key.model,
            role=role,
            adapter=None if role is Role.ENCODE else adapter,
            namespace=key.namespace,
        )
        try:
            found = candidates(fleet, partner, exclude, visible)
        except (ModelNotFoundError, ModelUnavailableError):
            return None
        return partner, found.sets[0][0].members.needs

    return look


def _adapter(wanted: Wanted, model: ModelName) -> ModelName | None:
    """The adapter that the request is for: asked for, or its name is the model's."""
    return wanted.model if wanted.model != model else wanted.adapter
