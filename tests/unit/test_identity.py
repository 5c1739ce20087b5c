"""Names keep their rules; an error names the field, the value and the rule."""

import pytest

from events import (
    ControlPlaneError,
    InvalidIdentityError,
    Role,
    Status,
    canonical_host,
    check_address,
    check_cell,
    check_host,
    check_labels,
    check_lease_ttl_s,
    check_model,
    check_name,
    check_namespace,
    check_needs,
    check_reason,
    check_role,
    check_status,
    check_worker_id,
    one_line,
)

CELL = "1 to 32 of a-z, 0-9 and -"
NAMESPACE = "1 to 128 of A-Z, a-z, 0-9, _ and -, beginning with a letter or digit"
URL = "a URL with scheme and host, as http://10.0.0.7:8000"
LONG_HOST = "a host of at most 253 bytes"
TTL = "5 to 3600 seconds"
NEEDS = "alternatives, each a list of roles, as [['prefill']]"
ROLES = "one of aggregated, prefill, decode, encode"
STATUSES = "one of starting, ready, draining, drained"


def text(most, least=1):
    return f"text of {least} to {most} bytes of UTF-8"


def label(value):
    return {"zone": value}


GOOD = [
    (check_cell, "default"),
    (check_cell, "a" * 32),
    (check_namespace, "prod-v2"),
    (check_namespace, "0_a"),
    (check_namespace, "a" * 128),
    (check_worker_id, "ü" * 64),
    (check_worker_id, "any text. * > %"),
    (check_host, "fe80::1"),
    (check_host, "h" * 253),
    (check_model, "meta-llama/Llama-3.1-70B-Instruct"),
    (check_model, "m" * 256),
    (check_address, "http://10.0.0.7:8000"),
    (check_address, "grpc://[::1]:8000/v1"),
    (check_address, f"http://user@{'h' * 253}:8000/{'p' * 500}"),
    (check_labels, {}),
    (check_labels, {"zone": ""}),
    (check_labels, {str(n): "x" * 256 for n in range(64)}),
    (check_lease_ttl_s, 5),
    (check_lease_ttl_s, 3600.0),
]


@pytest.mark.parametrize(("check", "value"), GOOD)
def test_what_keeps_the_rules_is_returned_unchanged(check, value):
    assert check(value) == value


BAD = [
    (check_cell, "", "cell", CELL),
    (check_cell, "a" * 33, "cell", CELL),
    (check_cell, "Prod", "cell", CELL),
    (check_cell, "prod\n", "cell", CELL),
    (check_cell, 7, "cell", CELL),
    (check_namespace, "", "namespace", NAMESPACE),
    (check_namespace, "-prod", "namespace", NAMESPACE),
    (check_namespace, "a.b", "namespace", NAMESPACE),
    (check_namespace, "ü", "namespace", NAMESPACE),
    (check_namespace, "a" * 129, "namespace", NAMESPACE),
    (check_namespace, None, "namespace", NAMESPACE),
    (check_worker_id, "", "worker_id", text(128)),
    (check_worker_id, "ü" * 65, "worker_id", text(128)),
    (check_worker_id, "\ud800", "worker_id", text(128)),
    (check_worker_id, b"w1", "worker_id", text(128)),
    (check_host, "", "host", text(253)),
    (check_host, "h" * 254, "host", text(253)),
    (check_model, "*", "model", "'*' stands for all models"),
    (check_model, "", "model", text(256)),
    (check_model, "m" * 257, "model", text(256)),
    (check_address, "", "address", text(2048)),
    (check_address, "http://" + "h" * 2048, "address", text(2048)),
    (check_address, "10.0.0.7:8000", "address", URL),
    (check_address, f"http://{'h' * 254}:80/", "address", LONG_HOST),
    (check_address, f"http://{'ß' * 127}", "address", LONG_HOST),
    (check_address, "http://", "address", URL),
    (check_address, "//host", "address", URL),
    (check_address, "http://h:99999", "address", URL),
    (check_address, "http://[::1", "address", URL),
    (check_address, "http://h/a b", "address", URL),
    (check_address, "http://h\n", "address", URL),
    (check_address, "\x00http://h", "address", URL),
    (check_labels, ["zone"], "labels", "a mapping of texts to texts"),
    (check_labels, label(7), "labels['zone']", text(256, 0)),
    (check_labels, label("x" * 257), "labels['zone']", text(256, 0)),
    (check_labels, {"": "x"}, "labels key", text(256)),
    (check_labels, {"k" * 257: "x"}, "labels key", text(256)),
    (check_lease_ttl_s, 4.9, "lease_ttl_s", TTL),
    (check_lease_ttl_s, 3600.1, "lease_ttl_s", TTL),
    (check_lease_ttl_s, float("nan"), "lease_ttl_s", TTL),
    (check_lease_ttl_s, float("inf"), "lease_ttl_s", TTL),
    (check_lease_ttl_s, True, "lease_ttl_s", TTL),
    (check_lease_ttl_s, "10", "lease_ttl_s", TTL),
    (check_role, "router", "role", ROLES),
    (check_role, None, "role", ROLES),
    (check_status, "dead", "status", STATUSES),
    (check_needs, "prefill", "needs", NEEDS),
    (check_needs, ["prefill"], "needs", NEEDS),
    (check_needs, 7, "needs", NEEDS),
    (check_needs, [7], "needs", NEEDS),
    (check_needs, [["router"]], "role", ROLES),
]


@pytest.mark.parametrize(("check", "value", "field", "rule"), BAD)
def test_what_breaks_a_rule_is_refused_by_name(check, value, field, rule):
    with pytest.raises(InvalidIdentityError) as caught:
        check(value)
    error = caught.value
    assert isinstance(error, ControlPlaneError)
    assert (error.field, error.rule) == (field, rule)
    assert str(error) == f"{field} {error.value!r} is not valid: {rule}"
    if field in {"cell", "namespace", "worker_id", "host", "model", "address"}:
        assert error.value is value


def test_too_many_labels_are_counted_not_shown():
    with pytest.raises(InvalidIdentityError) as caught:
        check_labels({str(n): "" for n in range(65)})
    assert (caught.value.value, caught.value.rule) == (65, "at most 64 labels")


def test_a_name_is_checked_under_the_field_it_is_for():
    assert check_name("component", "backend") == "backend"
    assert check_model("sql-lora", "adapter") == "sql-lora"
    for check in (
        lambda: check_name("component", ""),
        lambda: check_name("component", "x" * 129),
    ):
        with pytest.raises(InvalidIdentityError) as caught:
            check()
        assert (caught.value.field, caught.value.rule) == ("component", text(128))
    with pytest.raises(InvalidIdentityError) as caught:
        check_model("*", "adapter")
    assert caught.value.field == "adapter"


def test_words_become_roles_and_statuses():
    assert check_role("decode") is check_role(Role.DECODE) is Role.DECODE
    assert check_status("ready") is check_status(Status.READY) is Status.READY
    assert check_needs([["prefill"], (Role.ENCODE, "prefill")]) == (
        (Role.PREFILL,),
        (Role.ENCODE, Role.PREFILL),
    )
    assert check_needs(()) == ()
    assert check_lease_ttl_s(10) == 10.0
    assert isinstance(check_lease_ttl_s(10), float)


@pytest.mark.parametrize(
    ("spelled", "host"),
    [
        ("FD00:0::2", "fd00::2"),
        ("2001:0DB8:0::1", "2001:db8::1"),
        ("[2001:db8::1]", "2001:db8::1"),
        ("::ffff:10.9.9.9", "10.9.9.9"),
        ("10.9.9.9", "10.9.9.9"),
        ("10.9.9.9.", "10.9.9.9"),
        ("FE80::1%eth0.Vlan7", "fe80::1%eth0.Vlan7"),
        ("Node7", "node7"),
        ("node7.Example.org.", "node7.example.org"),
        ("12345", "12345"),
        ("10.0.0.1]", "10.0.0.1]"),
        ("a_b%c", "a_b%c"),
        ("h" * 253, "h" * 253),
    ],
)
def test_a_host_has_one_spelling(spelled, host):
    assert canonical_host(spelled) == host
    assert canonical_host(host) == host


@pytest.mark.parametrize(
    "value",
    [
        *("", " node7", "node7 ", "no de", "node7\n", "a\x00", "a\u200b", "\u3000"),
        *(".", "10.1", "010.9.9.9", "10.9.9.256", "h" * 254, "\ud800"),
        *(7, None, b"node7"),
    ],
)
def test_what_no_host_is_called_is_refused(value):
    with pytest.raises(InvalidIdentityError) as caught:
        canonical_host(value)
    assert (caught.value.field, caught.value.value) == ("host", value)


CONTROLS = ["a\nb", "\r", "a\tb", "\x1b[31m", "a\x00", "\x7f", "a\x85b", "a\u2028b"]


@pytest.mark.parametrize("text_with", CONTROLS)
def test_what_is_shown_in_a_line_has_no_control_characters(text_with):
    for check, field in (
        (check_reason, "reason"),
        (lambda value: check_name("by", value), "by"),
    ):
        with pytest.raises(InvalidIdentityError) as caught:
            check(text_with)
        rule = "text in one line, without control characters"
        assert (caught.value.field, caught.value.rule) == (field, rule)
    assert check_reason(one_line(text_with)) == one_line(text_with)


def test_a_reason_is_any_line_of_at_most_a_kilobyte():
    for reason in ("", "a b", "ü" * 512, "\u3000", "👩\u200d💻"):
        assert check_reason(reason) == reason
    for reason in ("x" * 1025, "\ud800", None):
        with pytest.raises(InvalidIdentityError, match="reason"):
            check_reason(reason)
    assert one_line(" rolled\nback\r\n ") == "rolled back"
