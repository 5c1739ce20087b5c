"""The lives of claims that no worker owns: they beat until the last port is let go.

Claims of one plane with equal leases share a life, for they live and die together;
a life has at most `PORTS_MAX` ports. One that holds nothing any more, was called over
by the leader or was silent for longer than its lease does not come back: the next
claim begins another.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from controlplane.beats import Beat, WireNotice
from controlplane.identifiers import new_uuid7
from controlplane.logs import get_logger
from controlplane.topology import Names
from controlplane.worker import BeatThread
from events import Namespace, PortOwner, Revision, WorkerId
from projections import PORTS_MAX, PortBlock

AGAIN_S: Final = 1.0
"""So long after a beat's words changed they may change again."""

_log = get_logger("ports")


class Life:
    """An incarnation that holds ports and nothing else."""

    def __init__(self, owner: PortOwner, lease_ttl_s: float) -> None:
        """It holds nothing yet."""
        self.owner, self.lease_ttl_s = owner, lease_ttl_s
        self.blocks: Final[dict[str, PortBlock]] = {}
        self.count = 0
        """Its ports, those that are being claimed for it too."""
        self.open = True
        """Whether it may get more ports."""
        self.beat: Beat | None = None
        self.renewal: asyncio.TimerHandle | None = None


class Lives:
    """All lives of one plane's own claims; they share a name, and its notices."""

    def __init__(self, beats: BeatThread, names: Names, namespace: Namespace) -> None:
        """Beat by ``beats`` as a worker of ``namespace`` that never registers."""
        self._beats, self._names = beats, names
        self.namespace: Final = namespace
        self.worker_id: Final[WorkerId] = f"ports-{new_uuid7()}"
        self._lives: Final[list[Life]] = []

    @property
    def blocks(self) -> list[PortBlock]:
        """Everything that is held."""
        return [block for life in self._lives for block in life.blocks.values()]

    def expect(self, lease_ttl_s: float, ports: int) -> Life:
        """The life for a claim of so many ports; `granted` or `missed` comes next."""
        for life in self._lives:
            self._end_if_silent(life)
            room = life.count + ports <= PORTS_MAX
            if life.open and life.lease_ttl_s == lease_ttl_s and room:
                break
        else:
            owner = PortOwner(
                namespace=self.namespace,
                worker_id=self.worker_id,
                incarnation=new_uuid7(),
            )
            life = Life(owner, lease_ttl_s)
            self._lives.append(life)
        life.count += ports
        return life

    def missed(self, life: Life, ports: int) -> None:
        """Nothing came of the claim."""
        life.count -= ports
        self._end_if_empty(life)

    def granted(
        self, life: Life, block: PortBlock, revision: Revision, log_id: str
    ) -> bool:
        """The claim stands, its last record at ``revision``.

        False: its life ended meanwhile, and with it the claim; call `missed`.
        """
        self._end_if_silent(life)
        if not life.open:
            return False
        life.blocks[block.claim_id] = block
        first = life.beat is None
        life.beat = Beat(
            incarnation=life.owner.incarnation, log_id=log_id, revision=revision
        )
        if first:
            subject = self._names.beat(self.namespace, self.worker_id)
            self._beats.keep(self._key(life), subject, life.beat, life.lease_ttl_s)
        elif life.renewal is None:
            loop = asyncio.get_running_loop()
            life.renewal = loop.call_later(AGAIN_S, self._renew, life)
        return True

    def _renew(self, life: Life) -> None:
        """Tell in the beats of the claims since."""
        life.renewal = None
        if life.beat is not None:
            self._beats.change(self._key(life), life.beat)

    def released(self, block: PortBlock) -> None:
        """The claim ended; of another's nothing is known here."""
        for life in self._lives:
            if life.blocks.pop(block.claim_id, None) is not None:
                life.count -= block.size
                self._end_if_empty(life)
                return

    def _end_if_empty(self, life: Life) -> None:
        if life.count or life not in self._lives:
            return
        self._lives.remove(life)
        self._silence(life)

    def _silence(self, life: Life) -> None:
        life.open = False
        self._beats.drop(self._key(life))
        if life.renewal is not None:
            life.renewal.cancel()

    def _end_if_silent(self, life: Life) -> None:
        """No more ports for a life whose lease may have ended unheard.

        That is so when this process was stopped, or had no broker, for so long.
        """
        silent_s = self._beats.silence_s(self._key(life))
        if life.open and silent_s > life.lease_ttl_s:
            life.open = False
            _log.warning(
                "claims without a worker may be lost",
                incarnation=life.owner.incarnation,
                reason=f"silent for {silent_s:.1f} s of {life.lease_ttl_s:g} s",
                blocks=_named(life),
            )

    def told(self, notice: WireNotice) -> None:
        """The leader says that a life is over: it gets no more ports.

        What it held is looked at when it is released.
        """
        for life in self._lives:
            if life.owner.incarnation == notice.incarnation and life.open:
                life.open = False
                _log.warning(
                    "claims without a worker were told",
                    **_words(notice),
                    blocks=_named(life),
                )

    def silence(self) -> None:
        """All fall silent."""
        for life in self._lives:
            self._silence(life)

    def _key(self, life: Life) -> tuple[str, str]:
        return ("ports", life.owner.incarnation)


def _named(life: Life) -> list[str]:
    """What a life held, as far as known."""
    return [f"{b.host} {b.start}+{b.size}" for b in life.blocks.values()]


def _words(notice: WireNotice) -> dict[str, Any]:
    return {
        "incarnation": notice.incarnation,
        "kind": notice.kind,
        "reason": notice.reason,
        "revision": notice.revision,
    }
