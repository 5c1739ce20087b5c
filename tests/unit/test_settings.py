"""What a caller may ask for, and what is refused before anything is sent."""

import math

import msgspec
import pytest

from controlplane.broker.memory import MemoryBroker, MemoryServer
from controlplane.errors import SettingsError
from controlplane.eventlog import EventLog
from controlplane.plane import connect
from controlplane.settings import MAY_BE_ZERO, Settings
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


# ---- numbers -----------------------------------------------------------------------
FIELDS = {
    field: type(value) for field, value in msgspec.structs.asdict(Settings()).items()
}
COUNTS = sorted(field for field, kind in FIELDS.items() if kind is int)
NUMBERS = sorted(field for field, kind in FIELDS.items() if kind is float)
WRONG = [None, "1", True, [], 0, -2, -math.inf, math.nan, math.inf, 10**400]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        pytest.param(field, value, id=f"{field}-{str(value)[:5]}")
        for field in sorted(FIELDS)
        for value in WRONG
        if not (field in MAY_BE_ZERO and value == 0 and type(value) is int)
    ],
)
def test_what_is_no_fit_number_is_refused_by_name(field, value):
    with pytest.raises(SettingsError) as refused:
        Settings(**{field: value})
    assert refused.value.field == field
    assert refused.value.rule in str(refused.value)


@pytest.mark.parametrize("field", COUNTS)
def test_a_count_is_a_whole_number(field):
    with pytest.raises(SettingsError, match="a whole number"):
        Settings(**{field: 2_000_000.0})


@pytest.mark.parametrize("field", sorted(set(NUMBERS) - {"guard_share", "log_reserve"}))
def test_a_number_may_be_whole(field):
    assert getattr(Settings(**{field: 7}), field) == 7


@pytest.mark.parametrize(
    ("field", "last", "first_wrong"),
    [
        ("publish_batch_max", 1000, 1001),
        ("publish_batch_max", 1, 0),
        ("snapshot_every", 1, 0),
        ("guard_min", 1, 0),
        ("view_max_bytes", 1 << 20, (1 << 20) - 1),
        ("reports_max_bytes", 1 << 20, (1 << 20) - 1),
        ("log_max_bytes", 1, 0),
        ("log_max_bytes", -1, -2),
        ("log_max_bytes", 2**63 - 1, 2**63),
        ("guard_share", 0.999, 1),
        ("log_reserve", 0.001, 0.0),
        ("beats_per_ttl", 2, 1.999),
        ("port_cooldown_s", 0, -0.001),
    ],
)
def test_the_bounds_are_where_they_are_said_to_be(field, last, first_wrong):
    assert getattr(Settings(**{field: last}), field) == last
    with pytest.raises(SettingsError) as refused:
        Settings(**{field: first_wrong})
    assert (refused.value.field, refused.value.value) == (field, first_wrong)


# ---- where to connect to -----------------------------------------------------------
@pytest.mark.parametrize(
    "url",
    [
        "",
        " , ",
        [],
        [""],
        "http://x",
        "127.0.0.1:notaport",
        "nats://127.0.0.1:notaport",
        "nats://127.0.0.1:99999",
        "nats://127.0.0.1:0",
        "nats://",
        "nats://[::1",
        "nats://a b",
        "nats://good:4222,http://bad",
        ["nats://good:4222", "redis://bad"],
        4222,
        [4222],
        b"nats://x",
    ],
)
def test_what_is_no_broker_s_url_is_refused_at_once(url):
    with pytest.raises(SettingsError) as refused:
        connect(url)
    assert refused.value.field == "url"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("127.0.0.1", "nats://127.0.0.1"),
        ("nats://[::1]:4222", "nats://[::1]:4222"),
        ("tls://a:1, b:2", "tls://a:1,nats://b:2"),
        (["ws://a", "wss://b:443"], "ws://a,wss://b:443"),
        ("nats://user:secret@a:1", "nats://a:1"),
    ],
)
def test_a_broker_s_url_will_do(url, shown):
    assert connect(url).url == shown


def test_a_refused_url_shows_no_secret():
    with pytest.raises(SettingsError) as refused:
        connect("nats://user:secret@host:notaport")
    assert refused.value.value == "nats://host:notaport"
    assert "secret" not in str(refused.value)


def test_an_empty_cell_is_refused_and_an_empty_variable_is_none(monkeypatch):
    with pytest.raises(InvalidIdentityError) as refused:
        connect(cell="")
    assert refused.value.field == "cell"
    monkeypatch.setenv("CP_CELL", "")
    monkeypatch.setenv("NATS_URL", "")
    assert (connect().cell, connect().url) == ("default", "nats://127.0.0.1:4222")
    monkeypatch.setenv("CP_CELL", "blue")
    monkeypatch.setenv("NATS_URL", "gopher://x")
    assert connect("x").cell == "blue"
    with pytest.raises(SettingsError):
        connect()
