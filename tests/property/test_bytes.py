"""Subjects are a bijection; reading never raises; events survive their bytes."""

import json

from hypothesis import example, given
from hypothesis import strategies as st

from events import (
    PortSubject,
    SettingSubject,
    Undecodable,
    UnknownEvent,
    WorkerSubject,
    decode,
    decode_token,
    encode,
    encode_token,
    parse_subject,
    port_subject,
    setting_subject,
    subject_of,
    worker_subject,
)
from projections import (
    SnapshotUnusableError,
    decode_snapshot,
    decode_view,
    restore,
)
from tests.property import logs

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40)
NAMESPACES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}", fullmatch=True)
TOKENS = st.text("aZ0_-%2EefFc3.*> ü", max_size=12)


@given(TEXTS)
@example("*")
@example("%2E")
@example("\x00")
def test_every_text_is_one_token_and_comes_back(text):
    token = encode_token(text)
    assert decode_token(token) == text
    assert token.isascii()
    assert not set(token) & set(".*> \t\r\n")


@given(TOKENS)
def test_every_token_is_canonical_or_refused(token):
    text = decode_token(token)
    assert text is None or encode_token(text) == token


@given(NAMESPACES, TEXTS)
def test_every_worker_has_one_subject(namespace, worker_id):
    subject = worker_subject(namespace, worker_id)
    assert parse_subject(subject) == WorkerSubject(namespace, worker_id)


@given(TEXTS, st.integers(0, 65535))
def test_every_port_has_one_subject(host, port):
    assert parse_subject(port_subject(host, port)) == PortSubject(host, port)


@given(NAMESPACES, TEXTS)
def test_every_setting_has_one_subject(namespace, name):
    for kind in ("hold", "weight"):
        subject = setting_subject(kind, namespace, name)
        assert parse_subject(subject) == SettingSubject(kind, (namespace, name))
    for kind in ("thresholds", "forget"):
        subject = setting_subject(kind, name)
        assert parse_subject(subject) == SettingSubject(kind, (name,))


PARTS = st.sampled_from(["log", "worker", "port", "setting", "hold", "80"]) | TOKENS


@given(st.lists(PARTS, max_size=6).map(".".join))
def test_every_subject_is_canonical_or_refused(subject):
    match parse_subject(subject):
        case WorkerSubject(namespace, worker_id):
            assert worker_subject(namespace, worker_id) == subject
        case PortSubject(host, port):
            assert port_subject(host, port) == subject
        case SettingSubject(kind, scope):
            assert setting_subject(kind, *scope) == subject


@given(st.binary(max_size=60), logs.SUBJECTS)
def test_reading_any_bytes_never_raises(payload, subject):
    event = decode(subject, payload)
    assert isinstance(event, UnknownEvent | Undecodable)
    assert event.payload == payload
    assert decode_view(payload) is None


@given(
    logs.JSON, st.sampled_from(["worker_registered.v1", "x.v1", None]), logs.SUBJECTS
)
def test_reading_any_json_never_raises(value, tag, subject):
    document = {**value, "type": tag} if isinstance(value, dict) else value
    decode(subject, json.dumps(document).encode())
    decode_view(json.dumps(document).encode())


@given(logs.logs())
def test_what_reads_as_an_event_stands_where_it_belongs(log):
    for record in log:
        if not isinstance(record.event, UnknownEvent | Undecodable):
            assert subject_of(record.event) == record.subject
            assert parse_subject(record.subject) is not None
            assert decode(record.subject, encode(record.event)) == record.event
        assert record.fingerprint


@given(st.binary(max_size=60))
def test_no_bytes_pass_for_a_snapshot(payload):
    try:
        restore(decode_snapshot(payload), frozenset())
    except SnapshotUnusableError:
        return
    message = "these bytes are no snapshot"
    raise AssertionError(message)
