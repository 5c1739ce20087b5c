"""What the claims of one worker came to: a link for each block, not for each port."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

import msgspec
from immutables import Map

from events import PortClaimed, PortReleased, Record, Revision

from .anomaly import Anomaly
from .entities import WorkerKey
from .explanation import Link, State
from .port import Held, PortTable
from .port_document import Moment, Stretch, list_ports


class _Run(msgspec.Struct):
    """Records of one claim that came to the same."""

    link: Link
    ports: list[int]
    through: Revision


class PortStory:
    """Follows the claims that name a worker as the owner, and what ends them."""

    def __init__(self, key: WorkerKey) -> None:
        """Follow the claims of all lives of this worker."""
        self._key = key
        self._claims: set[str] = set()
        self._runs: dict[tuple[str, str], _Run] = {}

    def take(
        self,
        record: Record,
        anomaly: Anomaly | None,
        state: State,
        blockers: tuple[str, ...],
    ) -> None:
        """Note ``record`` if it is of one of the worker's claims.

        ``state`` and ``blockers`` are the worker's at that time.
        """
        event = record.event
        match event:
            case PortClaimed(owner=owner) if (
                owner.namespace,
                owner.worker_id,
            ) == self._key:
                self._claims.add(event.claim_id)
                said = f"for {event.reason}"
            case PortReleased(cause=cause) if event.claim_id in self._claims:
                said = cause
            case _:
                return
        if anomaly is not None:
            said += f", no effect: {anomaly.reason}"
        run = self._runs.get((event.claim_id, said))
        if run is None:
            link = Link(
                record=record,
                rule=said,
                anomaly=None if anomaly is None else anomaly.kind,
                state=state,
                blockers=blockers,
            )
            run = _Run(link, [], record.revision)
            self._runs[event.claim_id, said] = run
        run.ports.append(event.port)
        run.through = record.revision

    def links(self) -> Iterator[Link]:
        """The links, each with the ports that it is about."""
        for run in self._runs.values():
            event = run.link.record.event
            first, last = min(run.ports), max(run.ports)
            which = f"ports {first}-{last}" if first < last else f"port {first}"
            host = getattr(event, "host", "")
            verb = "claims " if isinstance(event, PortClaimed) else ""
            yield msgspec.structs.replace(
                run.link,
                rule=f"{verb}{which} of {host} {run.link.rule}",
                through=run.through if run.through > run.link.revision else None,
            )


def ports_of(
    table: PortTable, key: WorkerKey, at: datetime | None
) -> tuple[Stretch, ...]:
    """The ports that the worker's lives hold, in order."""
    held = {
        place: state
        for place, state in table.ports.items()
        if isinstance(state, Held)
        and (state.owner.namespace, state.owner.worker_id) == key
    }
    return list_ports(PortTable(ports=Map(held)), Moment(at, 0.0)).stretches
