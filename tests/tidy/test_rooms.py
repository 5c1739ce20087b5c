"""Each room imports only what it may: the inner rooms and every core are pure."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
IMPURE = {
    "asyncio",
    "nats",
    "time",
    "random",
    "os",
    "socket",
    "structlog",
    "logging",
    "prometheus_client",
    "threading",
    "uvloop",
    "secrets",
}
SERVICES = {"worker", "projector", "router", "playback"}
CLOCKS = {"now", "utcnow", "today"}


def sources(*rooms: str) -> list[Path]:
    return sorted(path for room in rooms for path in (ROOT / room).rglob("*.py"))


def cores() -> list[Path]:
    return sorted((ROOT / "controlplane").rglob("core.py"))


def named(paths: list[Path]) -> dict[str, list]:
    return {"argvalues": paths, "ids": [str(p.relative_to(ROOT)) for p in paths]}


def imported(path: Path) -> Iterator[str]:
    """Dotted names of modules, relative ones made absolute."""
    package = path.relative_to(ROOT).parent.parts
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.Import(names=names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(module=module, level=0):
                yield module or ""
            case ast.ImportFrom(module=module, names=names, level=level):
                above = package[: len(package) - level + 1]
                yield from (
                    ".".join((*above, *(module or "").split("."), alias.name))
                    for alias in names
                )


def tops(path: Path) -> set[str]:
    return {name.split(".")[0] for name in imported(path)}


PURE = sources("events", "projections") + cores()


@pytest.mark.parametrize("path", **named(PURE))
def test_a_pure_room_touches_no_world(path):
    assert not tops(path) & IMPURE


@pytest.mark.parametrize("path", **named(PURE))
def test_a_pure_room_reads_no_clock(path):
    calls = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and node.attr in CLOCKS
    ]
    assert not calls


@pytest.mark.parametrize("path", **named(sources("events")))
def test_events_know_nobody(path):
    assert not tops(path) & {"projections", "controlplane"}


@pytest.mark.parametrize("path", **named(sources("projections")))
def test_projections_know_events_only(path):
    assert "controlplane" not in tops(path)


@pytest.mark.parametrize("path", **named(sources("projections", "controlplane")))
def test_another_package_is_imported_by_its_face(path):
    own = path.relative_to(ROOT).parts[0]
    inner = [
        name
        for name in imported(path)
        if name.split(".")[0] in {"events", "projections"} - {own}
        and len(name.split(".")) > 1
    ]
    assert not [name for name in inner if not name.endswith(".errors")]


@pytest.mark.parametrize("path", **named(sources("examples")))
def test_an_example_can_be_copied_for_it_knows_our_public_face_only(path):
    ours = {"events", "projections", "controlplane", "tests"}
    known = {name for name in imported(path) if name.split(".")[0] in ours}
    assert known == {"controlplane"}


@pytest.mark.parametrize(
    "path", **named(sources(*(f"controlplane/{s}" for s in SERVICES)))
)
def test_the_service_rooms_do_not_know_each_other(path):
    room = path.relative_to(ROOT / "controlplane").parts[0]
    others = {f"controlplane.{name}" for name in SERVICES - {room}}
    known = {".".join(name.split(".")[:2]) for name in imported(path)}
    assert not known & others


def test_nats_stays_behind_the_broker():
    elsewhere = [
        str(path.relative_to(ROOT))
        for path in sources("controlplane")
        if "nats" in tops(path) and "broker" not in path.parts
    ]
    assert not elsewhere


def test_only_the_command_line_configures_logging():
    text = {p: p.read_text(encoding="utf-8") for p in sources("controlplane")}
    words = ("structlog.configure(", "structlog.get_logger(", "basicConfig(")
    found = {p.name for p, code in text.items() if any(word in code for word in words)}
    assert found <= {"logs.py"}


def test_no_module_is_a_drawer_for_odds_and_ends():
    drawers = {"utils.py", "helpers.py", "common.py", "base.py", "misc.py"}
    everything = sources("events", "projections", "controlplane")
    assert not {path.name for path in everything} & drawers
