"""What differs between two moments, and the record that made it so."""

import msgspec
import pytest

from controlplane.cli.differences import difference_lines
from events import Role, Status
from projections import Fleet, FoldState, apply, compare_fleets, fold_all, replay
from tests.support.fleet_builder import (
    C1,
    C2,
    claimed,
    deregistered,
    draining,
    expired,
    forgotten,
    given,
    held,
    incarnation,
    loaded,
    ready,
    registered,
    resumed,
    starting,
    unloaded,
    updated,
    weighted,
)

DECODE = {"role": Role.DECODE, "needs": [["prefill"]]}
PREFILL = {"role": Role.PREFILL}


def between(story, first, last):
    """The difference from one revision to another, with the records between."""
    one, two = (replay(story, until=revision) for revision in (first, last))
    return compare_fleets(one, two, story)


def test_alike_is_no_difference():
    story = given(registered("w1"))
    found = between(story, 1, 1)
    assert not found
    assert found.document() == {
        "from": 1,
        "to": 1,
        "removed": [],
        "changed": [],
        "added": [],
    }


def test_removed_changed_and_added_with_their_revisions():
    story = given(
        registered("w1"),
        registered("w2"),
        draining("w2"),
        registered("w3"),
        deregistered("w1"),
    )
    found = between(story, 2, 5)
    assert found.document()["changed"] == [
        {
            "worker": "prod/w2",
            "fields": {"status": ["ready", "draining"]},
            "revision": 3,
        }
    ]
    (gone,), (come,) = found.document()["removed"], found.document()["added"]
    assert (gone["worker"], gone["revision"], gone["status"]) == ("prod/w1", 5, "ready")
    assert (come["worker"], come["revision"], come["namespace"]) == (
        "prod/w3",
        4,
        "prod",
    )
    assert msgspec.json.encode(found.document())


def test_backwards_is_the_same_the_other_way_round():
    story = given(
        registered("w1"),
        registered("w2"),
        draining("w2"),
        registered("w3"),
        deregistered("w1"),
    )
    found = between(story, 5, 2)
    assert [(one.name, one.revision) for one in found.removed] == [("prod/w3", 4)]
    assert [(one.name, one.revision) for one in found.added] == [("prod/w1", 5)]
    (changed,) = found.changed
    assert changed.fields == {"status": ("draining", "ready")}
    assert changed.revision == 3
    assert (found.from_revision, found.to_revision) == (5, 2)


def test_the_record_of_another_worker_may_have_done_it():
    story = given(
        registered("d1", **DECODE),
        registered("p1", **PREFILL),
        registered("p2", **PREFILL),
        draining("p1"),
        expired("p2"),
        updated("p1", labels={"zone": "b"}),
    )
    (changed,) = (one for one in between(story, 3, 6).changed if one.name == "prod/d1")
    assert changed.fields == {
        "routable": (True, False),
        "blockers": ((), ("needs_unmet",)),
    }
    assert changed.revision == 5


def test_what_the_status_says_is_not_said_twice():
    story = given(registered("w1"), draining("w1"), held("w1"), ready("w1"))
    fields = {first: between(story, first, 4).changed[0].fields for first in (1, 2, 3)}
    assert fields[1] == {"routable": (True, False), "blockers": ((), ("held",))}
    assert fields[2] == {
        "status": ("draining", "ready"),
        "blockers": (("draining",), ("held",)),
    }
    assert fields[3] == {"status": ("draining", "ready")}


def test_only_what_differs_at_the_ends_has_a_revision():
    story = given(
        registered("w1"),
        updated("w1", address="http://b"),
        held("w1"),
        resumed("w1"),
        updated("w1", labels={"a": "b"}),
        updated("w1", labels={}),
    )
    (changed,) = between(story, 1, 6).changed
    assert changed.fields == {"address": ("http://w1.example:8000", "http://b")}
    assert changed.revision == 2


def test_who_left_and_came_back_was_changed_by_the_return():
    story = given(
        registered("w1"), deregistered("w1"), registered("w1"), draining("w1")
    )
    (changed,) = between(story, 1, 3).changed
    assert set(changed.fields) == {"incarnation", "registered_at"}
    assert changed.fields["incarnation"] == (
        incarnation("w1", 1),
        incarnation("w1", 2),
    )
    assert changed.revision == 3


def test_added_is_the_registration_that_stands():
    story = given(
        registered("w0"),
        registered("w1"),
        deregistered("w1"),
        starting("w1"),
        ready("w1"),
    )
    assert [one.revision for one in between(story, 1, 5).added] == [4]
    assert [one.revision for one in between(story, 5, 1).removed] == [4]


def test_moving_to_another_model_is_a_change():
    story = given(registered("w1"), registered("w1", life=1, model="qwen"))
    (changed,) = between(story, 1, 2).changed
    assert changed.fields == {"model": ("llama", "qwen")}
    assert changed.revision == 2


def test_the_checksum_in_force_settings_and_names_are_told_beside():
    story = given(
        registered("w1", card=C1),
        registered("w2", card=C2),
        registered("x1", model="old"),
        weighted(0.5, reason="canary"),
        deregistered("x1"),
        deregistered("w1"),
        held("nobody"),
        resumed("nobody"),
    )
    found = between(story, 2, 8)
    told = {(one.what, *one.name): one for one in found.others}
    weight = told["setting", "weight", "prod", "llama"]
    assert weight.before is None
    assert weight.after["weight"] == 0.5
    assert weight.revision == 4
    (cohorts,) = (one for key, one in told.items() if key[0] == "worker_set")
    assert (len(cohorts.before), len(cohorts.after), cohorts.revision) == (2, 1, 6)
    known = told["known_model", "old"]
    assert (known.before, known.after, known.revision) == (None, True, 3)
    assert len(told) == 3
    whats = [one["what"] for one in found.document()["others"]]
    assert whats == ["known_model", "worker_set", "setting"]
    (changed,) = found.changed
    assert (changed.name, changed.revision) == ("prod/w2", 6)


def test_names_and_sets_that_come_with_workers_go_without_saying():
    story = given(registered("w1", adapters=("sql",)), registered("q1", model="qwen"))
    assert not between(story, 0, 2).others
    assert not between(story, 2, 0).others


def test_a_forgotten_name_is_told():
    story = given(
        registered("w1", adapters=("sql",)),
        unloaded("w1", "sql"),
        forgotten("sql"),
        loaded("w1", "lora"),
    )
    (one,) = between(story, 2, 4).others
    assert (one.what, one.name, one.before, one.after) == (
        "known_model",
        ("sql",),
        True,
        None,
    )
    assert one.revision == 3


def test_a_name_that_was_forgotten_is_told_though_its_last_worker_left_too():
    story = given(
        registered("w1", adapters=("sql",)), deregistered("w1"), forgotten("llama")
    )
    for first in (1, 2):
        (one,) = between(story, first, 3).others
        assert (one.name, one.after, one.revision) == (("llama",), None, 3)
        (back,) = between(story, 3, first).others
        assert (back.name, back.before, back.after) == (("llama",), None, True)


def test_backwards_a_name_that_was_not_known_yet_was_not_forgotten():
    story = given(registered("w1"), registered("x1", model="old"), deregistered("x1"))
    found = between(story, 3, 1)
    said = [line.plain.strip() for line in difference_lines(found, ("", ""), 80)]
    assert "was not known yet" in said
    again = difference_lines(between(story, 1, 3), ("", ""), 80)
    assert "is known" in [line.plain.strip() for line in again]


def test_a_setting_that_was_lifted_is_told():
    story = given(registered("w1"), held("w1"), resumed("w1"), deregistered("w1"))
    (one,) = between(story, 2, 4).others
    assert one.name == ("hold", "prod", "w1")
    assert (one.before["by"], one.after, one.revision) == ("builder", None, 3)


def test_a_set_that_was_empty_meanwhile_is_looked_at_anew():
    story = given(
        registered("d1", **DECODE),
        deregistered("d1"),
        registered("p1", **PREFILL),
        registered("d1", **DECODE),
        registered("d1", life=2, component="other", **DECODE),
        deregistered("p1"),
        weighted(0, model="qwen"),
        weighted(0),
    )
    found = {
        last: between(story, 1, last).changed[0]
        for last in (4, 5, 6, 8)
        if between(story, 1, last).changed
    }
    assert found[4].fields["blockers"] == (("needs_unmet",), ())
    assert {last: one.revision for last, one in found.items()} == {
        4: 4,
        5: 4,
        6: 4,
        8: 8,
    }


def test_without_records_there_is_no_revision():
    story = given(registered("w1"), claimed("w1", 20000), draining("w1"))
    one, two = replay(story, until=1), replay(story)
    assert compare_fleets(one, two).changed[0].revision is None
    assert compare_fleets(one, two, list(story)[:2]).changed[0].revision is None


def test_fleets_of_two_logs_have_no_record_between_them():
    one = replay(given(registered("w1"), registered("w2")))
    two = replay(given(registered("w1"), draining("w1"), registered("w3")))
    found = compare_fleets(one, two, given(registered("w1"), registered("w2")))
    assert [w.revision for w in (*found.removed, *found.changed, *found.added)] == (
        [None, None, None]
    )


def test_fleets_that_were_read_are_compared_by_what_they_show():
    story = given(registered("w1"), held("w1"), registered("w2"))
    one, two = replay(story, until=1), replay(story)
    read = [Fleet.from_json(fleet.to_json()) for fleet in (one, two)]
    whole, found = compare_fleets(one, two), compare_fleets(*read)
    assert (found.removed, found.changed, found.added) == (
        whole.removed,
        whole.changed,
        whole.added,
    )
    assert whole.others
    assert not found.others
    assert not found.changes


@pytest.mark.parametrize("first", range(6))
def test_the_changes_lead_from_one_to_the_other(first):
    story = given(
        registered("w1"),
        held("w1"),
        registered("w2", card=C2, status=Status.STARTING),
        deregistered("w1"),
        forgotten("nothing"),
    )
    for last in range(6):
        one, two = (
            fold_all(FoldState(), list(story)[:revision]).fleet_state
            for revision in (first, last)
        )
        found = compare_fleets(
            Fleet(one, revision=first), Fleet(two, revision=last), story
        )
        assert apply(one, found.changes) == two
        assert bool(found) == (one.digest != two.digest)
