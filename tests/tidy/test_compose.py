"""The compose set-up fits the code: files, commands and names of metrics."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from controlplane.telemetry import metric_rows

ROOT = Path(__file__).parents[2]
HERE = ROOT / "examples" / "compose"
COMMANDS = {
    "up",
    "demo",
    "init",
    "projector",
    "run",
    "models",
    "workers",
    "ports",
    "routers",
    "watch",
    "pick",
    "wait",
    "hold",
    "resume",
    "weight",
    "thresholds",
    "drain",
    "forget",
    "log",
    "replay",
    "diff",
    "explain",
    "bisect",
    "bench",
    "doctor",
    "schema",
}
PROGRAM = "examples/openai_router.py"
MODULES = {"controlplane.demo.worker", "controlplane.demo.router"}
METRIC = re.compile(r"controlplane_\w+")


@pytest.fixture(scope="module")
def services() -> dict[str, dict]:
    return compose()["services"]


def compose() -> dict[str, dict]:
    return yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))


def expressions(dashboard: dict) -> list[str]:
    targets = [t for panel in dashboard["panels"] for t in panel.get("targets", ())]
    marks = dashboard["annotations"]["list"]
    return [x["expr"] for x in (*targets, *marks) if "expr" in x]


def dashboards() -> list[dict]:
    found = sorted((HERE / "grafana" / "dashboards").glob("*.json"))
    return [json.loads(path.read_text(encoding="utf-8")) for path in found]


def test_every_metric_of_a_dashboard_is_declared():
    known = {row.name for rows in metric_rows().values() for row in rows}
    used = {
        name
        for dashboard in dashboards()
        for expression in expressions(dashboard)
        for name in METRIC.findall(expression)
    }
    assert used, "the dashboards were found and read"
    assert not used - known


def test_the_dashboard_shows_every_metric_that_prometheus_scrapes():
    rows = metric_rows()
    scraped = {row.name for kind in ("Projector", "Router") for row in rows[kind]}
    shown = METRIC.findall(" ".join(x for d in dashboards() for x in expressions(d)))
    assert not scraped - set(shown)


def test_panels_have_ids_of_their_own_and_do_not_overlap():
    for dashboard in dashboards():
        panels = dashboard["panels"]
        assert len({panel["id"] for panel in panels}) == len(panels)
        cells = [cell for panel in panels for cell in covered(panel["gridPos"])]
        assert len(set(cells)) == len(cells)


def covered(at: dict[str, int]) -> list[tuple[int, int]]:
    rows = range(at["y"], at["y"] + at["h"])
    return [(x, y) for y in rows for x in range(at["x"], at["x"] + at["w"])]


def test_every_mounted_file_exists_and_every_volume_is_declared(services):
    declared = set(compose()["volumes"])
    for name, service in services.items():
        for mount in service.get("volumes", ()):
            source = mount.split(":")[0]
            if source.startswith("."):
                assert (ROOT / source).exists(), f"{name} mounts {source}"
            else:
                assert source in declared, f"{name} uses volume {source}"
        if "build" in service:
            assert (ROOT / service["build"]["dockerfile"]).is_file()


def test_the_image_copies_what_exists():
    text = (HERE / "Dockerfile").read_text(encoding="utf-8")
    copied = [line.split()[1:-1] for line in text.splitlines() if line[:5] == "COPY "]
    missing = [name for names in copied for name in names if not (ROOT / name).exists()]
    assert not missing


def test_every_command_is_one_that_the_project_has(services):
    ours = {n: s["command"] for n, s in services.items() if "build" in s}
    assert ours
    for name, command in ours.items():
        match command:
            case ["controlplane", word, *_]:
                assert word in COMMANDS, name
            case ["python", "-m", module, *_]:
                assert module in MODULES, name
                path = ROOT.joinpath(*module.split(".")).with_suffix(".py")
                assert path.is_file(), f"{name} runs {module}"
            case ["python", "openai_router.py", *_]:
                image = (HERE / "Dockerfile").read_text(encoding="utf-8")
                assert f"COPY {PROGRAM} ." in image, f"{name} runs {PROGRAM}"
            case _:
                pytest.fail(f"{name} runs something else: {command}")


def test_what_waits_waits_for_a_service_and_a_condition_that_can_come(services):
    for name, service in services.items():
        for other, wait in service.get("depends_on", {}).items():
            assert other in services, f"{name} waits for {other}"
            if wait["condition"] == "service_healthy":
                assert "healthcheck" in services[other], f"{name} waits for {other}"
            else:
                assert wait["condition"] == "service_completed_successfully"
                assert services[other]["restart"] in ("no", "on-failure")


def test_prometheus_scrapes_services_on_the_ports_that_they_serve(services):
    text = (HERE / "prometheus.yml").read_text(encoding="utf-8")
    jobs = yaml.safe_load(text)["scrape_configs"]
    for job in jobs:
        for target in job["static_configs"][0]["targets"]:
            name, port = target.split(":")
            assert f"0.0.0.0:{port}" in services[name]["command"]


def test_published_ports_are_distinct_and_on_loopback(services):
    published = [p for s in services.values() for p in s.get("ports", ())]
    assert all(port.startswith("127.0.0.1:") for port in published)
    assert len({port.split(":")[1] for port in published}) == len(published)


def compose_program() -> list[str] | None:
    """Either generation of compose, if there is one."""
    if shutil.which("docker-compose"):
        return ["docker-compose"]
    docker = shutil.which("docker")
    plugin = ["docker", "compose"]
    if (
        docker
        and subprocess.run(
            [*plugin, "version"], capture_output=True, check=False
        ).returncode
        == 0
    ):
        return plugin
    return None


def test_compose_itself_accepts_the_file():
    program = compose_program()
    if program is None:
        # Without Docker the structure was checked above; in CI that is not enough.
        if os.environ.get("CI"):
            pytest.fail(
                "install compose: apt-get install docker-compose", pytrace=False
            )
        return
    done = subprocess.run(
        [*program, "-f", str(ROOT / "docker-compose.yml"), "config", "-q"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
