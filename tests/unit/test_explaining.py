"""Why a worker is not routable, in words, each from what the fold did."""

from datetime import timedelta

import pytest

from events import InvalidIdentityError, Role, Status
from projections import Explainer, explain, replay
from tests.support.fleet_builder import (
    C1,
    C2,
    START,
    deregistered,
    draining,
    expired,
    forgotten,
    given,
    held,
    incarnation,
    loaded,
    poison,
    ready,
    registered,
    resumed,
    starting,
    thresholds,
    unloaded,
    updated,
    weighted,
)

DECODE = {"role": Role.DECODE, "needs": [["prefill"]]}
PREFILL = {"role": Role.PREFILL}
SHORT_1 = replay(given(registered("w", card=C1))).worker("prod", "w").checksum[:8]
SHORT_2 = replay(given(registered("w", card=C2))).worker("prod", "w").checksum[:8]


def rules(*steps, worker="prod/w1"):
    """The chain as revisions and rules."""
    found = explain(given(*steps), worker)
    return {link.revision: link.rule for link in found.chain}


def last(*steps, worker="prod/w1"):
    """The rule applied to the last record."""
    found = rules(*steps, worker=worker)
    return found[max(found)]


def why(*steps, worker="prod/w1"):
    """Each blocker and why."""
    found = explain(given(*steps), worker)
    return {reason.blocker: reason.why for reason in found.reasons}


def test_a_worker_that_is_routable():
    found = explain(given(registered("w1")), "prod/w1")
    assert (found.state, found.since, found.reasons) == ("routable", 1, ())
    assert found.worker == replay(given(registered("w1"))).worker("prod", "w1")
    assert found.name == "prod/w1"
    (link,) = found.chain
    assert link.rule == f"registers, ready; with it checksum {SHORT_1} comes into force"
    assert (link.state, link.blockers, link.anomaly) == ("routable", (), None)


def test_a_worker_that_never_was():
    found = explain(given(registered("w1")), "prod/w2")
    assert (found.state, found.since, found.chain) == ("never_registered", None, ())
    assert found.worker is None
    assert explain([], "prod/w2").recorded_at is None


def test_who_mistyped_a_name_is_offered_others():
    story = given(registered("gpu7"), registered("gpu7", namespace="prod-v2"))
    assert explain(story, "prod/gpu77").warnings == (
        "there is prod/gpu7, prod-v2/gpu7",
    )
    assert explain(story, "x/y").warnings == ()


def test_a_worker_that_left():
    found = explain(
        given(registered("w1"), deregistered("w1", reason="bye")), "prod/w1"
    )
    assert (found.state, found.since, found.worker) == ("gone", 2, None)
    assert found.chain[-1].rule == "leaves by itself: bye"
    assert found.chain[-1].state == "gone"


def test_a_worker_that_died():
    assert last(registered("w1"), expired("w1", silent_for_s=10.25)) == (
        "expired: silent for 10.2 s, seen by projector-a"
    )


@pytest.mark.parametrize("until", [2, START + timedelta(seconds=1.5)])
def test_the_past_is_explained_as_it_was(until):
    story = given(starting("w1"), ready("w1"), draining("w1"))
    found = explain(story, "prod/w1", until)
    assert (found.state, found.since, found.revision) == ("routable", 2, 2)
    assert [link.revision for link in found.chain] == [1, 2]
    assert explain(story, "prod/w1").state == "blocked"


def test_its_status_keeps_it_away():
    steps = [starting("w1"), registered("w2"), draining("w1", reason="rollout")]
    assert why(*steps[:2]) == {"starting": "says that it is starting since revision 1"}
    assert why(*steps) == {
        "draining": "says that it is draining since revision 3: rollout"
    }
    assert last(*steps) == "status starting -> draining: rollout"


def test_a_stale_incarnation():
    steps = [registered("w1"), registered("w1"), deregistered("w1", life=1)]
    assert rules(*steps)[2] == (
        f"a new life in place of {incarnation('w1', 1)}; "
        f"admitted: checksum {SHORT_1} is in force since revision 1"
    )
    assert last(*steps) == f"stale incarnation: current is {incarnation('w1', 2)}"
    link = explain(given(*steps), "prod/w1").chain[-1]
    assert (link.anomaly, link.state) == ("stale", "routable")


def test_what_has_no_effect_says_so():
    assert last(deregistered("w1")) == "no effect: no worker prod/w1"
    assert last(registered("w1"), ready("w1")) == (
        "no effect: the worker is thus already"
    )
    assert last(registered("w1"), resumed("w1")) == (
        "no effect: the worker is not held"
    )
    assert last(registered("w1"), poison("log.worker.prod.w1", b"[]")) == (
        "cannot be read, so it changes nothing: not an object with a type"
    )
    assert last(poison("log.worker.prod.w1", b'{"type":"later.v1"}')) == (
        "cannot be read, so it changes nothing: unknown tag later.v1"
    )


def test_a_mismatching_checksum_names_the_incumbents_record():
    steps = [
        registered("w0", card=C1),
        registered("w2", card=C1),
        registered("w1", card=C2),
    ]
    against = f"checksum {SHORT_2} against incumbent {SHORT_1} since revision 1"
    assert why(*steps) == {"checksum_mismatch": f"{against} (prod/w0)"}
    assert rules(*steps) == {
        1: f"since then checksum {SHORT_1} is in force",
        3: f"registers, ready; quarantined: {against}",
    }
    found = explain(given(*steps), "prod/w1")
    assert found.in_force == replay(given(*steps)).worker("prod", "w0").checksum
    assert found.chain[0].state is None
    assert [reason.cause.revision for reason in found.reasons] == [1]


def test_the_incumbents_leaving_lets_it_in():
    steps = [registered("w0", card=C1), registered("w1", card=C2), deregistered("w0")]
    assert last(*steps) == (
        f"the last with checksum {SHORT_1} left: {SHORT_2} is in force"
    )
    found = explain(given(*steps), "prod/w1")
    assert (found.state, found.since) == ("routable", 3)


def test_needs_name_the_departure():
    steps = [
        registered("p1", **PREFILL),
        registered("w1", **DECODE),
        registered("p2", **PREFILL),
        draining("p1"),
        expired("p2"),
    ]
    assert why(*steps) == {
        "needs_unmet": "needs prefill: last live one left at revision 5 (prod/p2)"
    }
    assert rules(*steps).keys() == {2, 5}
    assert last(*steps) == "needs prefill: the last live one left"
    assert last(*steps, registered("p3", **PREFILL)) == "prefill is live"


def test_needs_that_nobody_ever_met():
    assert why(registered("w1", **DECODE)) == {
        "needs_unmet": "needs prefill: there never was a live one"
    }
    both = {**DECODE, "needs": [["prefill", "encode"]]}
    assert last(registered("w1", **both), registered("p1", **PREFILL)) == (
        "prefill is live; still lacking others"
    )


def test_a_departure_before_its_time_is_in_the_chain():
    steps = [
        registered("p1", **PREFILL),
        held("p1", reason="hot"),
        registered("w1", **DECODE),
    ]
    assert rules(*steps)[2] == "needs prefill: the last live one left"
    assert why(*steps) == {
        "needs_unmet": "needs prefill: last live one left at revision 2 (builder)"
    }


def test_another_models_or_namespaces_departure_is_not_its():
    assert rules(
        registered("w1", **DECODE),
        registered("p1", model="qwen", **PREFILL),
        deregistered("p1"),
        registered("p1", namespace="other", **PREFILL),
        expired("p1", namespace="other"),
    ).keys() == {1}


def test_a_hold_is_named_with_its_author():
    steps = [held("w1", reason="noisy"), registered("w1")]
    assert why(*steps) == {"held": "held by builder since revision 1: noisy"}
    assert rules(*steps)[1] == "held by builder: noisy"
    assert last(*steps, resumed("w1", reason="quiet")) == "let go on by builder: quiet"
    asked = "held and asked to drain by builder"
    assert last(*steps, held("w1", drain=True)) == asked
    again = held("w1", drain=True, reason="noisy")
    assert last(*steps, again) == f"{asked}: noisy", "the same hold, but a new order"
    assert last(*steps, held("w1", reason="noisy")) == (
        "no effect: the setting stands already"
    )


def test_a_weight_of_zero_is_named_with_its_author():
    steps = [
        registered("w1"),
        weighted(0.5, model="*"),
        weighted(0, reason="cordon"),
    ]
    assert why(*steps) == {
        "weight_zero": "weight 0 set at revision 3 by builder: cordon"
    }
    assert rules(*steps)[2] == "weight 0.5 of prod/* set by builder"
    assert last(*steps) == "weight 0 of prod/llama set by builder: cordon"
    only_all = [weighted(0, model="*"), registered("w1")]
    assert why(*only_all) == {"weight_zero": "weight 0 set at revision 1 by builder"}
    assert rules(*only_all)[1] == "weight 0 of prod/* set by builder"


def test_settings_of_its_model_are_in_the_chain():
    assert rules(
        thresholds(busy_kv_usage=0.9, reason="busy"),
        thresholds("qwen", busy_kv_usage=0.9),
        registered("w1"),
        thresholds("qwen", busy_kv_usage=0.8),
        thresholds(busy_kv_usage=0.8),
        forgotten(),
        deregistered("w1"),
        forgotten(),
        weighted(1, namespace="other"),
    ) == {
        1: "busy limits of llama set by builder: busy",
        3: f"registers, ready; with it checksum {SHORT_1} comes into force",
        5: "busy limits of llama set by builder",
        6: "no effect: model 'llama' has workers, so it stays known",
        7: "leaves by itself",
        8: "the name llama is forgotten",
    }


def test_a_worker_that_moves_is_explained_where_it_is():
    steps = [
        registered("w0", model="qwen", card=C2),
        weighted(0, model="qwen"),
        registered("w1", status=Status.STARTING),
        registered("w1", life=1, model="qwen", role=Role.DECODE, address="http://b"),
    ]
    assert last(*steps) == (
        "status starting -> ready; address http://w1.example:8000 -> http://b; "
        "model llama -> qwen; role aggregated -> decode"
    )
    assert why(*steps) == {"weight_zero": "weight 0 set at revision 2 by builder"}
    assert 2 in rules(*steps)


def test_what_it_says_of_itself():
    story = [
        registered("w1", component="a", endpoint="x", adapters=("one",)),
        loaded("w1", "two"),
        unloaded("w1", "one"),
        updated("w1", labels={"a": "b"}),
        registered(
            "w1", life=1, component="b", endpoint="y", card=C2, lease_ttl_s=20.0
        ),
    ]
    found = rules(*story)
    assert found[2] == "loads adapter two"
    assert found[3] == "unloads adapter one"
    assert found[4] == "labels changed"
    assert found[5] == (
        "component a -> b; endpoint x -> y; unloads adapter two; labels changed; "
        f"lease_ttl_s changed; with it checksum {SHORT_2} comes into force"
    )


@pytest.mark.parametrize(
    "name", ["w1", "", "/w1", "prod/", "a.b/w1", "prod/" + "x" * 129]
)
def test_a_name_that_no_worker_can_have_is_refused(name):
    with pytest.raises(InvalidIdentityError):
        explain([], name)


def test_an_explainer_may_be_asked_on_the_way():
    story = given(registered("w1"), draining("w1"), ready("w1"))
    explainer = Explainer("prod/w1")
    states = []
    for record in story:
        assert explainer.feed([record])
        states.append(explainer.result().state)
    assert states == ["routable", "blocked", "routable"]
    assert not explainer.feed(given(*[registered("w1")] * 9)[8:], until=5)
