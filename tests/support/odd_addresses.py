"""Addresses that are no machine's."""

from typing import Final

NOBODY: Final = (
    "0.0.0.0",  # noqa: S104 - a name here, and bound to by nobody
    "::",
    "::ffff:0.0.0.0",
    "224.0.0.1",
    "ff02::1",
    "255.255.255.255",
    "127.255.255.255",
)
"""A socket can be bound to each of them all the same."""
