"""Which namespaces are looked at, and where a worker lives."""

import pytest

from controlplane.namespaces import NamespaceFilter, worker_namespace
from events import InvalidIdentityError

ALL = ("ns", "ns2", "ns-abc", "ns-", "NS", "other")
CHOSEN = {
    "all": (NamespaceFilter.all(), ALL),
    "exact": (NamespaceFilter.exact("ns"), ("ns",)),
    "generations": (NamespaceFilter.generations("ns"), ("ns", "ns-abc")),
    "prefix": (NamespaceFilter.prefix("ns"), ("ns", "ns2", "ns-abc", "ns-")),
}


@pytest.mark.parametrize("kind", CHOSEN)
def test_a_filter_chooses_by_whole_tokens_unless_it_is_a_prefix(kind):
    chosen, names = CHOSEN[kind]
    assert tuple(filter(chosen, ALL)) == names
    assert tuple(filter(chosen.matches, ALL)) == names


def test_filters_are_values():
    assert NamespaceFilter.exact("a") == NamespaceFilter.exact("a")
    assert len({NamespaceFilter.exact("a"), NamespaceFilter.prefix("a")}) == 2
    with pytest.raises(AttributeError):
        NamespaceFilter.all().kind = "exact"


ENVIRONMENTS = [
    ({}, NamespaceFilter.all()),
    ({"CP_NAMESPACE": ""}, NamespaceFilter.all()),
    ({"CP_NAMESPACE": "a"}, NamespaceFilter.exact("a")),
    ({"DYN_NAMESPACE": "d"}, NamespaceFilter.exact("d")),
    ({"CP_NAMESPACE_PREFIX": "p"}, NamespaceFilter.generations("p")),
    ({"DYN_NAMESPACE_PREFIX": "p"}, NamespaceFilter.generations("p")),
    (
        {"CP_NAMESPACE": "a", "CP_NAMESPACE_PREFIX": "p"},
        NamespaceFilter.generations("p"),
    ),
    (
        {"DYN_NAMESPACE": "a", "DYN_NAMESPACE_PREFIX": "p"},
        NamespaceFilter.generations("p"),
    ),
    ({"CP_NAMESPACE": "a", "DYN_NAMESPACE": "d"}, NamespaceFilter.exact("a")),
]


@pytest.mark.parametrize(("environ", "expected"), ENVIRONMENTS)
def test_the_environment_chooses(environ, expected):
    assert NamespaceFilter.from_env(environ) == expected


@pytest.mark.parametrize(
    "make",
    [NamespaceFilter.exact, NamespaceFilter.generations, NamespaceFilter.prefix],
)
@pytest.mark.parametrize("text", ["", "a.b", "*", "-a"])
def test_no_filter_is_made_of_what_no_namespace_could_be(make, text):
    with pytest.raises(InvalidIdentityError):
        make(text)


def test_a_wrong_variable_is_named():
    with pytest.raises(InvalidIdentityError, match=r"CP_NAMESPACE_PREFIX 'a\.b'"):
        NamespaceFilter.from_env({"CP_NAMESPACE_PREFIX": "a.b"})


@pytest.mark.parametrize(
    ("explicit", "environ", "expected"),
    [
        (None, {}, "default"),
        ("mine", {"CP_NAMESPACE": "a"}, "mine"),
        (None, {"CP_NAMESPACE": "a", "DYN_NAMESPACE": "d"}, "a"),
        (None, {"DYN_NAMESPACE": "d"}, "d"),
        (None, {"CP_NAMESPACE": "", "DYN_NAMESPACE": "d"}, "d"),
        (None, {"CP_NAMESPACE_SUFFIX": "v2"}, "default-v2"),
        ("mine", {"DYN_NAMESPACE_WORKER_SUFFIX": "v2"}, "mine-v2"),
        (
            "mine",
            {"CP_NAMESPACE_SUFFIX": "v3", "DYN_NAMESPACE_WORKER_SUFFIX": "v2"},
            "mine-v3",
        ),
    ],
)
def test_a_worker_lives_where_it_is_told(explicit, environ, expected):
    assert worker_namespace(explicit, environ) == expected


@pytest.mark.parametrize(
    ("explicit", "environ", "field", "value"),
    [
        ("a b", {}, "namespace", "a b"),
        ("", {}, "namespace", ""),
        (None, {"CP_NAMESPACE": "a.b"}, "CP_NAMESPACE", "a.b"),
        (None, {"CP_NAMESPACE_SUFFIX": "*"}, "CP_NAMESPACE_SUFFIX", "default-*"),
        ("n" * 128, {"CP_NAMESPACE_SUFFIX": "2"}, "CP_NAMESPACE_SUFFIX", None),
    ],
)
def test_a_place_that_is_none_is_refused(explicit, environ, field, value):
    with pytest.raises(InvalidIdentityError) as caught:
        worker_namespace(explicit, environ)
    assert caught.value.field == field
    assert value is None or caught.value.value == value
