"""A question to a fleet that has a yes or a no: parsed and checked, never executed.

    model("llama").serving == False
    worker("prod/gpu7").routable and not "held" in worker("prod/gpu7").blockers
    count(routable, model="llama", namespace="prod") < 3 or not known("sql-lora")

Of a worker or model that is not there, truths are False, lists are empty, and all else
is None, which is neither more nor less than anything. Each part has a kind (truth,
number, text, list), and kinds that do not fit are refused before anything is looked
at: a question with a slip of the pen would have the answer "never".
"""

from __future__ import annotations

from collections.abc import Callable

from events import ModelName

from .entities import WorkerKey
from .fleet import FleetState
from .grammar import Grammar, Looks
from .view import Fleet


class Expression:
    """A question to any fleet. Made by `parse_expression`."""

    def __init__(
        self, text: str, question: Callable[[Fleet], bool], looks: Looks
    ) -> None:
        """Ask ``question``, which looks at ``looks`` and at nothing else."""
        self.text = text
        self._question, self._looks = question, looks

    def never_heard_of(self, fleet: Fleet) -> tuple[ModelName, ...]:
        """The models that it asks about and the fleet does not know."""
        return tuple(sorted(self._looks.models - set(fleet.state.known)))

    def holds(self, fleet: Fleet) -> bool:
        """Whether it is so. Never raises."""
        return self._question(fleet)

    def may_differ(self, before: FleetState, after: FleetState) -> bool:
        """Whether the answer may be another after than before.

        True if anything that it looks at is not the very same object: a fleet shares
        with the one before it whatever did not change.
        """
        looks = self._looks
        if looks.revision:
            return True
        if before is after:
            return False
        return (
            before.settings is not after.settings
            or (looks.known and before.known is not after.known)
            or (looks.everyone and before.models is not after.models)
            or any(_other_model(before, after, name) for name in looks.models)
            or any(_other_worker(before, after, key) for key in looks.workers)
        )

    def __repr__(self) -> str:
        """Quote it."""
        return f"Expression({self.text!r})"


def parse_expression(text: str) -> Expression:
    """The question that ``text`` is. Raises `ExpressionError` with its place."""
    grammar = Grammar(text)
    question = grammar.read()
    return Expression(grammar.text, question, grammar.looks)


def _other_model(before: FleetState, after: FleetState, name: ModelName) -> bool:
    """Whether a model, or whoever has an adapter of the name, may look different."""
    if name in before.adapters or name in after.adapters:
        return before.models is not after.models
    return before.models.get(name) is not after.models.get(name)


def _other_worker(before: FleetState, after: FleetState, key: WorkerKey) -> bool:
    old, new = before.workers.get(key), after.workers.get(key)
    if old is not new:
        return True
    return new is not None and _other_model(before, after, new.model)
