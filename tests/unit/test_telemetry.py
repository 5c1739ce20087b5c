"""What a scrape shows."""

import json
import logging

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from controlplane.errors import SettingsError
from controlplane.fleet_series import MODELS_SHOWN_MAX, ModelState, WorkerGroup
from controlplane.logs import ROOT, get_logger
from controlplane.telemetry import (
    PickTally,
    ProjectorMetrics,
    RouterMetrics,
    WorkerMetrics,
    configure_logging,
    metric_rows,
    metrics_route,
)


@pytest.fixture
def registry():
    return CollectorRegistry()


def scrape(registry) -> str:
    return generate_latest(registry).decode()


def test_names_are_prefixed_unique_and_say_their_unit():
    rows = [row for rows in metric_rows().values() for row in rows]
    names = [row.name for row in rows]
    assert len(set(names)) == len(names)
    for row in rows:
        assert row.name.startswith("controlplane_")
        assert row.name.endswith("_total") == (row.kind == "counter"), row.name


def test_every_declared_metric_is_exposed_under_its_declared_name(registry):
    processes = (ProjectorMetrics(registry), RouterMetrics(registry))
    text = scrape(registry) + scrape_of(WorkerMetrics)
    for rows in (*(p.rows for p in processes), metric_rows()["Worker client"]):
        for row in rows:
            assert f"# TYPE {row.name} {row.kind}\n" in text


def scrape_of(process) -> str:
    registry = CollectorRegistry()
    process(registry)
    return scrape(registry)


def test_two_of_a_kind_do_not_share_numbers():
    one, two = CollectorRegistry(), CollectorRegistry()
    RouterMetrics(one).deltas_applied.inc(3)
    RouterMetrics(two)
    assert "controlplane_router_deltas_applied_total 3.0" in scrape(one)
    assert "controlplane_router_deltas_applied_total 0.0" in scrape(two)


def test_known_labels_begin_at_zero(registry):
    ProjectorMetrics(registry)
    text = scrape(registry)
    for kind in ("stale", "unknown", "undecodable", "no_op"):
        assert f'controlplane_projector_anomalies{{kind="{kind}"}} 0.0' in text


SERVING = ModelState(
    serving=True, sets={("decode", "ready"): 1}, missing=(), ambiguous=()
)
READY = WorkerGroup("prod", "llama", "decode", "routable")
LLAMA = ("prod", "llama")


def test_a_group_of_workers_that_is_gone_has_no_series(registry):
    metrics = ProjectorMetrics(registry)
    held = READY._replace(state="held")
    metrics.show_fleet({READY: 2, held: 1}, {LLAMA: SERVING})
    metrics.show_fleet({READY: 3}, {LLAMA: SERVING})
    lines = [x for x in scrape(registry).splitlines() if "_workers{" in x]
    labels = 'model="llama",namespace="prod",role="decode",state="routable"'
    assert lines == [f"controlplane_projector_workers{{{labels}}} 3.0"]


def test_a_model_says_what_it_lacks_and_stops_when_it_does_not(registry):
    metrics = ProjectorMetrics(registry)
    lacking = SERVING._replace(
        serving=False,
        sets={("decode", "not_ready"): 2},
        missing=["prefill"],
        ambiguous=["decode"],
    )
    metrics.show_fleet({}, {LLAMA: lacking})
    where = 'model="llama",namespace="prod"'
    sets = f'model_worker_sets{{{where},role="decode",state="not_ready"}} 2.0'
    sets = f"controlplane_projector_{sets}"
    said = set(scrape(registry).splitlines())
    assert {
        f"controlplane_projector_model_serving{{{where}}} 0.0",
        sets,
        f'controlplane_projector_model_missing_roles{{{where},role="prefill"}} 1.0',
        f'controlplane_projector_model_ambiguous_roles{{{where},role="decode"}} 1.0',
    } <= said
    metrics.show_fleet({}, {LLAMA: SERVING})
    text = scrape(registry)
    assert f"controlplane_projector_model_serving{{{where}}} 1.0" in text
    assert 'role="prefill"' not in text
    assert "ambiguous_roles{" not in text


def test_a_thousand_namespaces_have_series_and_more_are_counted(registry):
    metrics = ProjectorMetrics(registry)
    places = [(f"job-{n:04}", "llama") for n in range(MODELS_SHOWN_MAX + 7)]
    workers = {WorkerGroup(*at, "decode", "routable"): 1 for at in places}
    metrics.show_fleet(workers, dict.fromkeys(places, SERVING))
    text = scrape(registry)
    assert text.count("controlplane_projector_workers{") == MODELS_SHOWN_MAX
    assert text.count("controlplane_projector_model_serving{") == MODELS_SHOWN_MAX
    assert "controlplane_projector_models_not_shown 7.0" in text
    assert 'namespace="job-0999"' in text
    assert 'namespace="job-1000"' not in text


def test_anomalies_are_set_not_added(registry):
    metrics = ProjectorMetrics(registry)
    metrics.show_anomalies({"stale": 2, "no_op": 1})
    metrics.show_anomalies({"stale": 3, "no_op": 1})
    assert 'controlplane_projector_anomalies{kind="stale"} 3.0' in scrape(registry)


def test_picks_are_read_when_asked_for(registry):
    tally = PickTally()
    RouterMetrics(registry, tally)
    tally.picked += 7
    tally.fail("model_not_found")
    text = scrape(registry)
    assert "controlplane_router_picks_total 7.0" in text
    failed = "controlplane_router_picks_failed_total"
    assert f'{failed}{{reason="model_not_found"}} 1.0' in text
    assert f'{failed}{{reason="model_unavailable"}} 0.0' in text


def test_a_view_has_one_source_at_a_time(registry):
    metrics = RouterMetrics(registry)
    metrics.show_source("checkpoint")
    metrics.show_source("live")
    text = scrape(registry)
    assert 'controlplane_router_source{source="live"} 1.0' in text
    assert 'controlplane_router_source{source="checkpoint"} 0.0' in text


async def test_the_page_samples_before_it_answers(registry):
    metrics = ProjectorMetrics(registry)
    page = metrics_route(registry, lambda: metrics.revision.set(41))
    status, content_type, body = await page()
    assert (status, content_type.split(";")[0]) == (200, "text/plain")
    assert b"controlplane_projector_revision 41.0" in body


@pytest.fixture
def _logging_as_before():
    root = logging.getLogger()
    ours = logging.getLogger(ROOT)
    before = (root.handlers[:], root.level, ours.level)
    yield
    root.handlers[:], root.level, ours.level = before


@pytest.mark.usefixtures("_logging_as_before")
def test_json_log_lines_are_one_object_each_and_go_to_stderr(capsys):
    configure_logging("info", "json")
    log = get_logger("worker")
    log.debug("not shown")
    log.info("worker registered", worker_id="w1", revision=7)
    logging.getLogger("nats").error("connection %s", "lost")
    out, err = capsys.readouterr()
    ours, theirs = map(json.loads, err.splitlines())
    assert out == ""
    assert (ours["event"], ours["revision"]) == ("worker registered", 7)
    assert (theirs["event"], theirs["level"]) == ("connection lost", "error")


@pytest.mark.usefixtures("_logging_as_before")
@pytest.mark.parametrize("style", ["json", "console"])
def test_a_logged_error_does_not_show_local_variables(capsys, style):
    def failing(password):
        raise ValueError(password[:0])

    configure_logging("info", style)
    held = "s3cr3t-value"
    try:
        failing(held)
    except ValueError:
        get_logger("worker").exception("it failed")
    err = capsys.readouterr().err
    assert "ValueError" in err
    assert "s3cr3t-value" not in err


@pytest.mark.parametrize(("level", "style"), [("loud", "json"), ("info", "xml")])
def test_a_level_or_style_that_there_is_not_is_refused(level, style):
    with pytest.raises(SettingsError, match="must be one of"):
        configure_logging(level, style)


@pytest.mark.usefixtures("_logging_as_before")
def test_an_application_that_configured_nothing_gets_lines_of_text(caplog):
    """No dictionaries, and nothing below a warning unless it is asked for."""
    root = logging.getLogger()
    root.handlers[:] = [caplog.handler]
    root.setLevel(logging.WARNING)
    logging.getLogger(ROOT).setLevel(logging.NOTSET)
    log = get_logger("worker")
    log.info("not shown")
    log.warning("contact lost", revision=8, url="nats://127.0.0.1:1")
    (record,) = caplog.records
    assert record.getMessage() == "contact lost: revision=8 url='nats://127.0.0.1:1'"
    assert record.name == "controlplane.worker"
