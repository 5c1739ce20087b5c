"""Where an expression becomes true: in one pass, and narrowed down."""

import pytest

from projections import (
    FoldState,
    Narrowing,
    OnePass,
    find_first,
    fold_all,
    parse_expression,
    replay,
)
from tests.support.fleet_builder import (
    claimed,
    deregistered,
    draining,
    expired,
    given,
    poison,
    ready,
    registered,
    starting,
)

STORY = given(
    starting("w1"),
    claimed("w1", 20000, 4),
    ready("w1"),
    registered("w2"),
    registered("w3"),
    poison("log.worker.prod.w1", b"{}"),
    draining("w2"),
    expired("w1"),
    deregistered("w2"),
    deregistered("w3"),
    registered("w4", model="qwen"),
)


def narrowed(story, text, start=None):
    """The search over the whole story, and how it went."""
    start = start or FoldState()
    search = Narrowing(parse_expression(text), start, len(story))
    while search.stretch is not None:
        after, until = search.stretch
        part = [record for record in story if after < record.revision <= until]
        for place in range(0, len(part), 3):
            search.feed(part[place : place + 3])
        search.close()
    return search


@pytest.mark.parametrize(
    ("text", "revision"),
    [
        ('worker("prod/w1").status == "starting"', 1),
        ('worker("prod/w1").routable', 6),
        ('model("llama").serving == False', 13),
        ('count(routable, model="llama") < 3', 10),
        ('count(routable, model="llama") >= 3', 8),
        ('known("qwen")', 14),
        ("revision >= 9", 9),
        ("revision >= 1", 1),
        ("True", 1),
        ('not known("never")', 1),
    ],
)
def test_the_first_record_with_which_it_becomes_true(text, revision):
    found = find_first(STORY, parse_expression(text))
    assert found.record.revision == revision
    assert found.record is STORY[revision - 1]
    assert found.state == fold_all(FoldState(), STORY[:revision])


@pytest.mark.parametrize(
    "text",
    ['known("never")', "False", 'not known("llama")', "revision > 99", "revision < 1"],
)
def test_what_never_holds_is_never_found(text):
    assert find_first(STORY, parse_expression(text)) is None
    assert narrowed(STORY, text).found is None


def test_the_search_may_begin_anywhere():
    serving = parse_expression('model("llama").serving')
    start = fold_all(FoldState(), STORY[:8])
    assert find_first(STORY[8:], serving, start).record.revision == 9
    gone = parse_expression('model("llama").serving == False')
    assert find_first(STORY[8:], gone, start).record.revision == 13
    assert find_first([], serving) is None


def test_it_is_asked_only_when_the_answer_may_be_another():
    search = OnePass(parse_expression('worker("prod/w9").routable'))
    assert search.feed(STORY) is None
    assert search.evaluations == 1
    search = OnePass(parse_expression('model("qwen").serving'))
    assert search.feed(STORY).record.revision == 14
    assert search.evaluations == 2


LONG = given(*[registered(f"w{i}") for i in range(700)])


@pytest.mark.parametrize("least", [1, 2, 17, 350, 699, 700])
def test_what_stays_true_is_found_by_few_questions(least):
    search = narrowed(LONG, f"count(workers) >= {least}")
    assert search.found.record.revision == least
    assert search.found.state == fold_all(FoldState(), LONG[:least])
    assert search.evaluations <= 2 * 10


@pytest.mark.parametrize("story", [STORY[:1], STORY[:2], STORY[:5], STORY], ids=len)
def test_narrowing_finds_what_one_pass_finds(story):
    for revision in range(1, len(story) + 1):
        text = f"revision >= {revision}"
        assert narrowed(story, text).found == find_first(story, parse_expression(text))


def test_holes_in_the_log_are_passed_over():
    story = [r for r in LONG if r.revision % 7 == 3 or r.revision == len(LONG)]
    for revision in (3, 100, 690, 700):
        text = f"revision >= {revision}"
        search = Narrowing(parse_expression(text), FoldState(), len(LONG))
        while search.stretch is not None:
            after, until = search.stretch
            search.feed(r for r in story if after < r.revision <= until)
            search.close()
        assert search.found == find_first(story, parse_expression(text))


def test_what_holds_from_the_beginning_holds_at_the_first_record():
    assert narrowed(LONG, "True").found.record.revision == 1
    assert narrowed(STORY, 'not known("never")').found.record.revision == 1


def test_what_holds_of_an_empty_fleet_too_is_searched_after_it_did_not():
    search = narrowed(STORY, 'model("llama").serving == False')
    assert search.found.record.revision == 13
    assert replay(STORY, until=12).models["llama"].serving is not False


def test_an_empty_stretch_has_no_answer():
    assert narrowed([], "True").found is None
    assert Narrowing(parse_expression("True"), FoldState(), 0).stretch is None
    search = Narrowing(parse_expression("True"), FoldState(), 5)
    search.close()
    assert (search.found, search.stretch) == (None, None)
