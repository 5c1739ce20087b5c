"""Identifiers: what sorts by time can tell which life began first."""

import uuid
from itertools import pairwise
from random import Random

from controlplane import identifiers
from controlplane.identifiers import SystemSource, new_uuid7


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


class Seeded:
    """A clock that stands still, and chance from a seed."""

    def __init__(self, seed):
        self.random = Random(seed)

    def now_ns(self):
        return 1_700_000_000_123_456_789

    def random_bytes(self, count):
        return self.random.randbytes(count)


def drawn(source, count):
    before = identifiers.use(source)
    try:
        return [new_uuid7() for _ in range(count)]
    finally:
        assert identifiers.use(before) is source


def test_equal_sources_make_equal_identifiers():
    made = drawn(Seeded(1), 100)
    assert made == drawn(Seeded(1), 100) != drawn(Seeded(2), 100)
    assert len(set(made)) == 100
    assert made[0].startswith("018bcfe5-687b-7")
    assert (uuid.UUID(made[0]).int >> 64) & 0xFFF == (456_789 << 12) // 1_000_000
    assert all(uuid.UUID(text).variant == uuid.RFC_4122 for text in made)


def test_who_used_another_source_gives_the_machine_s_back():
    drawn(Seeded(1), 1)
    before = identifiers.use(SystemSource())
    assert isinstance(before, SystemSource)
    identifiers.use(before)
    assert new_uuid7() > drawn(Seeded(1), 1)[0]
