"""Deliberate faults: small patches of the product's own functions at run time.

A function that modules import by name is bound in each of them: `everywhere` finds all
that have it. Whoever patches the product for another reason (`versions`) is not
disturbed: only what a mutant put on is taken off.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import msgspec

from tests.simulation.running import PRODUCT_ROOMS

Make = Callable[[Any], Any]
"""From what is there to what is put in its place; called anew for each run."""
MISSING = object()


class Patch(msgspec.Struct, frozen=True):
    """One attribute of a class or module of the product, and what replaces it."""

    owner: Any
    name: str
    make: Make

    @contextmanager
    def applied(self) -> Iterator[None]:
        """The replacement is there while this is entered."""
        own = vars(self.owner).get(self.name, MISSING)
        setattr(self.owner, self.name, self.make(getattr(self.owner, self.name)))
        try:
            yield
        finally:
            if own is MISSING:
                delattr(self.owner, self.name)
            else:
                setattr(self.owner, self.name, own)


class Everywhere(msgspec.Struct, frozen=True):
    """A function of a module of the product, wherever the product imported it."""

    function: Any
    make: Make

    @contextmanager
    def applied(self) -> Iterator[None]:
        """The replacement is there, the same in all modules, while this is entered."""
        made = self.make(self.function)
        with ExitStack() as stack:
            for module, name in bindings_of(self.function):
                stack.enter_context(Patch(module, name, lambda _: made).applied())
            yield


class Mutant(msgspec.Struct, frozen=True):
    """A deliberate fault, by name. ``plans``: the special plans that lead to it."""

    name: str
    what: str
    patches: tuple[Patch | Everywhere, ...]
    plans: tuple[str, ...] = ()

    @contextmanager
    def applied(self) -> Iterator[None]:
        """The fault is in the product while this is entered."""
        with ExitStack() as stack:
            for patch in self.patches:
                stack.enter_context(patch.applied())
            yield


def bindings_of(function: Any) -> list[tuple[Any, str]]:
    """The modules of the product that have ``function``, each with its name there.

    Of a copy: what is collected in the midst of a walk may import something.
    """
    return [
        (module, name)
        for title, module in sorted(sys.modules.copy().items())
        if module is not None and title.split(".")[0] in PRODUCT_ROOMS
        for name, value in sorted(vars(module).copy().items())
        if value is function
    ]


def always(value: Any) -> Make:
    """A function that answers ``value``, whatever it is asked."""
    return lambda _: lambda *_args, **_named: value


def constant(value: Any) -> Make:
    """Another number in the place of one."""
    return lambda _: value
