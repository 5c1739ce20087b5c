"""What is true at a place of the view: for routers, heads, presences, snapshots.

A place is (epoch, ordinal), as ever stored; an epoch is known by its text. A place may
mean several moments: one for each lineage that the epoch could have gone on with.
"""

import msgspec

from tests.simulation.comparing import (
    MEMO_MAX,
    SET_FIELDS,
    digest_of,
    hash_of,
    plain_set,
    plain_struct,
    plain_worker,
)
from tests.simulation.pristine import PRISTINE

_PACKED = msgspec.msgpack.Encoder(order="deterministic")


class Track:
    """An epoch as it was started once, and every place of it that was ever stored."""

    __slots__ = ("_by_digest", "_stored", "base", "epoch", "moment", "text", "version")

    def __init__(self, epoch, base, moment):
        self.epoch, self.base, self.moment = epoch, base, moment
        self.text, self.version = str(epoch), epoch.fold_version
        self._stored = {}
        self._by_digest = {}

    def note(self, ordinal, moment):
        """The stream holds this; after it lost its tail, it may hold another there."""
        known = self._stored.setdefault(ordinal, [])
        if not any(one is moment for one in known):
            known.append(moment)
            digest = moment.folded[self.version].state.fleet_state.digest
            self._by_digest.setdefault(digest, []).append(moment)

    def at(self, ordinal):
        """What was stored at an ordinal: mostly one moment."""
        return self._stored.get(ordinal, ())

    def with_digest(self, digest):
        """The moments stored that have this digest."""
        return self._by_digest.get(digest, ())

    def __repr__(self):
        return f"{self.text} from view {self.base}"


def derived(lineage, track, ordinal):
    """The moments of ordinals 0 to ``ordinal``, as far as the lineage has them."""
    news = lineage.news[track.version]
    place = track.moment.folded[track.version].news
    return [track.moment, *(lineage.moments[r] for r in news[place : place + ordinal])]


class Places:
    """Lookups and checks. Each check raises `Violation`, which names the invariant."""

    def __init__(self, histories):
        self._histories = histories
        self._tracks = {}
        self._hashes = {}
        self._fleets = {}
        self._replicas = {}
        self._sound = {}
        self._shown = set()

    def begun(self, track):
        """The epoch that starts thus: known already, or from now on."""
        known = self._tracks.setdefault(track.text, [])
        for one in known:
            if one.base == track.base and one.moment is track.moment:
                return one
        known.append(track)
        return track

    # ---- lookups ---------------------------------------------------------------
    def lineages_after(self, moment, track):
        """The histories that hold ``moment``, the latest first."""
        for lineage in self._histories.lineages(track.epoch.log_id):
            if lineage.holds(moment):
                yield lineage

    def state_at(self, epoch, ordinal):
        """(track, lineage, moment) of a place: all that it may mean; none: nothing."""
        return [
            (track, lineage, moment)
            for track in self._tracks.get(str(epoch), ())
            for moment in track.at(ordinal)
            for lineage in self.lineages_after(moment, track)
        ]

    def _later(self, track, lineage, moment, revision):
        """The moment of ``revision``, if nothing changed the view since ``moment``."""
        if not moment.revision <= revision <= lineage.end:
            return None
        later = lineage.moments[revision]
        same = later.folded[track.version].news == moment.folded[track.version].news
        return later if same else None

    # ---- routers ---------------------------------------------------------------
    def check_replica(self, router, replica):
        """A router stands on a prefix of one history, entity by entity: "prefix"."""
        if self._replicas.get(router) is replica:
            return
        digest = self.digest_of_fleet(router, replica.fleet)
        position = replica.position
        wrong = []
        for track, lineage, moment in self.state_at(position.epoch, position.ordinal):
            found = self._wrong(replica, digest, track, lineage, moment)
            if not found:
                self._replicas[router] = replica
                return
            wrong.append(found)
        where = f"{router} at {position.epoch} ordinal {position.ordinal}"
        what = "; or ".join(wrong) or "no such place was ever stored"
        self._histories.violated("prefix", f"{where}: {what}")

    def _wrong(self, replica, digest, track, lineage, moment):
        """What about the replica is not as it is at ``moment``; empty: nothing."""
        position = replica.position
        if (position.base, position.delta_revision) != (track.base, moment.revision):
            here = (position.base, position.delta_revision)
            return f"base and revision {here}, not {track.base, moment.revision}"
        state = moment.folded[track.version].state
        if digest != state.fleet_state.digest:
            return f"digest {digest}, not {state.fleet_state.digest}"
        later = self._later(track, lineage, moment, replica.revision)
        if later is None:
            place = f"{moment.revision} in a log that ends at {lineage.end}"
            return f"revision {replica.revision} is not level with {place}"
        at = replica.fingerprint_at
        known = lineage.moments[at].fingerprint if at <= lineage.end else None
        if known is None or (replica.fingerprint and replica.fingerprint != known):
            return f"fingerprint {replica.fingerprint} at {at}, not {known}"
        if not _counted(replica.anomalies, track, later):
            return f"anomalies {replica.anomalies}"
        return ""

    def digest_of_fleet(self, who, fleet):
        """The digest of a fleet's entities, worked out anew, and its parts compared."""
        known = self._fleets.get(id(fleet))
        if known is not None and known[0] is fleet:
            return known[1]
        digest = digest_of(self._hashes_of(fleet))
        problem = _parts_differ(fleet, self._sound)
        if digest != fleet.digest:
            problem = f"its digest says {fleet.digest}, its entities {digest}"
        if problem:
            self._histories.violated("prefix", f"{who}: {problem}")
        _keep(self._fleets, id(fleet), (fleet, digest))
        return digest

    def _hashes_of(self, fleet):
        for seat in fleet.seats.values():
            yield self._hash(seat.worker, _worker)
        for sets in fleet.models.values():
            for key, members in sets.items():
                if members.cohorts:
                    yield self._hash((key, members.cohorts), _set, members)
        for setting in fleet.settings.values():
            yield self._hash(setting, _setting)
        for known in fleet.known.values():
            yield self._hash(known, plain_struct)

    def _hash(self, entity, plain, owner=None):
        """Of an immutable entity: worked out once for each object."""
        kept_by = entity if owner is None else owner
        known = self._hashes.get(id(kept_by))
        if known is not None and known[0] is kept_by:
            return known[1]
        found = hash_of(plain(entity))
        _keep(self._hashes, id(kept_by), (kept_by, found))
        return found

    def check_shown(self, who, fleet, *, whole=False):
        """A router would pick only whom the dumb rules let it: "routable".

        ``fleet``: a `Fleet` without a lens, of a replica that was checked. ``whole``:
        compare the reasons of each worker too, as pages and documents show them. What
        a fleet shows follows from its entities: it is looked at once for each digest.
        """
        if fleet.state.digest in self._shown and not whole:
            return
        self._shown.add(fleet.state.digest)
        right = self._histories.blockers(fleet.state)
        shown = {
            worker.key
            for model in fleet.state.models
            for meaning in fleet.sets(model).values()
            for worker in meaning.routable
        }
        wanted = {key for key, blockers in right.items() if not blockers}
        if shown != wanted:
            odd = sorted(shown ^ wanted)
            what = [f"{k} {right.get(k)}, shown as {k in shown}" for k in odd]
            self._histories.violated("routable", f"{who}: " + "; ".join(what))
        for key, blockers in right.items() if whole else ():
            worker = fleet.worker(*key)
            if worker.blockers != blockers or worker.routable != (not blockers):
                what = f"{who} shows {key} with {worker.blockers}, not {blockers}"
                self._histories.violated("routable", what)

    def check_pickable(self, who, fleet, workers):
        """Nobody of ``workers`` (`Worker`) may be picked from ``fleet`` but rightly."""
        right = self._histories.blockers(fleet.state)
        for worker in workers:
            key = (worker.namespace, worker.worker_id)
            known = fleet.state.workers.get(key)
            same = known is not None and known.incarnation == worker.incarnation
            if not same or right[key]:
                what = f"{who} picks {key} {worker.incarnation}: {right.get(key)}"
                self._histories.violated("routable", what)

    # ---- what processes say ----------------------------------------------------
    def check_claim(self, who, epoch_text, revision, digest):
        """A digest reported at (epoch, revision) is the replay's: "digest"."""
        if epoch_text is None:
            return
        tracks = self._tracks.get(epoch_text, ())
        for track in tracks:
            for moment in track.with_digest(digest):
                for lineage in self.lineages_after(moment, track):
                    if self._later(track, lineage, moment, revision) is not None:
                        return
        known = "no place of it gives that" if tracks else "no such epoch ever started"
        what = f"{who} says {digest} at {epoch_text} revision {revision}: {known}"
        self._histories.violated("digest", what)

    def check_head(self, head):
        """A head says where the view stands, as it is: "head"."""
        for track, lineage, moment in self.state_at(head.epoch, head.ordinal):
            later = self._later(track, lineage, moment, head.revision)
            if later is None or head.log_id != track.epoch.log_id:
                continue
            state = later.folded[track.version].state
            if (
                head.digest == state.fleet_state.digest
                and head.fingerprint in ("", later.fingerprint)
                and _counted(head.anomalies, track, later)
            ):
                return
        self._histories.violated("head", f"{head} is true of no history")

    def check_snapshot(self, snapshot):
        """A snapshot is, byte for byte, what a replay gives: "snapshot"."""
        position = snapshot.position
        bytes_of, own = PRISTINE.encode_snapshot, None
        for track, lineage, moment in self.state_at(position.epoch, position.ordinal):
            later = self._later(track, lineage, moment, snapshot.revision)
            if later is None or later.fingerprint != snapshot.fingerprint:
                continue
            place = PRISTINE.Position(
                epoch=track.epoch,
                base=track.base,
                ordinal=position.ordinal,
                delta_revision=moment.revision,
            )
            own = _with_version(
                PRISTINE.take(later.folded[track.version].state, place), track
            )
            if bytes_of(snapshot) == bytes_of(own):
                return
        where = f"{position}, revision {snapshot.revision}"
        what = "no history has that place"
        if own is not None:
            what = "other " + ", ".join(_unlike(snapshot, own))
        self._histories.violated("snapshot", f"{where}: {what}")


def _with_version(snapshot, track):
    if snapshot.fold_version == track.version:
        return snapshot
    return type(snapshot)(
        **{
            name: getattr(snapshot, name)
            for name in snapshot.__struct_fields__
            if name != "fold_version"
        },
        fold_version=track.version,
    )


def _unlike(snapshot, own):
    """The fields in which a snapshot is not what it should be."""
    return [
        name
        for name in snapshot.__struct_fields__
        if _PACKED.encode(getattr(snapshot, name)) != _PACKED.encode(getattr(own, name))
    ]


def _counted(anomalies, track, moment):
    """Whether anomalies, which stand outside the digest, are those of ``moment``."""
    right = moment.folded[track.version].state.anomalies.counts
    return all(
        getattr(anomalies, k) == getattr(right, k) for k in right.__struct_fields__
    )


def _keep(memo, key, value):
    if len(memo) >= MEMO_MAX:
        memo.clear()
    memo[key] = value


def _worker(registration):
    return {"type": "worker_put", "worker": plain_worker(registration)}


def _set(pair):
    key, cohorts = pair
    plain = dict(zip(SET_FIELDS, plain_set(key), strict=True))
    return {"type": "set_put", "key": plain, "cohorts": cohorts}


def _setting(setting):
    return {"type": "setting_put", "setting": plain_struct(setting)}


def _parts_differ(fleet, sound):
    """How the WorkerSets, by which picks go, are not the workers; empty: they are.

    ``sound`` remembers the sets that are as they should be in themselves.
    """
    placed, seats = 0, fleet.seats
    for name, sets in fleet.models.items():
        for key, members in sets.items():
            placed += len(members.workers)
            for worker in members.workers.values():
                seat = seats.get(worker.key)
                if seat is None or seat.worker is not worker:
                    return f"set {key} has {worker}, the fleet has not"
            known = sound.get(id(members))
            if known is not None and known[0] is members and known[1] == (name, key):
                continue
            problem = _members_differ(name, key, members)
            if problem:
                return problem
            _keep(sound, id(members), (members, (name, key)))
    if placed != len(seats):
        return f"{placed} workers stand in sets, {len(seats)} are there"
    having = {(name, key) for name, keys in fleet.adapters.items() for key in keys}
    workers = (seat.worker for seat in seats.values())
    wanted = {(name, w.key) for w in workers for name in w.adapters}
    if having != wanted:
        return f"adapters {sorted(having)}, not {sorted(wanted)}"
    return ""


def _members_differ(name, key, members):
    """How a WorkerSet's members and what is counted of them are not its own."""
    counts = {}
    for worker in members.workers.values():
        counts[worker.checksum] = counts.get(worker.checksum, 0) + 1
        if worker.set_key != key or key.model != name:
            return f"{worker} stands in {key}"
    if counts != members.counts or set(counts) != set(members.cohorts):
        return f"set {key} counts {members.counts}, has {members.cohorts}"
    return ""
