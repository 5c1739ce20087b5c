"""Identifiers: what sorts by time can tell which life began first."""

import uuid
from itertools import pairwise

from controlplane.identifiers import new_uuid7


def test_an_identifier_is_a_uuid_of_version_7():
    made = uuid.UUID(new_uuid7())
    assert (made.version, made.variant) == (7, uuid.RFC_4122)


def test_no_two_are_alike():
    assert len({new_uuid7() for _ in range(10_000)}) == 10_000


def test_later_ones_sort_later_within_a_millisecond():
    made = [new_uuid7() for _ in range(1000)]
    # Calls may fall into one quarter of a microsecond; neighbours are further apart.
    assert all(a[:18] <= b[:18] for a, b in pairwise(made))
    assert len({text[:18] for text in made}) > 500
