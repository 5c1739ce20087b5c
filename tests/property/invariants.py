"""What holds of every state, worked out from scratch and compared."""

from collections import Counter

from projections import FleetState, FoldState, Held, build
from projections.digest import digest_text, total_of


def check_fleet(fleet: FleetState) -> None:
    """The invariants that `FleetState` promises."""
    assert fleet.digest == digest_text(total_of(fleet.entities()))
    rebuilt = build(fleet.entities())
    assert rebuilt == fleet
    placed = {}
    for name, sets in fleet.models.items():
        assert sets
        for key, members in sets.items():
            assert key.model == name
            assert members.workers
            _check_members(members)
            for worker_id, worker in members.workers.items():
                assert worker.set_key == key
                assert worker.worker_id == worker_id
                placed[worker.key] = worker
    assert placed == dict(fleet.workers)
    having = Counter()
    for name, keys in fleet.adapters.items():
        assert keys
        for key in keys:
            assert name in fleet.workers[key].adapters
            having[key] += 1
    assert having == Counter(
        {w.key: len(w.adapters) for w in fleet.workers.values() if w.adapters}
    )
    served = {*fleet.models, *fleet.adapters}
    assert served <= set(fleet.known)


def _check_members(members) -> None:
    """Cohorts are exactly the checksums that are there, none twice."""
    counts = Counter(worker.checksum for worker in members.workers.values())
    assert members.counts == counts
    assert len(members.cohorts) == len(set(members.cohorts))
    assert set(members.cohorts) == set(counts)


def check_state(state: FoldState) -> None:
    """The invariants of fleet, ports and lives together."""
    check_fleet(state.fleet_state)
    ports = state.ports
    assert ports.digest == digest_text(total_of(ports.ports.values()))
    assert set(ports.ports) == set(ports.revisions)
    holding: dict = {}
    for key, port in ports.ports.items():
        assert key == (port.host, port.port)
        if isinstance(port, Held):
            owner = port.owner
            life = (owner.namespace, owner.worker_id, owner.incarnation)
            holding.setdefault(life, set()).add(key)
    registered = {worker.life_key for worker in state.fleet_state.workers.values()}
    assert set(state.lives) == registered | set(holding)
    for key, life in state.lives.items():
        assert life.key == key
        assert life.ports == holding.get(key, set())
        assert (life.registered is not None) == (key in registered)
        if key in registered:
            worker = state.fleet_state.workers[key[:2]]
            assert life.lease_ttl_s == worker.lease_ttl_s
            assert life.registered <= life.last <= state.revision
