"""A chain of upcasters is right when it is made, or is not made."""

import pytest

from events import Upcaster, UpcasterChain

CURRENT = {"a.v3", "b.v1"}


def step(old, new, read_as=dict):
    return Upcaster(old=old, new=new, read_as=read_as)


def test_a_document_passes_every_step_and_takes_the_last_tag():
    chain = UpcasterChain(
        [
            step("a.v1", "a.v2", lambda d: {**d, "one": True}),
            step("a.v2", "a.v3", lambda d: {**d, "two": d["one"]}),
        ],
        CURRENT,
    )
    assert chain.upcast("a.v1", {"type": "a.v1", "x": 1}) == {
        "type": "a.v3",
        "x": 1,
        "one": True,
        "two": True,
    }
    assert "a.v1" in chain
    assert "a.v2" in chain
    assert "a.v3" not in chain


def test_a_document_of_a_current_tag_stays_as_it_is():
    document = {"type": "a.v3"}
    assert UpcasterChain([], CURRENT).upcast("a.v3", document) is document


def test_two_old_tags_may_lead_to_one():
    chain = UpcasterChain([step("a.v1", "a.v3"), step("a.v2", "a.v3")], CURRENT)
    assert chain.upcast("a.v2", {})["type"] == "a.v3"


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ([step("a.v1", "a.v1")], "cycle: a.v1 -> a.v1"),
        ([step("a.v1", "a.v2"), step("a.v2", "a.v1")], "cycle: a.v1 -> a.v2 -> a.v1"),
        ([step("a.v1", "a.v2")], "gap: a.v1 -> a.v2 ends in no current tag"),
        (
            [step("a.v1", "a.v3"), step("a.v1", "b.v1")],
            "duplicate: two upcasters read a.v1",
        ),
        ([step("b.v1", "a.v3")], "upcaster from b.v1, which is a current tag"),
    ],
)
def test_a_broken_chain_is_refused_when_it_is_made(steps, message):
    with pytest.raises(ValueError, match=message):
        UpcasterChain(steps, CURRENT)
