"""A second opinion on what a log means: slow-ish, obvious, without the fold's code.

Written from the rules of the design, with plain dicts and loops. It reads events and
nothing else of the product. Where it and the fold differ, one of them is wrong.

Its digests are its own too: each entity is a plain dict in the order of its canonical
form, hashed when it changes; the total is added up from scratch at every question.
"""

from collections import Counter
from hashlib import blake2b
from operator import itemgetter

import msgspec

from events import (
    AdapterLoaded,
    AdapterUnloaded,
    LoadThresholdsSet,
    ModelForgotten,
    PortClaimed,
    PortReleased,
    PortSubject,
    TrafficWeightSet,
    Undecodable,
    UnknownEvent,
    WorkerDeregistered,
    WorkerEvent,
    WorkerExpired,
    WorkerHeld,
    WorkerRegistered,
    WorkerResumed,
    WorkerStatusChanged,
    WorkerSubject,
    WorkerUpdated,
    parse_subject,
)

_PLAIN = msgspec.msgpack.Encoder()
SET_FIELDS = ("namespace", "component", "endpoint", "model", "role")


def hash_of(plain):
    """128 bits over the canonical bytes of an entity in its plain form."""
    return int.from_bytes(blake2b(_PLAIN.encode(plain), digest_size=16).digest(), "big")


def digest_of(hashes):
    """The digest of a set of entities, from each one's hash."""
    return f"{sum(hashes) % (1 << 128):032x}"


set_of = itemgetter(*SET_FIELDS)
"""The WorkerSet that a worker in plain form belongs to."""


def _place_of(worker):
    return set_of(worker), worker["checksum"]


class Dumb:
    """The cell as the records so far leave it. Fed in place; see the module."""

    def __init__(self):
        self.revision = 0
        self.workers = {}
        """(namespace, worker_id): the fields of its current life."""
        self.cohorts = {}
        """WorkerSet: its checksums in order of first registration."""
        self.settings = {}
        """("hold", namespace, worker_id) and so on: the fields of the decision."""
        self.known = {}
        self.ports = {}
        """(host, port): the fields of the claim, the rest, or what nobody can read."""
        self.port_revisions = {}
        self.lives = {}
        """(namespace, worker_id, incarnation): lease, registered, last, ports."""
        self.counts = {"stale": 0, "unknown": 0, "undecodable": 0, "no_op": 0}
        self.skipped_tags = set()
        self.touched_life = None
        """The life on whose subject the last record was, or whose port it was."""
        self._hashes = {}
        self._port_hashes = {}

    # ---- records ---------------------------------------------------------------
    def feed(self, record):
        """One record more."""
        event = record.event
        self.revision = record.revision
        self.touched_life = None
        if isinstance(event, WorkerEvent):
            trouble = self._worker_event(event, record)
        elif isinstance(event, PortClaimed):
            trouble = self._claim(event, record)
        elif isinstance(event, PortReleased):
            trouble = self._release(event, record)
        elif isinstance(event, UnknownEvent | Undecodable):
            trouble = self._unreadable(event, record)
        else:
            trouble = self._decision(event)
        if trouble is not None:
            self.counts[trouble] += 1

    def _worker_event(self, event, record):
        key = (event.namespace, event.worker_id)
        before = self.workers.get(key)
        after, trouble = self._worker_after(event, before, record)
        if trouble is None:
            self._replace(key, before, after)
        self._live_on(key, before, after, record.revision)
        return trouble

    def _worker_after(self, event, before, record):
        """The worker after the event, or that it changes nothing, and why."""
        if isinstance(event, WorkerRegistered):
            after = _plain_worker(event, record.recorded_at)
            if before is not None and before["incarnation"] == event.incarnation:
                after["registered_at"] = before["registered_at"]
        elif before is None:
            return None, "no_op"
        elif before["incarnation"] != event.incarnation:
            return before, "stale"
        elif isinstance(event, WorkerDeregistered | WorkerExpired):
            return None, None
        else:
            after = _amended(before, event)
        return (before, "no_op") if after == before else (after, None)

    def _replace(self, key, before, after):
        """Have the worker as ``after`` says, and its sets in order."""
        if after is None:
            del self.workers[key]
            del self._hashes["worker", key]
        else:
            self.workers[key] = after
            entity = {"type": "worker_put", "worker": after}
            self._hashes["worker", key] = hash_of(entity)
            for name in (after["model"], *after["adapters"]):
                if name not in self.known:
                    self.known[name] = None
                    known = {"type": "known_put", "name": name}
                    self._hashes["known", name] = hash_of(known)
        places = [_place_of(worker) for worker in (before, after) if worker is not None]
        if before is None or after is None or places[0] != places[1]:
            for one, _ in dict.fromkeys(places):
                self._order_cohorts(one)

    def _order_cohorts(self, one):
        """Forget emptied cohorts, put a new checksum last: the rest waits its turn."""
        present = [w["checksum"] for w in self.workers.values() if set_of(w) == one]
        before = self.cohorts.get(one, [])
        order = [c for c in before if c in present]
        order += [c for c in dict.fromkeys(present) if c not in order]
        if order == before:
            return
        if not order:
            del self.cohorts[one]
            del self._hashes["set", one]
            return
        self.cohorts[one] = order
        key = dict(zip(SET_FIELDS, one, strict=True))
        entity = {"type": "set_put", "key": key, "cohorts": order}
        self._hashes["set", one] = hash_of(entity)

    def _live_on(self, key, before, after, revision):
        """What a record on a worker's subject means for lives."""
        if before is not None:
            life = (*key, before["incarnation"])
            self.touched_life = life
            if after is None or after["incarnation"] != before["incarnation"]:
                self.lives[life]["registered"] = None
                if not self.lives[life]["ports"]:
                    del self.lives[life]
        if after is None:
            return
        life = (*key, after["incarnation"])
        self.touched_life = life
        if before is None or before["incarnation"] != after["incarnation"]:
            ports = self.lives[life]["ports"] if life in self.lives else set()
            self.lives[life] = {"registered": revision, "ports": ports}
        self.lives[life]["last"] = revision
        self.lives[life]["lease_ttl_s"] = after["lease_ttl_s"]

    # ---- settings --------------------------------------------------------------
    def _decision(self, event):
        if isinstance(event, ModelForgotten):
            return self._forget(event.model)
        if isinstance(event, WorkerResumed):
            key = ("hold", event.namespace, event.worker_id)
            if self.settings.pop(key, None) is None:
                return "no_op"
            del self._hashes["setting", key]
            return None
        key, setting = _plain_setting(event)
        if self.settings.get(key) == setting:
            return "no_op"
        self.settings[key] = setting
        entity = {"type": "setting_put", "setting": setting}
        self._hashes["setting", key] = hash_of(entity)
        return None

    def _forget(self, name):
        served = any(
            w["model"] == name or name in w["adapters"] for w in self.workers.values()
        )
        if served or name not in self.known:
            return "no_op"
        del self.known[name]
        del self._hashes["known", name]
        return None

    # ---- ports -----------------------------------------------------------------
    def holder(self, host, port):
        """The claim that stands on the port, as its fields; None: it is not held."""
        state = self.ports.get((host, port))
        return state if state is not None and state["type"] == "held" else None

    def _claim(self, event, record):
        key = (event.host, event.port)
        self.port_revisions[key] = record.revision
        state = self.ports.get(key)
        if state is not None and state["type"] != "resting":
            mine = state.get("claim_id") == event.claim_id
            return "no_op" if mine else "stale"
        owner = event.owner
        lease_ttl_s = float(event.lease_ttl_s) + 0.0
        self._put_port(
            key,
            {
                "type": "held",
                "host": event.host,
                "port": event.port,
                "claim_id": event.claim_id,
                "block_start": event.block_start,
                "block_size": event.block_size,
                "owner": owner,
                "reason": event.reason,
                "lease_ttl_s": lease_ttl_s,
                "since": record.recorded_at,
            },
        )
        life = (owner.namespace, owner.worker_id, owner.incarnation)
        self.touched_life = life
        if life not in self.lives:
            self.lives[life] = {
                "registered": None,
                "last": None,
                "lease_ttl_s": lease_ttl_s,
                "ports": set(),
            }
        self.lives[life]["ports"].add(key)
        return None

    def _release(self, event, record):
        key = (event.host, event.port)
        self.port_revisions[key] = record.revision
        state = self.ports.get(key)
        if state is not None and state["type"] == "held":
            if state["claim_id"] != event.claim_id:
                return "stale"
            self._let_go(key, state["owner"])
        elif state is not None and state["type"] == "resting":
            rests_anew = event.cause == "unusable"
            if not rests_anew:
                return "no_op"
        self._put_port(
            key,
            {
                "type": "resting",
                "host": event.host,
                "port": event.port,
                "claim_id": event.claim_id,
                "cause": event.cause,
                "since": record.recorded_at,
            },
        )
        return None

    def _let_go(self, key, owner):
        life = (owner.namespace, owner.worker_id, owner.incarnation)
        self.touched_life = life
        self.lives[life]["ports"].remove(key)
        if not self.lives[life]["ports"] and self.lives[life]["registered"] is None:
            del self.lives[life]

    def _put_port(self, key, state):
        self.ports[key] = state
        self._port_hashes[key] = hash_of(state)

    def _unreadable(self, event, record):
        """It says nothing, but it is the last on its subject."""
        subject = parse_subject(record.subject)
        if isinstance(subject, WorkerSubject):
            current = self.workers.get((subject.namespace, subject.worker_id))
            if current is not None:
                life = (subject.namespace, subject.worker_id, current["incarnation"])
                self.touched_life = life
                self.lives[life]["last"] = record.revision
        if isinstance(subject, PortSubject):
            key = (subject.host, subject.port)
            self.port_revisions[key] = record.revision
            state = self.ports.get(key)
            if state is None or state["type"] == "resting":
                since = record.recorded_at
                place = {"host": subject.host, "port": subject.port, "since": since}
                self._put_port(key, {"type": "unreadable", **place})
        if isinstance(event, UnknownEvent):
            self.skipped_tags.add(event.tag)
            return "unknown"
        return "undecodable"

    # ---- answers ---------------------------------------------------------------
    def fleet_digest(self):
        """The fleet's digest, added up from the hash of each entity."""
        return digest_of(self._hashes.values())

    def ports_digest(self):
        """The port table's digest, added up likewise."""
        return digest_of(self._port_hashes.values())

    def adapters(self):
        """Adapter: the workers that have it loaded."""
        having = {}
        for key, worker in self.workers.items():
            for name in worker["adapters"]:
                having.setdefault(name, []).append(key)
        return having

    def members(self):
        """WorkerSet: how many workers have each checksum."""
        counts = {one: Counter() for one in self.cohorts}
        for worker in self.workers.values():
            counts[set_of(worker)][worker["checksum"]] += 1
        return counts


def _plain_worker(event, recorded_at):
    """A registration in its canonical order."""
    return {
        "namespace": event.namespace,
        "worker_id": event.worker_id,
        "incarnation": event.incarnation,
        "component": event.component,
        "endpoint": event.endpoint,
        "model": event.model,
        "role": event.role.value,
        "needs": event.needs,
        "checksum": event.checksum,
        "address": event.address,
        "capabilities": tuple(sorted(set(event.capabilities))),
        "adapters": tuple(sorted(set(event.adapters))),
        "capacity": event.capacity,
        "labels": dict(sorted(event.labels.items())),
        "lease_ttl_s": float(event.lease_ttl_s) + 0.0,
        "status": event.status.value,
        "registered_at": recorded_at,
    }


def _amended(before, event):
    after = dict(before)
    if isinstance(event, WorkerStatusChanged):
        after["status"] = event.status.value
    elif isinstance(event, WorkerUpdated):
        if event.address is not None:
            after["address"] = event.address
        if event.capacity is not None:
            after["capacity"] = event.capacity
        if event.labels is not None:
            after["labels"] = dict(sorted(event.labels.items()))
    elif isinstance(event, AdapterLoaded):
        after["adapters"] = tuple(sorted({*before["adapters"], event.adapter}))
    elif isinstance(event, AdapterUnloaded):
        loaded = tuple(a for a in before["adapters"] if a != event.adapter)
        after["adapters"] = loaded
    return after


def _plain_setting(event):
    """A decision: its place, and its fields in their canonical order."""
    said = {"reason": event.reason, "by": event.by}
    if isinstance(event, WorkerHeld):
        who = {"namespace": event.namespace, "worker_id": event.worker_id}
        key = ("hold", event.namespace, event.worker_id)
        return key, {"type": "hold", **who, **said}
    if isinstance(event, TrafficWeightSet):
        what = {"namespace": event.namespace, "model": event.model}
        weight = float(event.weight) + 0.0
        key = ("weight", event.namespace, event.model)
        return key, {"type": "weight", **what, "weight": weight, **said}
    if not isinstance(event, LoadThresholdsSet):
        raise TypeError(event)
    usage = event.busy_kv_usage
    limits = {
        "model": event.model,
        "busy_kv_usage": None if usage is None else float(usage) + 0.0,
        "busy_running": event.busy_running,
        "busy_waiting": event.busy_waiting,
    }
    return ("thresholds", event.model), {"type": "thresholds", **limits, **said}
