"""S06. A router sees the namespaces that it asked for and nothing beside them.

Three deployments share a prefix: ``ns``, ``ns2`` and ``ns-abc``. A router for ``ns``
picks nothing of ``ns2``, ever; of ``ns-abc``, a newer generation of ``ns``, only if it
asked for generations. The names of models are known in the whole cell: asking for a
model that is served elsewhere only is "unavailable", not "never heard of".
"""

import pytest

from controlplane.namespaces import NamespaceFilter
from projections import ModelUnavailableError, Wanted, candidates
from tests.support.fleet_builder import MODEL, fleet_after, registered

NAMESPACES = ("ns", "ns2", "ns-abc")
FLEET = fleet_after(
    *(registered(f"in-{name}", namespace=name) for name in NAMESPACES),
    registered("only-there", namespace="ns2", model="elsewhere"),
)


def seen(visible, model=MODEL):
    found = candidates(FLEET, Wanted(model=model), (), visible)
    return {worker.worker_id for worker in found.workers(FLEET)}


@pytest.mark.parametrize(
    ("visible", "workers"),
    [
        (NamespaceFilter.exact("ns"), {"in-ns"}),
        (NamespaceFilter.generations("ns"), {"in-ns", "in-ns-abc"}),
        (NamespaceFilter.prefix("ns"), {"in-ns", "in-ns2", "in-ns-abc"}),
        (NamespaceFilter.exact("ns-abc"), {"in-ns-abc"}),
        (NamespaceFilter.all(), {"in-ns", "in-ns2", "in-ns-abc"}),
        (None, {"in-ns", "in-ns2", "in-ns-abc"}),
    ],
    ids=lambda value: getattr(value, "kind", None),
)
def test_a_router_picks_from_what_it_asked_for(visible, workers):
    assert seen(visible) == workers


def test_a_wish_for_a_namespace_does_not_reach_beyond_the_filter():
    wanted = Wanted(model=MODEL, namespace="ns2")
    with pytest.raises(ModelUnavailableError):
        candidates(FLEET, wanted, (), NamespaceFilter.generations("ns"))


def test_a_model_served_elsewhere_only_is_unavailable_not_unknown():
    with pytest.raises(ModelUnavailableError) as caught:
        seen(NamespaceFilter.generations("ns"), "elsewhere")
    assert caught.value.reasons == {}
    assert seen(None, "elsewhere") == {"only-there"}


def test_filters_on_one_fleet_do_not_see_each_others_answers():
    narrow, wide = NamespaceFilter.exact("ns"), NamespaceFilter.generations("ns")
    for _ in "ab":
        assert seen(narrow) == {"in-ns"}
        assert seen(wide) == {"in-ns", "in-ns-abc"}
