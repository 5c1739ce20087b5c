"""Expressions: what each says of a fleet, and where a wrong one is wrong."""

import pytest

from events import Capacity, Role, Status
from projections import (
    EMPTY,
    ExpressionError,
    Fleet,
    FoldState,
    fold_all,
    parse_expression,
)
from tests.support.fleet_builder import (
    C2,
    deregistered,
    draining,
    fleet_after,
    forgotten,
    given,
    held,
    incarnation,
    loaded,
    ready,
    registered,
    starting,
    weighted,
)

NEEDY = {"role": Role.DECODE, "needs": [["prefill"], ["encode", "prefill"]]}
FLEET = fleet_after(
    registered(
        "w1",
        adapters=("sql",),
        labels={"zone": "a"},
        capacity=Capacity(max_num_seqs=64),
        capabilities=("chat",),
    ),
    starting("w2"),
    registered("w3", card=C2),
    registered("w4"),
    held("w4"),
    registered("d1", model="qwen", **NEEDY),
    registered("v1", namespace="prod-v2"),
    weighted(0, namespace="prod-v2"),
    registered("gone", model="old"),
    deregistered("gone"),
)
TRUE = [
    'model("llama").serving',
    'model("llama").serving == True',
    'model("sql").serving',
    'model("qwen").serving == False',
    'model("never").serving == False',
    'not model("old").serving',
    'model("llama").name == "llama"',
    'model("old").name is None',
    'known("old") and known("sql") and not known("never")',
    'worker("prod/w1").routable',
    'not worker("prod/w2").routable',
    'worker("prod/w1").namespace == "prod" and worker("prod/w1").worker_id == "w1"',
    f'worker("prod/w1").incarnation == "{incarnation("w1")}"',
    'worker("prod/w1").model == "llama"',
    'worker("prod/w1").role == "aggregated"',
    'worker("prod/w1").checksum != worker("prod/w3").checksum',
    'worker("prod/w2").status == "starting"',
    'worker("prod/w2").status in ("starting", "draining")',
    'worker("prod/w2").status not in ["ready"]',
    '"checksum_mismatch" in worker("prod/w3").blockers',
    '"held" not in worker("prod/w3").blockers',
    '"prefill" in worker("prod/d1").needs and "decode" not in worker("prod/d1").needs',
    'worker("prod/w1").address == "http://w1.example:8000"',
    '"chat" in worker("prod/w1").capabilities',
    '"sql" in worker("prod/w1").adapters',
    '"zone" in worker("prod/w1").labels',
    'worker("prod/w1").labels["zone"] == "a"',
    'worker("prod/w1").labels["rack"] == None',
    'worker("prod/w1").capacity["max_num_seqs"] >= 64',
    'not worker("prod/w1").capacity["total_kv_blocks"] > 0',
    'worker("prod/w1").registered_at < worker("prod/w2").registered_at',
    'worker("prod/nobody").status == None and worker("prod/nobody").address is None',
    'worker("prod/nobody").routable == False',
    'not "held" in worker("prod/nobody").blockers',
    'worker("prod/nobody").labels["zone"] is None',
    'worker("prod/nobody").status != "ready"',
    "revision == 10",
    "9 < revision <= 10 and -1 < revision and 1.5 < revision",
    "count(workers) == 6",
    "count(routable) == 1",
    'count(workers, model="llama") == 5',
    'count(workers, model="sql") == 1 and count(routable, model="sql") == 1',
    'count(held, model="sql") == 0',
    'count(workers, model="never") == 0',
    'count(routable, model="llama", namespace="prod", role="aggregated") == 1',
    'count(routable, model="llama", namespace="prod-v2") < 1',
    'count(weight_zero, namespace="prod-v2") == 1',
    "count(starting) == 1 and count(ready) == 5 and count(held) == 1",
    'count(checksum_mismatch, role="aggregated") == 1',
    'count(needs_unmet, role="decode") == 1',
    "False or (True and not False)",
    '"a" == "a" and "a" < "b"',
    "(True\n or False)",
]


@pytest.mark.parametrize("text", TRUE)
def test_it_is_so(text):
    expression = parse_expression(text)
    assert expression.holds(FLEET)
    assert not parse_expression(f"not ({text})").holds(FLEET)


def test_an_expression_quotes_itself():
    assert repr(parse_expression(" True ")) == "Expression('True')"


WRONG = {
    "": (0, 1, "it is empty"),
    "x" * 4001: (4000, 1, "longer than 4000"),
    "(": (0, 1, "never closed"),
    "a\0b": (0, None, ""),
    'model("llama").serving = False': (0, None, ""),
    "count(routable": (5, 1, "never closed"),
    "count(routable) <": (17, 1, "invalid syntax"),
    "true": (0, 4, "write True"),
    "null == None": (0, 4, "write None"),
    "modle": (0, 5, "did you mean model?"),
    "xyz": (0, 3, "there are model, worker"),
    "model": (0, 5, 'ask model for something, as in: model("llama").serving'),
    'modle("x").serving': (0, 5, "did you mean model?"),
    'wrker("x/y")': (0, 5, "did you mean worker?"),
    'worker("prod/w1")': (0, 17, "ask for something about the worker"),
    'model("llama")': (0, 14, "ask for something about the model"),
    'known("a").x': (0, 12, "only a model and a worker have fields"),
    "(1)(2)": (1, 1, "only model, worker, known, count can be asked"),
    'True and (1)("x").y': (9, 10, "only a model and a worker have fields"),
    'model("llama").srving': (15, 6, "a model has no 'srving', but: name, serving"),
    '"é" == worker("prod/é").x': (24, 1, "a worker has no 'x'"),
    'worker("prod/w1").__class__': (18, 9, "a worker has no '__class__'"),
    'worker("w1").routable': (7, 4, "namespace/worker_id"),
    'worker("/w1").routable': (7, 5, "namespace '' is not valid"),
    'worker("prod/").routable': (7, 7, "worker_id '' is not valid"),
    "worker(1).routable": (7, 1, "a worker is a text, in quotes"),
    'worker("a/b", "c/d").routable': (0, 20, "worker takes one name"),
    'model(name="a").serving': (0, 15, "model takes one name"),
    'model("*").serving': (6, 3, "'*' stands for all models"),
    'known(f"a")': (6, 4, "a name is a text, in quotes"),
    "count(routable)": (0, 15, "a yes or no is needed: compare it"),
    "not revision": (4, 8, "a yes or no is needed"),
    'True and "a"': (9, 3, "this is a text"),
    "count(routabel) < 1": (6, 8, "what can be counted: workers, routable, starting"),
    'count("routable") < 1': (0, 17, "say what to count: count(routable"),
    "count(held, color=1) < 1": (18, 1, "by model=, namespace= and role="),
    "count(held, **{}) < 1": (14, 2, "by model=, namespace= and role="),
    'count(held, role="cook") < 1': (17, 6, "it is never 'cook', but one of: aggr"),
    'count(held, namespace="a.b") < 1': (22, 5, "namespace 'a.b' is not valid"),
    'worker("a/b").status == "redy"': (24, 6, "never 'redy', but one of: starting"),
    'worker("a/b").status in ("ready", "x")': (24, 14, "it is never 'x'"),
    '"hold" in worker("a/b").blockers': (0, 6, "it is never 'hold'"),
    '1 in worker("a/b").blockers': (0, 1, "whether a text is in a list"),
    '"a" in "abc"': (0, 3, "whether a text is in a list"),
    'worker("a/b").routable == "yes"': (26, 5, "a truth is never a text"),
    'count(held) < "3"': (14, 3, "a number and a text have no order"),
    "None < 3": (7, 1, "a nothing and a number have no order"),
    'worker("a/b").address["x"] == None': (0, 21, "only labels and capacity"),
    'worker("a/b").labels[1] == None': (21, 1, "named by a text, in quotes"),
    '(1, "a") == (2, "b")': (1, 1, "a list is of texts"),
    "1j == 1": (0, 2, "a constant is a text, a number"),
    "-True": (0, 5, "only and, or, not"),
    "1 + 1 == 2": (0, 5, "only and, or, not"),
    "lambda: 1": (0, 9, "only and, or, not"),
    '__import__("os").system("x")': (0, 23, "only model, worker, known, count"),
    "[x for x in ()]": (0, 15, "only and, or, not"),
    "(yes := True)": (1, 11, "only and, or, not"),
    "not " * 60 + "True": (160, 84, "nested deeper than 40 levels"),
}


@pytest.mark.parametrize("text", WRONG, ids=lambda text: text[:30])
def test_a_wrong_expression_is_refused_with_its_place(text):
    column, width, reason = WRONG[text]
    with pytest.raises(ExpressionError) as caught:
        parse_expression(text)
    error = caught.value
    assert reason in error.reason
    if width is not None:
        assert (error.column, error.width) == (column, width)
    assert f"at column {error.column + 1}" in str(error)
    line, carets = error.pointer
    assert line == error.text
    assert carets.strip() == "^" * error.width


@pytest.mark.parametrize("text", ["(" * 300, "-" * 3000 + "1", "9" * 3999])
def test_whatever_the_parser_cannot_take_is_refused(text):
    with pytest.raises(ExpressionError):
        parse_expression(text)


def test_a_strange_escape_is_no_warning():
    assert not parse_expression(r'known("\d")').holds(FLEET)


def state_of(story):
    return fold_all(FoldState(), story).fleet_state


STORY = given(
    registered("w1", adapters=("sql",)),
    registered("q1", model="qwen"),
)
STEPS = {
    "w1 changes": draining("w1"),
    "q1 changes": draining("q1"),
    "a worker comes": registered("q2", model="qwen"),
    "a setting": held("nobody"),
    "a new name": loaded("q1", "lora"),
    "nothing": ready("w1"),
    "not even a no": forgotten("llama"),
}
LOOKS = {
    'model("llama").serving': {"w1 changes", "a setting"},
    'model("qwen").serving': {
        "q1 changes",
        "a worker comes",
        "a setting",
        "a new name",
    },
    'model("sql").serving': {
        "w1 changes",
        "q1 changes",
        "a worker comes",
        "a setting",
        "a new name",
    },
    'worker("prod/w1").routable': {"w1 changes", "a setting"},
    'worker("prod/q2").routable': {"a worker comes", "a setting"},
    'worker("prod/q9").routable': {"a setting"},
    "count(routable) < 1": {
        "w1 changes",
        "q1 changes",
        "a worker comes",
        "a setting",
        "a new name",
    },
    'count(routable, model="llama") < 1': {"w1 changes", "a setting"},
    'known("x")': {"a new name", "a setting"},
    "revision > 1": set(STEPS),
    "True": {"a setting"},
}


@pytest.mark.parametrize("text", LOOKS)
def test_it_is_asked_again_when_what_it_looks_at_changed(text):
    expression = parse_expression(text)
    before = fold_all(FoldState(), STORY)
    differing = {
        name
        for name, one in STEPS.items()
        if expression.may_differ(
            before.fleet_state,
            fold_all(before, STORY.then(one)[len(STORY) :]).fleet_state,
        )
    }
    assert differing == LOOKS[text]


def test_who_is_counted_again_is_counted_right():
    expression = parse_expression('count(routable, model="llama") == 1')
    assert not expression.holds(Fleet(EMPTY))
    steps = [registered("w1"), registered("w2"), draining("w2"), held("w1")]
    answers = [
        expression.holds(fleet_after(*steps[:length])) for length in (1, 2, 3, 4)
    ]
    assert answers == [True, False, True, False]
    fleet = fleet_after(registered("w1"))
    assert expression.holds(fleet)
    assert expression.holds(fleet)


def test_who_is_held_is_counted_anew():
    expression = parse_expression("count(routable) == 1")
    story = given(registered("w1"), held("w1"))
    before = fold_all(FoldState(), story[:1])
    after = fold_all(before, story[1:])
    answers = [
        expression.holds(Fleet(state.fleet_state)) for state in (before, after, before)
    ]
    assert answers == [True, False, True]


def test_statuses_are_those_that_workers_can_have():
    for status in Status:
        parse_expression(f'worker("a/b").status == "{status.value}"')
