"""The laws of looking back: differences, explanations and searches, over any log."""

from hypothesis import given
from hypothesis import strategies as st

from projections import (
    Fleet,
    FoldState,
    ModelNotFoundError,
    ModelUnavailableError,
    Narrowing,
    PlaneState,
    Wanted,
    apply,
    blockers,
    candidates,
    compare_fleets,
    explain,
    explain_model,
    find_first,
    fold_all,
    meanings,
    parse_expression,
    replay,
    step,
    worker_document,
)
from projections.rippling import blockers_on, ground_of, ripples
from tests.property.logs import logs
from tests.support.fleet_builder import draining, poison, registered
from tests.support.fleet_builder import given as story_of

KEYS = [("prod", "w1"), ("prod-v2", "w1"), ("prod", "w.2"), ("prod", "wö")]
MODELS = ["llama", "lora", "qwen/2", "never"]
QUESTIONS = [
    'model("llama").serving == False',
    'model("lora").serving',
    'worker("prod/w1").routable',
    '"needs_unmet" in worker("prod/w.2").blockers',
    'worker("prod/w1").labels["a"] == None and worker("prod/w1").status != None',
    "count(routable) < 2",
    'count(routable, model="llama") >= 2',
    'count(checksum_mismatch, namespace="prod") > 0 or count(held, model="lora") > 0',
    'known("sql") and not known("lora")',
    "revision >= 3",
]


def fleets_of(log) -> list[Fleet]:
    """The fleet at every revision, from 0."""
    state, fleets = FoldState(), [PlaneState().fleet]
    for record in log:
        state = step(state, record).state
        fleets.append(PlaneState(state).fleet)
    return fleets


def last_move(values, first, last):
    """The last place in (first, last] at which the values moved."""
    return next(
        (
            place
            for place in range(last, first, -1)
            if values[place - 1] != values[place]
        ),
        None,
    )


@given(logs(), st.data())
def test_a_difference_leads_from_one_to_the_other_and_names_its_records(log, data):
    fleets = fleets_of(log)
    places = st.integers(0, len(log))
    first, last = data.draw(places), data.draw(places)
    one, two = fleets[first], fleets[last]
    found = compare_fleets(one, two, log)
    assert apply(one.state, found.changes) == two.state
    assert bool(found) == (one.digest != two.digest)
    early, late = sorted((first, last))
    for changed in found.changed:
        was, now = worker_document(changed.before), worker_document(changed.after)
        patched = {**was, **{name: pair[1] for name, pair in changed.fields.items()}}
        left = {name for name in now if patched[name] != now[name]}
        assert left <= {"routable", "blockers"}
        assert not left or "status" in changed.fields
        seen = [
            None if w is None else [getattr(w, name) for name in changed.fields]
            for w in (fleet.worker(*changed.key) for fleet in fleets)
        ]
        assert changed.revision == last_move(seen, early, late)
    for moved in (*found.added, *found.removed):
        there = [fleet.worker(*moved.key) is not None for fleet in fleets]
        assert moved.revision == last_move(there, early, late)
    for other in found.others:
        assert other.revision is not None
        assert early < other.revision <= late


@given(logs(), st.sampled_from(KEYS))
def test_an_explanation_ends_where_a_replay_does(log, key):
    found = explain(log, "/".join(key))
    fleet = replay(log)
    worker = fleet.worker(*key)
    assert found.worker == worker
    blockers = () if worker is None else worker.blockers
    assert tuple(reason.blocker for reason in found.reasons) == blockers
    assert found.revision == fleet.revision
    assert (found.state == "routable") == (worker is not None and worker.routable)
    assert all(
        reason.why and reason.cause.revision <= found.revision
        for reason in found.reasons
    )
    if worker is not None:
        assert found.in_force == (
            fleet.models[worker.model]
            .worker_sets[fleet.state.workers[key].set_key]
            .checksum
        )


@given(logs(), st.sampled_from(KEYS))
def test_no_record_that_moved_a_worker_is_missing_in_its_chain(log, key):
    looks = [fleet.worker(*key) for fleet in fleets_of(log)]
    found = explain(log, "/".join(key))
    chain = {link.revision: link for link in found.chain}
    assert list(chain) == sorted(chain)
    assert all(link.rule for link in found.chain)
    for record in log:
        was, now = looks[record.revision - 1], looks[record.revision]
        if was != now:
            link = chain[record.revision]
            assert link.blockers == (() if now is None else now.blockers)
            assert link.anomaly is None
            assert "changes nothing" not in link.rule
    since = found.since
    if since is not None:
        shown = [None if look is None else look.routable for look in looks]
        assert since == last_move([*shown], 0, len(log))


@given(logs(), st.data())
def test_the_past_is_explained_as_it_was_then(log, data):
    place = data.draw(st.integers(0, len(log)))
    name = "/".join(data.draw(st.sampled_from(KEYS)))
    model = data.draw(st.sampled_from(MODELS))
    assert explain(log, name, place) == explain(log[:place], name)
    assert explain_model(log, model, place) == explain_model(log[:place], model)


@given(logs(), st.sampled_from(MODELS))
def test_a_model_is_served_where_a_request_can_be_routed(log, model):
    fleet, found = replay(log), explain_model(log, model)
    for place in found.namespaces:
        wanted = Wanted(model=model, namespace=place.namespace)
        try:
            workers = candidates(fleet, wanted).workers(fleet)
        except (ModelNotFoundError, ModelUnavailableError):
            workers = []
        assert place.serving == bool(workers)
        assert place.routable == len(workers)
    serving = any(place.serving for place in found.namespaces)
    assert (found.state == "serving") == serving
    assert (found.state == "not_found") == (model not in fleet.state.known)


@given(logs(), st.sampled_from(MODELS))
def test_a_model_ended_and_began_with_the_records_that_say_so(log, model):
    expression = parse_expression(f'model("{model}").serving')
    serving = [expression.holds(fleet) for fleet in fleets_of(log)]
    found = explain_model(log, model)
    for turn, value in ((found.began, True), (found.ended, False)):
        places = [
            place
            for place in range(1, len(serving))
            if serving[place] == value != serving[place - 1]
        ]
        assert (None if turn is None else turn.record.revision) == (
            places[-1] if places else None
        )
        assert turn is None or (turn.rule and turn.before == turn.record.revision - 1)


@given(logs())
def test_a_record_ripples_to_every_model_it_may_change(log):
    state = FoldState()
    for record in log:
        before, folded = state, step(state, record)
        state = folded.state
        models = ripples(before.fleet_state, state.fleet_state, folded.changes)
        old, new = PlaneState(before).fleet, PlaneState(state).fleet
        named = {
            change.worker.key for change in folded.changes if hasattr(change, "worker")
        }
        for key, worker in state.fleet_state.workers.items():
            if key not in named and worker.model not in models:
                assert old.worker(*key) == new.worker(*key)


@given(logs())
def test_the_ground_of_a_set_is_what_it_means(log):
    state = fold_all(FoldState(), log).fleet_state
    for model in state.models:
        for meaning in meanings(state, model):
            ground = ground_of(state, meaning.key)
            assert ground.members is meaning.members
            assert ground.missing_roles == meaning.missing_roles
            assert ground.weight == meaning.weight
            for worker in meaning.members.workers.values():
                assert blockers_on(state, ground, worker) == tuple(
                    blockers(state, meaning, worker)
                )


@given(logs(), st.sampled_from(QUESTIONS))
def test_a_search_finds_what_asking_at_every_revision_finds(log, text):
    expression = parse_expression(text)
    answers = [expression.holds(fleet) for fleet in fleets_of(log)]
    expected = next(
        (
            place
            for place in range(1, len(answers))
            if answers[place - 1] < answers[place]
        ),
        1 if len(answers) > 1 and answers[0] and answers[1] else None,
    )
    found = find_first(log, parse_expression(text))
    assert (None if found is None else found.record.revision) == expected
    if found is not None:
        assert found.state == fold_all(FoldState(), log[:expected])


@given(st.integers(1, 90), st.integers(0, 90), st.integers(1, 40))
def test_narrowing_agrees_with_one_pass(length, least, size):
    log = story_of(*[registered(f"w{number}") for number in range(length)])
    text = f"count(workers) >= {least}"
    search = Narrowing(parse_expression(text), FoldState(), length)
    while search.stretch is not None:
        after, until = search.stretch
        part = log[after:until]
        for place in range(0, len(part), size):
            search.feed(part[place : place + size])
        search.close()
    assert search.found == find_first(log, parse_expression(text))


def test_poison_does_not_break_a_chain():
    log = story_of(
        registered("w1"), poison("log.setting.hold.prod.w1", b"{}"), draining("w1")
    )
    rules = [link.rule for link in explain(log, "prod/w1").chain]
    assert len(rules) == 3
    assert "cannot be read" in rules[1]
