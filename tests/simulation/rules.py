"""What no log may ever hold, whoever appends: rules over raw records, one history each.

- ended_life: an incarnation that was deregistered, expired or superseded registers
  again. The same history never brings it back; a history that lost its end may.
- ports: a claim on a port that another claim holds or let go a moment ago, or whose
  last record nobody can read; a release by another's claim_id; a registration of a
  life from which an expiry took a port that it did not claim anew; an expiry that
  takes a port from a life that is registered.
- expired_alive: the end of a life that beats and is connected, as the world sees it.
"""

from controlplane.settings import Settings
from events import (
    PortClaimed,
    PortReleased,
    WorkerDeregistered,
    WorkerExpired,
    WorkerRegistered,
)

COOLDOWN_S = Settings().port_cooldown_s
PLANTER = "a stranger"
"""Who appends what no process of the product would."""
BY_HAND = "scenario"
"""Who appends as the product would, but waits for no cool-down."""


class Rules:
    """The rules along one history. ``is_beating``: whether a life beats now."""

    def __init__(self, is_beating):
        self._is_beating = is_beating
        self.ended = {}
        """Life: how and where it ended."""
        self._latest = None
        """When the last record was stored."""
        self._steady = True
        """Whether the broker's clock never stepped back: then cool-downs are kept."""
        self._taken = {}
        """Life: the ports that an expiry took from it, and where."""

    def look(self, record, before):
        """The rules that ``record`` breaks; ``before``: the dumb model before it."""
        event = record.event
        self._look_at_clock(record.recorded_at)
        if getattr(event, "by", "") == PLANTER:
            return []
        if isinstance(event, WorkerRegistered):
            return list(self._registered(event, record, before))
        if isinstance(event, WorkerDeregistered | WorkerExpired):
            return list(self._ended(event, record))
        if isinstance(event, PortClaimed):
            return list(self._claimed(event, record, before))
        if isinstance(event, PortReleased):
            return list(self._released(event, record, before))
        return []

    def _registered(self, event, record, before):
        life = (event.namespace, event.worker_id, event.incarnation)
        if life in self.ended:
            yield "ended_life", f"{life} registers, but it {self.ended[life]}"
        for port, where in self._taken.get(life, {}).items():
            yield "ports", f"{life} registers without its port {port}, taken {where}"
        current = before.workers.get(life[:2])
        if current is not None and current["incarnation"] != event.incarnation:
            old = (*life[:2], current["incarnation"])
            self.ended[old] = f"was superseded at {record.revision}"

    def _ended(self, event, record):
        life = (event.namespace, event.worker_id, event.incarnation)
        is_expiry = isinstance(event, WorkerExpired)
        if is_expiry and life not in self.ended and self._is_beating(*life):
            yield "expired_alive", f"{life} expired at {record.revision}, but it beats"
        how = "expired" if is_expiry else "deregistered"
        self.ended.setdefault(life, f"{how} at {record.revision}")

    def _look_at_clock(self, at):
        if self._steady and self._latest is not None:
            self._steady = at >= self._latest
        self._latest = at

    def _claimed(self, event, record, before):
        key, state = (
            (event.host, event.port),
            before.ports.get((event.host, event.port)),
        )
        owner = event.owner
        life = (owner.namespace, owner.worker_id, owner.incarnation)
        if state is not None and state["type"] == "unreadable":
            yield "ports", f"{life} claims {key}, whose last record nobody can read"
        elif state is not None and state["type"] == "held":
            if state["claim_id"] != event.claim_id:
                yield "ports", f"{life} claims {key}, which {state['owner']} holds"
        else:
            self._taken.get(life, {}).pop(key, None)
            if state is not None and state["claim_id"] != event.claim_id:
                rested_s = (record.recorded_at - state["since"]).total_seconds()
                waits = self._steady and event.by != BY_HAND
                if waits and rested_s < COOLDOWN_S:
                    yield "ports", f"{life} claims {key}, let go {rested_s} s before"

    def _released(self, event, record, before):
        key, held = (event.host, event.port), before.holder(event.host, event.port)
        if held is None:
            return
        if held["claim_id"] != event.claim_id:
            yield (
                "ports",
                f"{event.claim_id} releases {key}, held by {held['claim_id']}",
            )
            return
        if event.cause != "expired":
            return
        owner = held["owner"]
        life = (owner.namespace, owner.worker_id, owner.incarnation)
        current = before.workers.get(life[:2])
        if current is not None and current["incarnation"] == life[2]:
            yield "ports", f"{life} lost {key} to an expiry, and is registered"
        if life not in self.ended and self._is_beating(*life):
            yield "expired_alive", f"{life} lost {key}, but it beats"
        self._taken.setdefault(life, {})[key] = f"at {record.revision}"
