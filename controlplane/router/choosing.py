"""What a router's view chooses: a worker for a request, or one of each role."""

from __future__ import annotations

from collections.abc import Collection

from controlplane.telemetry import PickTally
from events import ModelName, Namespace, Role, check_role
from projections import (
    Fleet,
    ModelUnavailableError,
    Policy,
    RandomNumbers,
    Wanted,
    Worker,
)

from .core import Core
from .picker import Ask, Picker, PolicyName
from .telling import Teller


class Choosing:
    """The picks of a view."""

    tally: PickTally
    _core: Core
    _max_stale_s: float | None
    _picker: Picker
    _teller: Teller

    @property
    def fleet(self) -> Fleet:
        """The fleet as it is known here."""
        raise NotImplementedError

    @property
    def stale_for_s(self) -> float:
        """Seconds since it was last known to have all there is."""
        raise NotImplementedError

    def pick(
        self,
        model: ModelName,
        *,
        role: Role | str | None = None,
        capability: str | None = None,
        adapter: ModelName | None = None,
        namespace: Namespace | None = None,
        policy: PolicyName | Policy = "weighted_random",
        key: str | None = None,
        rng: RandomNumbers | None = None,
        exclude: Collection[Worker] = (),
    ) -> Worker:
        """A worker for one request. Never waits; takes microseconds.

        ``policy`` chooses among all that will do:

        - ``weighted_random``: a WorkerSet by routable workers x weight, then uniformly;
        - ``round_robin``: one after the other, whatever their weights; whose turn it
          is depends on what this router picked before for the same wish;
        - ``least_loaded``: whose latest report, with what was picked here since, leaves
          most room, by weight; a worker without a report, or with a fading one, gets
          its share by weight, so without any reports it is ``weighted_random``;
        - ``consistent_hash``: equal keys (``key`` is needed) go to one worker, the
          keys of the others stay where they are when one comes or goes, unless its
          weight is the heaviest and above 4; keys of one that is left out or busy go
          where they go when it leaves;
        - a callable gets all candidates and returns one.

        Where an operator set limits, a worker whose report reaches one is busy: every
        named policy passes it over while another is not; if all are busy, none is.
        With a seeded ``rng``, equal fleets and equal loads, two routers pick the same
        (by ``round_robin``, if they did so before).

        A worker is picked while every role that its own set needs is live; whether
        those have what they need in turn, only `pick_group` asks.

        Raises `ModelNotFoundError` for a name never served, `ModelUnavailableError`
        when nobody can take it (``reasons`` counts why: what blocks those who would
        do and the partners they lack, ``excluded``, ``ejected``, and ``no_match`` for
        what was not asked for), before the first sync
        (nobody knows yet what was served), or if the view is staler than
        ``max_stale_s``; `SettingsError` for a policy that is none, lacks its key or
        returns nobody it was given, for an ``exclude`` of others than workers, and an
        ``rng`` that is none.
        """
        self._check_usable(model)
        wanted = Wanted(
            model=model,
            role=None if role is None else check_role(role),
            capability=capability,
            adapter=adapter,
            namespace=namespace,
        )
        return self._picker.pick(self.fleet, wanted, Ask(policy, key, rng, exclude))

    def pick_group(
        self,
        model: ModelName,
        *,
        capability: str | None = None,
        adapter: ModelName | None = None,
        namespace: Namespace | None = None,
        policy: PolicyName | Policy = "weighted_random",
        key: str | None = None,
        rng: RandomNumbers | None = None,
        exclude: Collection[Worker] = (),
    ) -> dict[Role, Worker]:
        """One worker for each role that a request needs, all of one namespace.

        An entry worker that has partners is chosen first, as `pick` does. Its partners
        are of the roles that its WorkerSet needs (of the first alternative whose every
        role has somebody), and of those that these need, chosen by the same policy.
        ``capability`` is the entry worker's; an adapter is everybody's but an
        encoder's. Raises as `pick`, and where a needed role is live but lacks what it
        needs itself, which `pick` does not ask; with nobody to complete a group
        `ModelUnavailableError` counts the entry workers as ``needs_unmet``.
        """
        self._check_usable(model)
        wanted = Wanted(
            model=model, capability=capability, adapter=adapter, namespace=namespace
        )
        ask = Ask(policy, key, rng, exclude)
        return self._picker.pick_group(self.fleet, wanted, ask)

    def eject(self, worker: Worker, for_s: float = 5.0) -> None:
        """Do not pick ``worker`` for a while: a connection to it failed here.

        Raises `SettingsError` if it is no `Worker`, or ``for_s`` no finite time.
        """
        self._picker.eject(worker, for_s)
        self._teller.report("ejected")

    def _check_usable(self, model: ModelName) -> None:
        if self._core.replica is None:
            self.tally.fail("model_unavailable")
            raise ModelUnavailableError(model=model, reasons={"not_synced": 1})
        if self._max_stale_s is not None and self.stale_for_s > self._max_stale_s:
            self.tally.fail("stale")
            raise ModelUnavailableError(model=model, reasons={"stale": 1})
