"""Addresses that name ports of the worker: filled in when the ports are claimed."""

import pytest

from controlplane.broker.memory import MemoryBroker, MemoryServer
from controlplane.worker import WorkerSpec
from controlplane.worker.addressing import check_names, placed
from events import InvalidIdentityError
from projections import PortBlock, Want
from tests.support.workers import HOST, worker_cell

WANTS = (Want("http", 1), Want("side", 4))


def blocks(host: str) -> tuple[PortBlock, ...]:
    return (PortBlock(host, 20000, 1, "a"), PortBlock(host, 20004, 4, "b"))


@pytest.mark.parametrize(
    ("host", "address", "filled"),
    [
        ("10.0.0.7", "http://{host}:{http}", "http://10.0.0.7:20000"),
        ("fd00::7", "http://{host}:{http}", "http://[fd00::7]:20000"),
        ("10.0.0.7", "http://pod-3.svc:{http}/v1", "http://pod-3.svc:20000/v1"),
        ("10.0.0.7", "tcp://{host}:{side}", "tcp://10.0.0.7:20004"),
        ("10.0.0.7", "http://10.0.0.9:8000", "http://10.0.0.9:8000"),
    ],
)
def test_a_name_becomes_the_first_port_of_its_block(host, address, filled):
    check_names(address, WANTS)
    assert placed(address, WANTS, blocks(host)) == filled


@pytest.mark.parametrize(
    ("address", "wants"),
    [
        ("http://{host}:{grpc}", WANTS),
        ("http://{host}:8000", ()),
        ("http://h:8000/{}", WANTS),
    ],
)
def test_a_name_that_is_no_port_of_the_worker_is_refused(address, wants):
    with pytest.raises(InvalidIdentityError, match="none of the ports") as caught:
        check_names(address, wants)
    assert caught.value.value == address


@pytest.mark.parametrize("address", ["{host}:{http}", "http://{host}:{http}x", "http:"])
def test_what_is_no_address_with_its_names_filled_in_is_refused(address):
    with pytest.raises(InvalidIdentityError, match="address") as caught:
        WorkerSpec(model="llama", address=address)
    assert caught.value.value == address


@pytest.fixture
async def cell():
    broker = MemoryBroker(MemoryServer())
    await broker.start()
    async with worker_cell(broker) as made:
        yield made
    await broker.stop()


async def test_a_worker_registers_at_the_port_that_it_claimed(cell):
    handle = cell.worker({"http": 1}, address="http://{host}:{http}")
    async with handle as worker:
        at = f"http://{HOST}:{worker.ports['http'].start}"
        await worker.ready()
    events = await cell.events()
    registered = [event for event in events if hasattr(event, "address")]
    assert [event.address for event in registered] == [at]


async def test_a_handle_refuses_an_address_that_names_no_port(cell):
    with pytest.raises(InvalidIdentityError, match="http"):
        cell.worker(address="http://{host}:{http}")
