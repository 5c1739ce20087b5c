"""Lives: the incarnations that hold a registration or a port.

This is what the projector needs in order to expire a life: where its worker's subject
stands and which ports it holds. It carries revisions, so it is in no digest.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import msgspec
from immutables import Map

from events import Incarnation, Namespace, Revision, WorkerId

from .port import Held, PortKey

LifeKey: TypeAlias = tuple[Namespace, WorkerId, Incarnation]


class Life(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An incarnation that holds something."""

    namespace: Namespace
    worker_id: WorkerId
    incarnation: Incarnation
    lease_ttl_s: float
    registered: Revision | None = None
    """Where its registration stands; None: it holds ports only."""
    last: Revision | None = None
    """The last record on its worker's subject, as far as this life saw it."""
    ports: frozenset[PortKey] = frozenset()

    @property
    def ended(self) -> bool:
        """Whether its registration ended and only ports are left of it."""
        return self.registered is None and self.last is not None

    @property
    def key(self) -> LifeKey:
        """What it is found by."""
        return (self.namespace, self.worker_id, self.incarnation)


Lives: TypeAlias = "Map[LifeKey, Life]"
NO_LIVES: Final[Lives] = Map()


def registered(lives: Lives, life: Life) -> Lives:
    """The lives after ``life`` was registered; it keeps ports it claimed before."""
    before = lives.get(life.key)
    if before is not None:
        life = msgspec.structs.replace(life, ports=before.ports)
    return lives.set(life.key, life)


def went_on(
    lives: Lives, key: LifeKey, lease_ttl_s: float, revision: Revision
) -> Lives:
    """The lives after another record on the subject of a registered life.

    Its lease is the one it now says: it may have registered again with another.
    """
    life = lives.get(key)
    if life is None:
        return lives
    return lives.set(
        key,
        Life(
            namespace=life.namespace,
            worker_id=life.worker_id,
            incarnation=life.incarnation,
            lease_ttl_s=lease_ttl_s,
            registered=life.registered,
            last=revision,
            ports=life.ports,
        ),
    )


def touched(lives: Lives, key: LifeKey, revision: Revision) -> Lives:
    """The lives after another record on the subject of a registered life."""
    life = lives.get(key)
    if life is None:
        return lives
    return lives.set(key, msgspec.structs.replace(life, last=revision))


def unregistered(lives: Lives, key: LifeKey) -> Lives:
    """The lives after a registration ended; one that holds ports goes on with them."""
    life = lives.get(key)
    if life is None:
        return lives
    if not life.ports:
        return lives.delete(key)
    return lives.set(key, msgspec.structs.replace(life, registered=None))


def claimed(lives: Lives, held: Held) -> Lives:
    """The lives after a claim on a port was granted."""
    key = owner_key(held)
    life = lives.get(key) or Life(
        namespace=held.owner.namespace,
        worker_id=held.owner.worker_id,
        incarnation=held.owner.incarnation,
        lease_ttl_s=held.lease_ttl_s,
    )
    ports = life.ports | {(held.host, held.port)}
    return lives.set(key, msgspec.structs.replace(life, ports=ports))


def released(lives: Lives, held: Held) -> Lives:
    """The lives after the port ``held`` was let go."""
    key = owner_key(held)
    life = lives.get(key)
    if life is None:
        return lives
    ports = life.ports - {(held.host, held.port)}
    if not ports and life.registered is None:
        return lives.delete(key)
    return lives.set(key, msgspec.structs.replace(life, ports=ports))


def owner_key(held: Held) -> LifeKey:
    """The life that holds the port."""
    return (held.owner.namespace, held.owner.worker_id, held.owner.incarnation)
