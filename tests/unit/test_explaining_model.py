"""Why a model is served or is a 503: by namespaces, and since which record."""

import re

import msgspec
import pytest

from controlplane.cli.explanations import model_lines
from events import InvalidIdentityError, Role
from projections import explain_model
from tests.support.fleet_builder import (
    C2,
    claimed,
    deregistered,
    draining,
    expired,
    forgotten,
    given,
    held,
    loaded,
    ready,
    registered,
    resumed,
    starting,
    weighted,
)

DECODE = {"role": Role.DECODE, "needs": [["prefill"]]}
PREFILL = {"role": Role.PREFILL}
NEXT = {"namespace": "prod-v2"}


def explained(*steps, model="llama", until=None):
    return explain_model(given(*steps), model, until)


def test_a_name_that_nobody_served():
    found = explained(registered("w1"), model="never")
    assert (found.state, found.began, found.ended, found.namespaces) == (
        "not_found",
        None,
        None,
        (),
    )


def test_who_mistyped_a_name_is_offered_others():
    assert explained(registered("w1"), model="lama").alike == ("llama",)
    assert explained(registered("w1"), model="never").alike == ()
    assert explained(registered("w1")).alike == ()


def test_a_model_that_is_served():
    found = explained(
        starting("w1"),
        ready("w1", reason="warm"),
        claimed("w1", 20000),
        registered("w2"),
    )
    assert found.state == "serving"
    assert (found.began.record.revision, found.began.before) == (2, 1)
    assert found.began.rule == "status starting -> ready: warm"
    assert found.ended is None
    (place,) = found.namespaces
    assert (place.serving, place.workers, place.routable, place.blockers) == (
        True,
        2,
        2,
        {},
    )


def test_the_record_that_ended_it():
    found = explained(
        registered("w1"), registered("w2", card=C2), held("w2"), expired("w1")
    )
    assert found.state == "unavailable"
    assert found.ended.record.revision == 4
    assert found.ended.before == 3
    assert found.ended.rule == "expired: silent for 12.0 s, seen by projector-a"
    (place,) = found.namespaces
    assert place.blockers == {"held": 1}
    assert place.whys == ("held by builder since revision 3",)
    assert place.ended == found.ended


def test_blockers_are_counted_by_namespace_with_what_is_behind_them():
    found = explained(
        registered("d1", **DECODE),
        registered("p1", **PREFILL),
        registered("d2", **DECODE),
        registered("d3", **NEXT),
        registered("d4", card=C2, **NEXT),
        weighted(0, **NEXT, reason="not yet"),
        starting("p2", **PREFILL),
        draining("p1"),
    )
    assert found.ended.record.revision == 8
    old, new = found.namespaces
    assert (old.namespace, old.workers, old.routable) == ("prod", 4, 0)
    assert old.blockers == {"needs_unmet": 2, "starting": 1, "draining": 1}
    assert old.whys == ("needs prefill: last live one left at revision 8 (prod/p1)",)
    assert new.blockers == {"weight_zero": 2, "checksum_mismatch": 1}
    assert "weight 0 set at revision 6 by builder: not yet" in new.whys
    assert any("since revision 4 (prod-v2/d3)" in why for why in new.whys)
    assert new.ended.record.revision == 6


def test_needs_that_were_never_met_are_told():
    (place,) = explained(registered("d1", **DECODE)).namespaces
    assert place.whys == ("needs prefill: there never was a live one",)
    assert (place.began, place.ended) == (None, None)


def test_a_namespace_that_left_is_still_told_of():
    found = explained(registered("w1"), registered("w2", **NEXT), deregistered("w1"))
    old, new = found.namespaces
    assert (old.namespace, old.workers, old.serving) == ("prod", 0, False)
    assert old.ended.record.revision == 3
    assert (new.serving, found.state, found.ended) == (True, "serving", None)


def test_operators_end_and_begin_it_too():
    found = explained(registered("w1"), held("w1", reason="hot"), resumed("w1"))
    assert found.ended.rule == "held by builder: hot"
    assert found.began.rule == "let go on by builder"


def test_an_adapter_is_a_model():
    steps = [
        registered("w1"),
        loaded("w1", "sql"),
        registered("w2"),
        registered("p1", adapters=("sql",), **PREFILL),
        draining("w1"),
    ]
    found = explained(*steps, model="sql")
    assert found.state == "unavailable"
    assert found.began.rule == "loads adapter sql"
    assert found.ended.record.revision == 5
    (place,) = found.namespaces
    assert (place.workers, place.routable, place.blockers) == (2, 0, {"draining": 1})
    assert explained(*steps, model="sql", until=4).state == "serving"


def test_a_forgotten_name_is_not_found():
    found = explained(registered("w1"), deregistered("w1"), forgotten())
    assert found.state == "not_found"
    assert found.ended.record.revision == 2


def test_who_forgot_a_name_is_told_and_why():
    steps = [registered("w1"), deregistered("w1"), forgotten(reason="retired")]
    found = explained(*steps)
    assert found.document()["forgotten"] == {
        "revision": 3,
        "recorded_at": found.forgotten.recorded_at,
        "by": "builder",
        "reason": "retired",
    }
    text = "\n".join(line.plain for line in model_lines(found, 200))
    assert re.search(r"forgotten with revision 3 \(.*\) by builder: retired", text)
    assert explained(*steps, until=2).forgotten is None
    again = explained(*steps, registered("w1"))
    assert (again.state, again.forgotten) == ("serving", None)


def test_a_name_that_no_model_can_have_is_refused():
    with pytest.raises(InvalidIdentityError):
        explain_model([], "*")


def test_a_document_has_every_key():
    story = given(registered("w1"), held("w1"))
    document = msgspec.json.decode(
        msgspec.json.encode(explain_model(story, "llama").document())
    )
    assert (document["model"], document["state"]) == ("llama", "unavailable")
    assert document["ended"] == {
        "revision": 2,
        "recorded_at": "2026-01-01T00:00:01Z",
        "subject": "log.setting.hold.prod.w1",
        "type": "worker_held.v1",
        "by": "builder",
        "rule": "held by builder",
        "last_before": 1,
    }
    (place,) = document["namespaces"]
    assert place["blockers"] == {"held": 1}
    assert place["ended"] == document["ended"]
    empty = explain_model([], "llama").document()
    assert empty.keys() == document.keys()
    assert (empty["began"], empty["ended"], empty["namespaces"]) == (None, None, [])
    never = explain_model(given(starting("w1")), "llama").document()
    assert never["namespaces"][0]["began"] is None
