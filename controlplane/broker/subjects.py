"""How NATS subjects match patterns, for the broker in memory. Pure."""

from __future__ import annotations


def matches(pattern: str, subject: str) -> bool:
    """Whether ``subject`` falls under ``pattern`` (``*`` one token, ``>`` the rest)."""
    if pattern in (">", subject):
        return True
    if "*" not in pattern:  # most by far
        return pattern.endswith(".>") and subject.startswith(pattern[:-1])
    wanted, given = pattern.split("."), subject.split(".")
    if wanted[-1] == ">":
        wanted.pop()
        if len(given) <= len(wanted):
            return False
        given = given[: len(wanted)]
    return len(wanted) == len(given) and all(
        token in ("*", is_) for token, is_ in zip(wanted, given, strict=True)
    )


def overlap(one: str, other: str) -> bool:
    """Whether some subject falls under both patterns."""
    ours, theirs = one.split("."), other.split(".")
    for mine, yours in zip(ours, theirs, strict=False):
        if ">" in (mine, yours):
            return True
        if mine != yours and "*" not in (mine, yours):
            return False
    return len(ours) == len(theirs)


def mappable(source: str, destination: str) -> bool:
    """Whether `mapped` can do it: no wildcards, or one ``>`` at the end of each."""
    if "*" in source + destination:
        return False
    return source.endswith(">") == destination.endswith(">")


def mapped(subject: str, source: str, destination: str) -> str:
    """Where a message on ``subject`` is republished: ``>`` carries the rest over."""
    if not destination.endswith(">"):
        return destination
    rest = subject.split(".")[source.count(".") :]
    return destination[:-1] + ".".join(rest)
