"""Whose a claim may be."""

import pytest
from msgspec.structs import replace

from controlplane.ports.owners import check_owner
from events import InvalidIdentityError, PortOwner

OWNER = PortOwner(namespace="prod", worker_id="w1", incarnation="a life")


def test_a_life_that_a_worker_may_have_owns():
    assert check_owner(OWNER) is OWNER


@pytest.mark.parametrize("odd", ["foo", {}, None, ("prod", "w1", "a life")])
def test_what_is_no_owner_is_refused(odd):
    with pytest.raises(InvalidIdentityError, match="PortOwner") as refused:
        check_owner(odd)
    assert (refused.value.field, refused.value.value) == ("owner", odd)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("namespace", "team.a"),
        ("namespace", ""),
        ("namespace", 7),
        ("worker_id", ""),
        ("worker_id", "x" * 129),
        ("worker_id", None),
        ("incarnation", ""),
        ("incarnation", b"x"),
        ("incarnation", "x" * 500),
    ],
)
def test_what_no_worker_is_called_is_refused_by_its_field(field, value):
    with pytest.raises(InvalidIdentityError) as refused:
        check_owner(replace(OWNER, **{field: value}))
    assert (refused.value.field, refused.value.value) == (field, value)
    assert refused.value.rule
