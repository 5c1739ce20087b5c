"""Which namespaces a process looks at, and in which one a worker lives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, Self

import msgspec

from events import InvalidIdentityError, Namespace, check_namespace

DEFAULT_NAMESPACE: Final = "default"
_FAMILIES: Final = (
    ("CP_NAMESPACE_PREFIX", "CP_NAMESPACE"),
    ("DYN_NAMESPACE_PREFIX", "DYN_NAMESPACE"),
)
_NAMES: Final = ("CP_NAMESPACE", "DYN_NAMESPACE")
_SUFFIXES: Final = ("CP_NAMESPACE_SUFFIX", "DYN_NAMESPACE_WORKER_SUFFIX")


class NamespaceFilter(msgspec.Struct, frozen=True):
    """A choice of namespaces. Make one with the class methods; call it to ask."""

    kind: Literal["all", "exact", "generations", "prefix"]
    text: str = ""

    @classmethod
    def all(cls) -> Self:
        """Every namespace."""
        return cls("all")

    @classmethod
    def exact(cls, namespace: str) -> Self:
        """That namespace and no other: ``ns`` is neither ``ns2`` nor ``ns-a``."""
        return cls("exact", check_namespace(namespace))

    @classmethod
    def generations(cls, base: str) -> Self:
        """``base`` itself and each ``{base}-{suffix}``, but not ``{base}2``."""
        return cls("generations", check_namespace(base))

    @classmethod
    def prefix(cls, text: str) -> Self:
        """Every namespace that begins with ``text``, letter by letter."""
        return cls("prefix", check_namespace(text))

    @classmethod
    def from_env(cls, environ: Mapping[str, str]) -> Self:
        """What the environment asks for; all namespaces if it does not say.

        ``CP_NAMESPACE_PREFIX`` and ``CP_NAMESPACE`` are read first, ``DYN_…`` only if
        neither is set. A prefix wins over a name and means `generations`.
        """
        for prefix, name in _FAMILIES:
            if environ.get(prefix):
                return cls("generations", _named(prefix, environ[prefix]))
            if environ.get(name):
                return cls("exact", _named(name, environ[name]))
        return cls.all()

    def matches(self, namespace: Namespace) -> bool:
        """Whether ``namespace`` is one of the chosen."""
        match self.kind:
            case "all":
                return True
            case "exact":
                return namespace == self.text
            case "generations":
                older = f"{self.text}-"
                return namespace == self.text or (
                    namespace.startswith(older) and namespace != older
                )
            case "prefix":
                return namespace.startswith(self.text)

    def __call__(self, namespace: Namespace) -> bool:
        """As `matches`."""
        return self.matches(namespace)


def worker_namespace(explicit: str | None, environ: Mapping[str, str]) -> Namespace:
    """Where a worker lives: the argument, else the environment, else ``default``.

    A suffix in the environment names the generation and is appended to any of them.
    Raises `InvalidIdentityError` that names the argument or the variable.
    """
    field, base = "namespace", explicit
    if base is None:
        field, base = _first(_NAMES, environ) or (field, DEFAULT_NAMESPACE)
    namespace = _named(field, base)
    suffix = _first(_SUFFIXES, environ)
    if suffix is None:
        return namespace
    return _named(suffix[0], f"{namespace}-{suffix[1]}")


def _first(
    names: tuple[str, ...], environ: Mapping[str, str]
) -> tuple[str, str] | None:
    """The first of these variables that says something, with what it says."""
    return next(((name, environ[name]) for name in names if environ.get(name)), None)


def _named(field: str, value: str) -> Namespace:
    try:
        return check_namespace(value)
    except InvalidIdentityError as error:
        raise InvalidIdentityError(
            field=field, value=value, rule=f"must make a namespace: {error.rule}"
        ) from error
