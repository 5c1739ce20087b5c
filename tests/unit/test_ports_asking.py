"""What claims are asked for: hosts in any spelling, reasons in one line."""

import pytest

import controlplane as cp
from projections import Want
from tests.support.port_hosts import SMALL, Host, owner


@pytest.fixture
async def claimer():
    host = Host()
    yield await host.claimer()
    for broker in host.brokers:
        await broker.stop()


def asked(claimer, host):
    want = Want("", 2, cp.PortRange(21000, 21003))
    return claimer.claim(
        [want], host=host, owner=owner(), lease_ttl_s=30.0, bind_check=False
    )


@pytest.mark.parametrize(
    ("spellings", "name"),
    [
        (("2001:db8::1", "2001:0DB8:0::1"), "2001:db8::1"),
        (("10.9.9.9", "::ffff:10.9.9.9"), "10.9.9.9"),
        (("node7.invalid", "Node7.invalid"), "node7.invalid"),
    ],
)
async def test_a_host_in_another_spelling_has_no_ports_of_its_own(
    claimer, spellings, name
):
    blocks = [(await asked(claimer, spelled)).blocks[0] for spelled in spellings]
    assert {block.host for block in blocks} == {name}
    assert sorted(p for block in blocks for p in block) == list(range(21000, 21004))


@pytest.mark.parametrize("host", [" node7", "192.0.2.2 ", "a\nb", "a\x00b"])
async def test_what_no_host_is_called_is_refused(claimer, host):
    with pytest.raises(cp.InvalidIdentityError, match="host"):
        await asked(claimer, host)


def test_a_reason_is_one_line():
    with pytest.raises(cp.InvalidIdentityError, match=r"reason.*in one line"):
        Want("a\nb", 1, SMALL)
