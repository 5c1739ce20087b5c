"""Lives that are changed in place, while many records are folded at once.

The rules are those of `life`, one by one; here a life is a thing that changes, and
what it holds is copied once, when it is touched first.
"""

from __future__ import annotations

from typing import Final

import msgspec

from events import Incarnation, Namespace, PortOwner, Revision, WorkerId

from .life import Life, LifeKey, Lives
from .port import PortKey


class OpenLife(msgspec.Struct, gc=False):
    """A `Life` that is changed in place."""

    namespace: Namespace
    worker_id: WorkerId
    incarnation: Incarnation
    lease_ttl_s: float
    registered: Revision | None
    last: Revision | None
    ports: set[PortKey]

    @property
    def key(self) -> LifeKey:
        """What it is found by."""
        return (self.namespace, self.worker_id, self.incarnation)

    def closed(self) -> Life:
        """The life as it is now."""
        return Life(
            namespace=self.namespace,
            worker_id=self.worker_id,
            incarnation=self.incarnation,
            lease_ttl_s=self.lease_ttl_s,
            registered=self.registered,
            last=self.last,
            ports=frozenset(self.ports),
        )


class LivesSoFar:
    """The lives of a fold in progress, over those that it began with."""

    __slots__ = ("_before", "_now")

    def __init__(self, before: Lives) -> None:
        """Go on from ``before``, which stays as it is."""
        self._before: Final = before
        self._now: Final[dict[LifeKey, OpenLife | None]] = {}

    def find(self, key: LifeKey) -> OpenLife | None:
        """The life of this key; None: there is none."""
        found = self._now.get(key)
        if found is not None or not self._before or key in self._now:
            return found
        life = self._before.get(key)
        if life is None:
            return None
        found = self._now[key] = OpenLife(
            life.namespace,
            life.worker_id,
            life.incarnation,
            life.lease_ttl_s,
            life.registered,
            life.last,
            set(life.ports),
        )
        return found

    def register(
        self, key: LifeKey, lease_ttl_s: float, revision: Revision
    ) -> OpenLife:
        """As `life.registered`."""
        found = self.find(key)
        if found is None:
            found = OpenLife(*key, lease_ttl_s, revision, revision, set())
            self._now[key] = found
        else:
            found.lease_ttl_s = lease_ttl_s
            found.registered = found.last = revision
        return found

    def unregister(self, found: OpenLife) -> None:
        """As `life.unregistered`."""
        found.registered = None
        if not found.ports:
            self._drop(found)

    def claim(self, owner: PortOwner, lease_ttl_s: float, port: PortKey) -> None:
        """As `life.claimed`."""
        key = (owner.namespace, owner.worker_id, owner.incarnation)
        found = self.find(key)
        if found is None:
            self._now[key] = OpenLife(*key, lease_ttl_s, None, None, {port})
        else:
            found.ports.add(port)

    def release(self, owner: PortOwner, port: PortKey) -> None:
        """As `life.released`."""
        found = self.find((owner.namespace, owner.worker_id, owner.incarnation))
        if found is not None:
            found.ports.discard(port)
            if not found.ports and found.registered is None:
                self._drop(found)

    def _drop(self, found: OpenLife) -> None:
        key = found.key
        if key in self._before:
            self._now[key] = None
        else:  # nothing is kept of lives that came and went
            del self._now[key]

    def finish(self) -> Lives:
        """All lives, as they are now."""
        lives = self._before.mutate()
        for key, life in self._now.items():
            if life is not None:
                lives[key] = life.closed()
            else:
                del lives[key]
        return lives.finish()
