"""What a caller may ask for, and what is refused before anything is sent."""

import pytest

from controlplane.broker.memory import MemoryBroker, MemoryServer
from controlplane.eventlog import EventLog
from controlplane.settings import Settings
from controlplane.topology import init
from events import InvalidIdentityError


@pytest.mark.parametrize("thing", ["nonsense", None, {"kind": "worker_registered.v1"}])
async def test_what_is_no_event_is_refused_by_name(thing):
    broker = MemoryBroker(MemoryServer())
    await broker.start()
    await init(broker, "c", Settings())
    log = EventLog(broker, "c", Settings())
    with pytest.raises(InvalidIdentityError) as refused:
        await log.append(thing)
    assert (refused.value.field, refused.value.value) == ("event", thing)
    assert (await log.state()).last_revision == 0
    await broker.stop()
