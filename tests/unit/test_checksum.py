"""The checksum covers what changes answers, field by field, and nothing else."""

from pathlib import Path

import msgspec
import pytest

from events import ModelCard, Role, serving_checksum
from events.worker import KNOWN_MAX
from tests.support.fleet_builder import C1, given, registered

CHANGES = {
    "kv_block_size": 32,
    "context_length": 4096,
    "tokenizer_digest": "t",
    "chat_template_digest": "c",
    "quantization": "fp8",
    "tool_call_parser": "hermes",
    "reasoning_parser": "deepseek",
    "max_loras": 4,
    "max_lora_rank": 64,
    "extra": {"rope": "yarn"},
}
README = Path(__file__).parents[2] / "README.md"
PREFILL, ENCODE = Role.PREFILL, Role.ENCODE


def test_every_field_of_the_card_is_accounted_for():
    assert set(ModelCard.__struct_fields__) == {*CHANGES, "source"}


def test_the_readme_lists_every_field_that_counts():
    text = README.read_text(encoding="utf-8")
    table = text.split("| Field of `ModelCard` |")[1].split("\n\n")[0]
    listed = {name for name in ModelCard.__struct_fields__ if f"`{name}`" in table}
    assert listed == set(CHANGES)


@pytest.mark.parametrize(("field", "value"), CHANGES.items())
def test_a_changed_field_changes_both_checksums(field, value):
    changed = msgspec.structs.replace(C1, **{field: value})
    assert changed.checksum != C1.checksum
    assert serving_checksum(changed, ()) != serving_checksum(C1, ())


@pytest.mark.parametrize("field", ["kv_block_size", "context_length", "max_loras"])
def test_zero_is_not_unset(field):
    zero = ModelCard(**{field: 0})
    assert zero.checksum != ModelCard().checksum


def test_where_the_model_lies_does_not_matter():
    elsewhere = msgspec.structs.replace(C1, source="s3://bucket/llama")
    assert elsewhere.checksum == C1.checksum
    assert serving_checksum(elsewhere, ()) == serving_checksum(C1, ())


def test_the_order_of_extra_does_not_matter():
    one = ModelCard(extra={"a": "1", "b": "2"})
    two = ModelCard(extra={"b": "2", "a": "1"})
    assert one.checksum == two.checksum


def test_needs_are_covered_but_not_their_order_or_repetition():
    checksums = {
        serving_checksum(C1, needs)
        for needs in [(), ((),), ((PREFILL,),), ((ENCODE,),), ((PREFILL, ENCODE),)]
    }
    assert len(checksums) == 5
    either = ((PREFILL, ENCODE), (PREFILL,))
    again = ((PREFILL,), (ENCODE, PREFILL, ENCODE), (PREFILL,))
    assert serving_checksum(C1, either) == serving_checksum(C1, again)


def test_the_registrations_checksum_is_the_servings():
    needs = ((PREFILL,),)
    (record,) = given(registered("w1", needs=needs))
    assert record.event.checksum == serving_checksum(C1, needs)


def test_checksums_never_change():
    assert ModelCard().checksum == "2afb9b83f9314e5d029766197f539792"
    assert C1.checksum == "d938dd2322b988101da0b72b368517b0"
    assert serving_checksum(C1, ((PREFILL,),)) == "5303028ad108a590ae928eb6615ea93a"


def test_what_was_worked_out_before_is_as_if_worked_out_anew():
    cards = [ModelCard(context_length=n) for n in range(KNOWN_MAX + 2)]
    first = [serving_checksum(card, ()) for card in cards]
    assert len(set(first)) == len(cards)
    assert [serving_checksum(card, ()) for card in cards] == first
