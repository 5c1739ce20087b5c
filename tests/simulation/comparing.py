"""Where the dumb model and a fold differ, and what facts mean by the dumb rules."""

import msgspec

from tests.simulation.dumb import SET_FIELDS, digest_of, hash_of, set_of

MEMO_MAX = 4096
ENTRY = ("aggregated", "decode")
WORKER_FIELDS = (
    "namespace",
    "worker_id",
    "incarnation",
    "component",
    "endpoint",
    "model",
    "role",
    "needs",
    "checksum",
    "address",
    "capabilities",
    "adapters",
    "capacity",
    "labels",
    "lease_ttl_s",
    "status",
    "registered_at",
)


# ---- the fold's things in plain form -------------------------------------------
def plain_worker(registration):
    """A fold's or router's worker, as the dumb model writes one."""
    plain = {name: getattr(registration, name) for name in WORKER_FIELDS}
    plain["role"], plain["status"] = plain["role"].value, plain["status"].value
    plain["labels"] = dict(sorted(plain["labels"].items()))
    return plain


def plain_struct(struct):
    """A setting or a port, as the dumb model writes one."""
    fields = {name: getattr(struct, name) for name in struct.__struct_fields__}
    return {"type": struct.__struct_config__.tag, **fields}


class Plainly:
    """`plain_worker`, worked out once for each object; they are never changed."""

    def __init__(self):
        self._known = {}

    def __call__(self, registration):
        known = self._known.get(id(registration))
        if known is not None and known[0] is registration:
            return known[1]
        if len(self._known) >= MEMO_MAX:
            self._known.clear()
        plain = plain_worker(registration)
        self._known[id(registration)] = (registration, plain)
        return plain


def plain_set(key):
    """The key of a WorkerSet, as the dumb model writes one."""
    return (key.namespace, key.component, key.endpoint, key.model, key.role.value)


def plain_fleet(fleet, plainly=plain_worker):
    """Workers, cohorts and settings of a fold's or router's fleet."""
    workers = {key: plainly(w) for key, w in fleet.workers.items()}
    cohorts = {
        plain_set(key): list(members.cohorts)
        for sets in fleet.models.values()
        for key, members in sets.items()
        if members.cohorts
    }
    settings = {key: plain_struct(s) for key, s in fleet.settings.items()}
    return workers, cohorts, settings


# ---- what facts mean -----------------------------------------------------------
def blockers_of(workers, cohorts, settings):
    """(namespace, worker_id): every reason why it gets no traffic; none: routable."""
    missing = missing_roles(workers, cohorts, settings)
    return {
        key: tuple(_reasons(worker, cohorts, settings, missing[set_of(worker)]))
        for key, worker in workers.items()
    }


def _reasons(worker, cohorts, settings, missing):
    if worker["status"] != "ready":
        yield worker["status"]
    if _held(worker, settings):
        yield "held"
    if not _admitted(worker, cohorts):
        yield "checksum_mismatch"
    if missing:
        yield "needs_unmet"
    if weight_of(worker["namespace"], worker["model"], settings) <= 0:
        yield "weight_zero"


def _held(worker, settings):
    return ("hold", worker["namespace"], worker["worker_id"]) in settings


def _admitted(worker, cohorts):
    return worker["checksum"] == cohorts[set_of(worker)][0]


def _live(worker, cohorts, settings):
    ready = worker["status"] == "ready"
    return ready and _admitted(worker, cohorts) and not _held(worker, settings)


def missing_roles(workers, cohorts, settings):
    """WorkerSet: what the least lacking alternative of its needs lacks."""
    needs, live = dict.fromkeys(cohorts, ()), {}
    for worker in workers.values():
        if _admitted(worker, cohorts):
            needs[set_of(worker)] = worker["needs"]
        if _live(worker, cohorts, settings):
            place = (worker["namespace"], worker["model"])
            live.setdefault(place, set()).add(worker["role"])
    return {
        one: _lacking(alternatives, live.get((one[0], one[3]), set()))
        for one, alternatives in needs.items()
    }


def _lacking(alternatives, live):
    lacks = [sorted({r.value for r in roles} - live) for roles in alternatives]
    return min(lacks, key=lambda lack: (len(lack), lack), default=[])


def weight_of(namespace, model, settings):
    """The model's own weight, else its namespace's, else 1."""
    for name in (model, "*"):
        if ("weight", namespace, name) in settings:
            return settings["weight", namespace, name]["weight"]
    return 1.0


def fleet_facts(dumb):
    """Models and known names, as the public view document has them."""
    models = sorted({one[3] for one in dumb.cohorts})
    facts = (dumb.workers, dumb.cohorts, dumb.settings)
    return {
        "models": [_model_facts(model, *facts) for model in models],
        "known_models": sorted(dumb.known),
        "anomalies": dict(dumb.counts),
        "digest": dumb.fleet_digest(),
        "revision": dumb.revision,
    }


def _model_facts(model, workers, cohorts, settings):
    blockers = blockers_of(workers, cohorts, settings)
    all_missing = missing_roles(workers, cohorts, settings)
    sets, serving = [], False
    for one in sorted(one for one in cohorts if one[3] == model):
        missing = all_missing[one]
        members = sorted(key for key, w in workers.items() if set_of(w) == one)
        live = [key for key in members if _live(workers[key], cohorts, settings)]
        routable = [key for key in members if not blockers[key]]
        serving = serving or bool(one[4] in ENTRY and routable)
        facts = {
            **dict(zip(SET_FIELDS, one, strict=True)),
            "checksum": cohorts[one][0],
            "ready": bool(live) and not missing,
            "missing_roles": missing,
            "weight": weight_of(one[0], one[3], settings),
            "workers": [_worker_facts(workers[k], blockers[k]) for k in members],
        }
        sets.append(facts)
    return {"name": model, "serving": serving, "worker_sets": sets}


def _worker_facts(worker, blockers):
    shown = dict(worker)
    for name in ("component", "endpoint", "lease_ttl_s"):
        del shown[name]
    facts = msgspec.to_builtins(shown)
    facts["routable"], facts["blockers"] = not blockers, list(blockers)
    stated = facts["capacity"].items()
    facts["capacity"] = {k: v for k, v in stated if v is not None}
    return facts


# ---- where they differ ---------------------------------------------------------
def differs_at_a_glance(dumb, state):
    """Whether digests or counts differ: the check for every record."""
    life = dumb.touched_life
    return (
        dumb.fleet_digest() != state.fleet_state.digest
        or dumb.ports_digest() != state.ports.digest
        or len(dumb.lives) != len(state.lives)
        or (life is not None and not _same_life(dumb, state, life))
        or any(getattr(state.anomalies.counts, k) != n for k, n in dumb.counts.items())
    )


def _same_life(dumb, state, key):
    mine, theirs = dumb.lives.get(key), state.lives.get(key)
    if mine is None or theirs is None:
        return mine is None and theirs is None
    return (mine["registered"], mine["last"], mine["lease_ttl_s"], mine["ports"]) == (
        theirs.registered,
        theirs.last,
        theirs.lease_ttl_s,
        theirs.ports,
    )


def disagreements(dumb, state):
    """Everything in which the fold's ``state`` is not as the dumb model has it."""
    fleet, ports = state.fleet_state, state.ports
    workers, cohorts, settings = plain_fleet(fleet)
    mine = {key: plain_struct(port) for key, port in ports.ports.items()}
    counts = {name: getattr(state.anomalies.counts, name) for name in dumb.counts}
    lives = {key: _plain_life(life) for key, life in state.lives.items()}
    own_lives = {key: _life(fields) for key, fields in dumb.lives.items()}
    return [
        *_differing("worker", workers, dumb.workers),
        *_differing("cohorts", cohorts, dumb.cohorts),
        *_differing("setting", settings, dumb.settings),
        *_differing("known", dict.fromkeys(fleet.known), dict(dumb.known)),
        *_differing("port", mine, dumb.ports),
        *_differing("port revision", dict(ports.revisions), dumb.port_revisions),
        *_differing("adapters", _adapters(fleet), _sorted(dumb.adapters())),
        *_differing("members", _counts(fleet), dumb.members()),
        *_differing("anomalies", counts, dumb.counts),
        *_differing("life", lives, own_lives),
        *_digests(dumb, state),
    ]


def states_differ(state, true, *, whole):
    """In which a process's fold ``state`` is not the ``true`` one of the oracle."""
    answers = (state.fleet_state.digest, state.ports.digest, len(state.lives))
    right = (true.fleet_state.digest, true.ports.digest, len(true.lives))
    found = [] if answers == right else [f"digests and lives {answers}, not {right}"]
    found += _differing("anomalies", _plain(state.anomalies), _plain(true.anomalies))
    if not whole and not found:
        return []
    pairs = zip(
        plain_fleet(state.fleet_state), plain_fleet(true.fleet_state), strict=True
    )
    for what, (one, two) in zip(("worker", "cohorts", "setting"), pairs, strict=True):
        found += _differing(what, one, two)
    pairs = {
        "known": (dict(state.fleet_state.known), dict(true.fleet_state.known)),
        "port": (dict(state.ports.ports), dict(true.ports.ports)),
    }
    for what, (one, two) in pairs.items():
        found += _differing(what, _plains(one), _plains(two))
    lives = [{k: _plain_life(v) for k, v in s.lives.items()} for s in (state, true)]
    found += _differing("life", *lives)
    worked_out = digest_of(hashes_of(state.fleet_state))
    if worked_out != right[0]:
        found.append(f"its entities have the digest {worked_out}, not {right[0]}")
    found += _differing(
        "members", _counts(state.fleet_state), _counts(true.fleet_state)
    )
    return found


def _plain(anomalies):
    counts = msgspec.structs.asdict(anomalies.counts)
    return {**counts, "skipped tags": sorted(anomalies.skipped_tags)}


def _plains(structs):
    return {key: plain_struct(struct) for key, struct in structs.items()}


def _plain_life(life):
    return _life(plain_struct(life))


def _life(fields):
    """A life's fields in one order, whatever the hashes of its ports are."""
    return {
        "registered": fields["registered"],
        "last": fields["last"],
        "lease_ttl_s": fields["lease_ttl_s"],
        "ports": sorted(fields["ports"]),
    }


def _digests(dumb, state):
    """Each digest: the kept one, and the one of the entities, worked out anew."""
    ports = (hash_of(plain_struct(port)) for port in state.ports.ports.values())
    answers = {
        "fleet digest": state.fleet_state.digest,
        "digest of the fleet's entities": digest_of(hashes_of(state.fleet_state)),
        "ports digest": state.ports.digest,
        "digest of the ports": digest_of(ports),
        "skipped tags": sorted(state.anomalies.skipped_tags),
    }
    fleet, table = dumb.fleet_digest(), dumb.ports_digest()
    right = (fleet, fleet, table, table, sorted(dumb.skipped_tags))
    return _differing("", answers, dict(zip(answers, right, strict=True)))


def hashes_of(fleet):
    """The hash of each entity of a fold's or router's fleet, worked out anew."""
    workers, cohorts, settings = plain_fleet(fleet)
    for worker in workers.values():
        yield hash_of({"type": "worker_put", "worker": worker})
    for one, order in cohorts.items():
        key = dict(zip(SET_FIELDS, one, strict=True))
        yield hash_of({"type": "set_put", "key": key, "cohorts": order})
    for setting in settings.values():
        yield hash_of({"type": "setting_put", "setting": setting})
    for name in fleet.known:
        yield hash_of({"type": "known_put", "name": name})


def _adapters(fleet):
    return _sorted({name: list(keys) for name, keys in fleet.adapters.items()})


def _sorted(adapters):
    return {name: sorted(keys) for name, keys in adapters.items()}


def _counts(fleet):
    """The same workers by way of their WorkerSets, which is the way of a pick."""
    found = {}
    for sets in fleet.models.values():
        for key, members in sets.items():
            found[plain_set(key)] = counts = dict(members.counts)
            present = [w.checksum for w in members.workers.values()]
            same = all(fleet.workers.get(w.key) == w for w in members.workers.values())
            if not same or counts != {c: present.count(c) for c in present}:
                found[plain_set(key)] = {"members are not the workers": 1}
    return found


def _differing(what, theirs, mine):
    nothing = "none"
    pairs = {
        key: (theirs.get(key, nothing), mine.get(key, nothing))
        for key in {**theirs, **mine}
    }
    return [
        f"{what} {k}: {one}, not {two}" for k, (one, two) in pairs.items() if one != two
    ]
