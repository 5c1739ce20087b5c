"""The grammar of expressions: from text to terms whose kinds fit.

Python's parser reads the text; of what it read, each node is taken for what is listed
here, or refused with its place. Nothing is ever executed: a term is a function of a
fleet that this module made.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from events import (
    InvalidIdentityError,
    Role,
    check_model,
    check_namespace,
    check_worker_id,
)

from .entities import WorkerKey
from .errors import ExpressionError
from .looking import COUNTABLE, ROLES, Counting, serving_namespaces, worker_facts
from .view import Fleet
from .vocabulary import (
    ABSENT,
    COMPARED,
    ENTRIES,
    EXAMPLES,
    LANGUAGE,
    MEMBER,
    MODEL_FIELDS,
    SAME,
    SLIPS,
    WORDS,
    WORKER_FIELDS,
    Kind,
    meant,
)

TEXT_MAX: Final = 4000
DEPTH_MAX: Final = 40


class Term(NamedTuple):
    """A part of an expression: what it gives for a fleet, and of which kind."""

    kind: Kind
    value: Callable[[Fleet], Any]
    choices: tuple[str, ...] = ()
    """The texts that it, or what it lists, can be; empty: any."""
    constant: Any = None
    """Its value, if it is a text or a list of texts that stands there."""


class Looks:
    """What of a fleet an expression looks at."""

    def __init__(self) -> None:
        """Nothing yet."""
        self.models: set[str] = set()
        self.workers: set[WorkerKey] = set()
        self.known = self.everyone = self.revision = False


class Grammar:
    """Reads one text; `looks` gathers what it asks about."""

    def __init__(self, text: str) -> None:
        """Read ``text``, of which line ends are but spaces."""
        self.text = " ".join(text.split("\n")).strip()
        self.looks = Looks()
        self._depth = 0

    def read(self) -> Callable[[Fleet], bool]:
        """The question that the text is. Raises `ExpressionError`."""
        if not self.text:
            raise self._refusal_at(
                0, 1, 'it is empty; try: model("llama").serving == False'
            )
        if len(self.text) > TEXT_MAX:
            reason = f"it is longer than {TEXT_MAX} characters"
            raise self._refusal_at(TEXT_MAX, 1, reason)
        return self._truth(self._tree().body).value

    def _tree(self) -> ast.Expression:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about escapes in texts
                return ast.parse(self.text, mode="eval")
        except SyntaxError as error:
            # The parser counts from 1, and says 0 when the text ends too early.
            place = (error.offset or len(self.text) + 1) - 1
            column = min(place, len(self.text))
            raise self._refusal_at(column, 1, error.msg) from error
        except (ValueError, RecursionError, MemoryError) as error:
            raise self._refusal_at(0, 1, "nobody can read it") from error

    # ---- refusing --------------------------------------------------------------
    def _refusal_at(self, column: int, width: int, reason: str) -> ExpressionError:
        return ExpressionError(
            text=self.text, column=column, width=width, reason=reason
        )

    def _refusal(self, node: ast.expr, reason: str) -> ExpressionError:
        """Why ``node`` will not do, with its place: the parser counts in bytes."""
        whole = self.text.encode()
        column = len(whole[: node.col_offset].decode())
        end = len(whole[: node.end_col_offset].decode())
        return self._refusal_at(column, max(end - column, 1), reason)

    # ---- terms -----------------------------------------------------------------
    def _truth(self, node: ast.expr) -> Term:
        term = self._term(node)
        if term.kind != "truth":
            reason = f"this is a {term.kind}, where a yes or no is needed: compare it"
            raise self._refusal(node, reason)
        return term

    def _term(self, node: ast.expr) -> Term:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise self._refusal(node, f"it is nested deeper than {DEPTH_MAX} levels")
        term = self._any_term(node)
        self._depth -= 1
        return term

    def _any_term(self, node: ast.expr) -> Term:  # noqa: C901, PLR0911 - a case for each kind of node
        match node:
            case ast.BoolOp(op=op, values=values):
                return _joined(op, [self._truth(value).value for value in values])
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                inner = self._truth(operand).value
                return Term("truth", lambda fleet: not inner(fleet))
            case ast.UnaryOp(
                op=ast.USub(), operand=ast.Constant(value=int() | float() as number)
            ) if not isinstance(number, bool):
                return Term("number", lambda _: -number)
            case ast.Compare():
                return self._comparison(node)
            case ast.Constant(value=value):
                return self._constant(node, value)
            case ast.Tuple(elts=items) | ast.List(elts=items):
                texts = [self._text(item, "a list is of texts") for item in items]
                return Term("list", lambda _: texts, constant=texts)
            case ast.Name(id=name):
                return self._name(node, name)
            case ast.Call():
                return self._call(node)
            case ast.Attribute(value=ast.Call() as owner, attr=field):
                return self._field(node, owner, field)
            case ast.Subscript(value=ast.Attribute() as mapping, slice=key):
                return self._entry(mapping, key)
            case _:
                raise self._refusal(node, f"only {LANGUAGE} can be said here")

    def _constant(self, node: ast.Constant, value: object) -> Term:
        match value:
            case None:
                return Term("nothing", lambda _: None)
            case bool():
                return Term("truth", lambda _: value)
            case str():
                return Term("text", lambda _: value, constant=value)
            case int() | float():
                return Term("number", lambda _: value)
            case _:
                raise self._refusal(
                    node, "a constant is a text, a number, True, False, None"
                )

    def _name(self, node: ast.Name, name: str) -> Term:
        if name == "revision":
            self.looks.revision = True
            return Term("number", lambda fleet: fleet.revision)
        if name in SLIPS:
            raise self._refusal(node, f"write {SLIPS[name]}")
        if name in WORDS:
            raise self._refusal(
                node, f"ask {name} for something, as in: {EXAMPLES[name]}"
            )
        raise self._refusal(node, f"no word {name!r}{meant(name, WORDS)}")

    # ---- comparisons -----------------------------------------------------------
    def _comparison(self, node: ast.Compare) -> Term:
        nodes = [node.left, *node.comparators]
        terms = [self._term(one) for one in nodes]
        pairs = []
        for index, sign in enumerate(node.ops):
            left, right = terms[index], terms[index + 1]
            self._check_pair(nodes[index : index + 2], left, sign, right)
            pairs.append((left.value, COMPARED[type(sign)], right.value))
        return Term("truth", lambda fleet: all(_holds(fleet, *one) for one in pairs))

    def _check_pair(
        self, nodes: list[ast.expr], left: Term, sign: ast.cmpop, right: Term
    ) -> None:
        kinds = {left.kind, right.kind}
        if isinstance(sign, MEMBER):
            if left.kind != "text" or right.kind not in {"list", "mapping"}:
                raise self._refusal(nodes[0], "in asks whether a text is in a list")
        elif isinstance(sign, SAME):
            if len(kinds - {"nothing"}) > 1:
                reason = f"a {left.kind} is never a {right.kind}"
                raise self._refusal(nodes[1], reason)
        elif kinds not in ({"number"}, {"text"}):
            reason = f"a {left.kind} and a {right.kind} have no order"
            raise self._refusal(nodes[1], reason)
        for node, constant, other in (
            (nodes[0], left.constant, right.choices),
            (nodes[1], right.constant, left.choices),
        ):
            self._check_choice(node, constant, other)

    def _check_choice(
        self,
        node: ast.expr,
        constant: object,
        choices: tuple[str, ...],
    ) -> None:
        texts = constant if isinstance(constant, list) else [constant]
        for text in texts:
            if choices and text is not None and text not in choices:
                those = ", ".join(choices)
                raise self._refusal(node, f"it is never {text!r}, but one of: {those}")

    # ---- words -----------------------------------------------------------------
    def _call(self, node: ast.Call) -> Term:
        match node.func:
            case ast.Name(id="known"):
                return self._known(node)
            case ast.Name(id="count"):
                return self._count(node)
            case ast.Name(id="model" | "worker" as word):
                example = f"{EXAMPLES[word]}"
                raise self._refusal(
                    node, f"ask for something about the {word}: {example}"
                )
            case ast.Name(id=name):
                raise self._refusal(node.func, f"no word {name!r}{meant(name, WORDS)}")
            case other:
                raise self._refusal(other, f"only {', '.join(WORDS[:4])} can be asked")

    def _field(self, node: ast.Attribute, owner: ast.Call, field: str) -> Term:
        match owner.func:
            case ast.Name(id="model"):
                return self._model_field(node, owner, field)
            case ast.Name(id="worker"):
                return self._worker_field(node, owner, field)
            case ast.Name(id=name) if name not in WORDS:
                raise self._refusal(owner.func, f"no word {name!r}{meant(name, WORDS)}")
            case _:
                raise self._refusal(node, "only a model and a worker have fields")

    def _model_field(self, node: ast.Attribute, owner: ast.Call, field: str) -> Term:
        name = self._model(self._only_argument(owner, "model"))
        if field not in MODEL_FIELDS:
            raise self._refusal_of_field(node, owner, field, tuple(MODEL_FIELDS))
        self.looks.models.add(name)
        if field == "serving":
            return Term("truth", lambda fleet: bool(serving_namespaces(fleet, name)))
        return Term("text", lambda fleet: name if name in fleet.models else None)

    def _worker_field(self, node: ast.Attribute, owner: ast.Call, field: str) -> Term:
        key = self._worker(self._only_argument(owner, "worker"))
        if field not in WORKER_FIELDS:
            raise self._refusal_of_field(node, owner, field, tuple(WORKER_FIELDS))
        self.looks.workers.add(key)
        kind, choices = WORKER_FIELDS[field]
        absent = ABSENT.get(kind)
        return Term(
            kind, lambda fleet: worker_facts(fleet, key).get(field, absent), choices
        )

    def _refusal_of_field(
        self, node: ast.Attribute, owner: ast.Call, field: str, all_: tuple[str, ...]
    ) -> ExpressionError:
        word = owner.func.id if isinstance(owner.func, ast.Name) else ""
        end = len(self.text.encode()[: node.end_col_offset].decode())
        reason = f"a {word} has no {field!r}, but: {', '.join(all_)}"
        return self._refusal_at(end - len(field), len(field), reason)

    def _entry(self, mapping: ast.Attribute, key: ast.expr) -> Term:
        term = self._term(mapping)
        if mapping.attr not in ENTRIES:
            raise self._refusal(mapping, "only labels and capacity are looked into")
        name = self._text(key, "a label or capacity is named by a text")
        inner = term.value
        return Term(ENTRIES[mapping.attr], lambda fleet: inner(fleet).get(name))

    def _known(self, node: ast.Call) -> Term:
        name = self._model(self._only_argument(node, "known"))
        self.looks.known = True
        return Term("truth", lambda fleet: name in fleet.state.known)

    def _count(self, node: ast.Call) -> Term:
        match node.args:
            case [ast.Name(id=what)] if what in COUNTABLE:
                pass
            case [ast.Name(id=what) as which]:
                those = ", ".join(COUNTABLE)
                raise self._refusal(which, f"what can be counted: {those}")
            case _:
                raise self._refusal(node, f"say what to count: {EXAMPLES['count']}")
        given: dict[str, Any] = {}
        for keyword in node.keywords:
            match keyword.arg:
                case "model":
                    given["model"] = self._model(keyword.value)
                case "namespace":
                    given["namespace"] = self._namespace(keyword.value)
                case "role":
                    given["role"] = self._role(keyword.value)
                case _:
                    rule = "workers are counted by model=, namespace= and role="
                    raise self._refusal(keyword.value, rule)
        if "model" in given:
            self.looks.models.add(given["model"])
        else:
            self.looks.everyone = True
        return Term("number", Counting(what, **given))

    # ---- names -----------------------------------------------------------------
    def _only_argument(self, node: ast.Call, word: str) -> ast.expr:
        if len(node.args) != 1 or node.keywords:
            raise self._refusal(node, f"{word} takes one name, as in: {EXAMPLES[word]}")
        return node.args[0]

    def _text(self, node: ast.expr, rule: str) -> str:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return node.value
        raise self._refusal(node, f"{rule}, in quotes")

    def _checked(self, node: ast.expr, check: Callable[[str], Any]) -> Any:  # noqa: ANN401 - as the check says
        text = self._text(node, "a name is a text")
        try:
            return check(text)
        except InvalidIdentityError as error:
            raise self._refusal(node, str(error)) from error

    def _model(self, node: ast.expr) -> str:
        return str(self._checked(node, check_model))

    def _namespace(self, node: ast.expr) -> str:
        return str(self._checked(node, check_namespace))

    def _role(self, node: ast.expr) -> Role:
        text = self._text(node, "a role is a text")
        self._check_choice(node, text, ROLES)
        return Role(text)

    def _worker(self, node: ast.expr) -> WorkerKey:
        namespace, slash, worker_id = self._text(node, "a worker is a text").partition(
            "/"
        )
        if not slash:
            raise self._refusal(node, "a worker is named namespace/worker_id")
        try:
            return check_namespace(namespace), check_worker_id(worker_id)
        except InvalidIdentityError as error:
            raise self._refusal(node, str(error)) from error


def _joined(op: ast.boolop, values: list[Callable[[Fleet], Any]]) -> Term:
    if isinstance(op, ast.And):
        return Term("truth", lambda fleet: all(value(fleet) for value in values))
    return Term("truth", lambda fleet: any(value(fleet) for value in values))


def _holds(
    fleet: Fleet,
    left: Callable[[Fleet], Any],
    compared: Callable[[Any, Any], bool],
    right: Callable[[Fleet], Any],
) -> bool:
    """Whether the comparison holds; what is not there is neither more nor less."""
    one, other = left(fleet), right(fleet)
    try:
        return bool(compared(one, other))
    except TypeError:
        return False
