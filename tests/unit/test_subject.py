"""The subject is the identity: one place in the log for each thing, and back again."""

import pytest

from events import (
    EVENT_TYPES,
    InvalidIdentityError,
    PortSubject,
    SettingSubject,
    WorkerSubject,
    decode_token,
    encode_token,
    parse_subject,
    port_subject,
    setting_subject,
    subject_of,
    worker_subject,
)
from tests.support.fleet_builder import (
    claimed,
    deregistered,
    expired,
    forgotten,
    given,
    held,
    loaded,
    ready,
    registered,
    released,
    resumed,
    thresholds,
    unloaded,
    updated,
    weighted,
)

TOKENS = {
    "w1": "w1",
    "A-Z_09": "A-Z_09",
    "a.b": "a%2Eb",
    "a b": "a%20b",
    "*": "%2A",
    ">": "%3E",
    "%": "%25",
    "100%2E": "100%252E",
    "meta-llama/Llama-3.1": "meta-llama%2FLlama-3%2E1",
    "größe": "gr%C3%B6%C3%9Fe",
    "\x00\n": "%00%0A",
    "[::1]": "%5B%3A%3A1%5D",
}


@pytest.mark.parametrize(("text", "token"), TOKENS.items())
def test_a_text_becomes_one_token_and_is_read_back(text, token):
    assert encode_token(text) == token
    assert decode_token(token) == text


@pytest.mark.parametrize(
    "token",
    [
        "",
        "a.b",
        "a b",
        "%",
        "%2",
        "%2e",
        "%41",
        "%FF",
        "%C3",
        "%GG",
        "ü",
        "a%",
        "\ud800",
    ],
)
def test_a_token_that_no_text_becomes_is_refused(token):
    assert decode_token(token) is None


@pytest.mark.parametrize(
    ("text", "rule"),
    [("", "must not be empty"), ("\ud800", "must be encodable as UTF-8")],
)
def test_a_text_that_no_token_can_carry_is_refused(text, rule):
    with pytest.raises(InvalidIdentityError) as caught:
        encode_token(text)
    assert (caught.value.value, caught.value.rule) == (text, rule)


def test_every_event_belongs_on_one_subject():
    story = given(
        registered("w.1"),
        ready("w.1"),
        updated("w.1", address="http://b"),
        loaded("w.1", "lora"),
        unloaded("w.1", "lora"),
        claimed("w.1", 20000),
        released(20000),
        expired("w.1"),
        deregistered("w.1"),
        held("w.1"),
        resumed("w.1"),
        weighted(0.5, model="*"),
        thresholds("a/b"),
        forgotten("a/b"),
    )
    assert {type(record.event) for record in story} == set(EVENT_TYPES.values())
    assert [
        (record.event.__struct_config__.tag, record.subject) for record in story
    ] == [
        ("worker_registered.v1", "log.worker.prod.w%2E1"),
        ("worker_status_changed.v1", "log.worker.prod.w%2E1"),
        ("worker_updated.v1", "log.worker.prod.w%2E1"),
        ("adapter_loaded.v1", "log.worker.prod.w%2E1"),
        ("adapter_unloaded.v1", "log.worker.prod.w%2E1"),
        ("port_claimed.v1", "log.port.10%2E0%2E0%2E1.20000"),
        ("port_released.v1", "log.port.10%2E0%2E0%2E1.20000"),
        ("worker_expired.v1", "log.worker.prod.w%2E1"),
        ("worker_deregistered.v1", "log.worker.prod.w%2E1"),
        ("worker_held.v1", "log.setting.hold.prod.w%2E1"),
        ("worker_resumed.v1", "log.setting.hold.prod.w%2E1"),
        ("traffic_weight_set.v1", "log.setting.weight.prod.%2A"),
        ("load_thresholds_set.v1", "log.setting.thresholds.a%2Fb"),
        ("model_forgotten.v1", "log.setting.forget.a%2Fb"),
    ]
    assert all(parse_subject(record.subject) for record in story)
    assert all(subject_of(record.event) == record.subject for record in story)


PARSED = {
    "log.worker.prod.w%2E1": WorkerSubject("prod", "w.1"),
    "log.port.10%2E0%2E0%2E1.20000": PortSubject("10.0.0.1", 20000),
    "log.port.h.0": PortSubject("h", 0),
    "log.port.h.65535": PortSubject("h", 65535),
    "log.setting.hold.prod.w1": SettingSubject("hold", ("prod", "w1")),
    "log.setting.weight.prod.%2A": SettingSubject("weight", ("prod", "*")),
    "log.setting.thresholds.m": SettingSubject("thresholds", ("m",)),
    "log.setting.forget.m": SettingSubject("forget", ("m",)),
}


@pytest.mark.parametrize(("subject", "named"), PARSED.items())
def test_a_subject_is_parsed(subject, named):
    assert parse_subject(subject) == named


@pytest.mark.parametrize(
    "subject",
    [
        "",
        "log",
        "log.worker",
        "log.worker.prod",
        "log.worker.prod.w1.more",
        "log.worker.-prod.w1",
        "log.worker.pr%2Fod.w1",
        "log.worker.prod.w%2e1",
        "log.worker..w1",
        "log.worker.prod.",
        "log.port.h.",
        "log.port.h.x",
        "log.port.h.-1",
        "log.port.h.080",
        "log.port.h.65536",
        "log.port.h.123456",
        "log.port.h.\u0661",
        "log.port.%2e.80",
        "log.setting.hold.prod",
        "log.setting.hold.-prod.w1",
        "log.setting.hold.prod.%2e",
        "log.setting.forget.a.b",
        "log.setting.forget.%",
        "log.setting.mood.m",
        "view",
        "cp.default.log.worker.prod.w1",
    ],
)
def test_a_subject_that_names_nothing_is_refused(subject):
    assert parse_subject(subject) is None


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: worker_subject("a.b", "w1"), "namespace"),
        (lambda: worker_subject("", "w1"), "namespace"),
        (lambda: worker_subject("prod", ""), "name"),
        (lambda: port_subject("h", -1), "port"),
        (lambda: port_subject("h", 65536), "port"),
        (lambda: port_subject("", 80), "name"),
        (lambda: setting_subject("hold", "a.b", "w1"), "namespace"),
        (lambda: setting_subject("weight", "*", "m"), "namespace"),
        (lambda: setting_subject("forget", ""), "name"),
    ],
)
def test_no_subject_is_made_that_cannot_be_parsed(make, field):
    with pytest.raises(InvalidIdentityError) as caught:
        make()
    assert caught.value.field == field
