"""The page of metrics says what the code declares."""

import ast
from pathlib import Path

from controlplane.telemetry import render_metrics_page

ROOT = Path(__file__).parents[2]
DECLARERS = {"Counter", "Gauge", "Histogram", "Summary", "Info", "Enum"}


def test_the_page_of_metrics_is_up_to_date():
    written = (ROOT / ".github" / "METRICS.md").read_text(encoding="utf-8")
    assert written == render_metrics_page(), (
        "stale: run python -m controlplane.telemetry > .github/METRICS.md"
    )


def test_metrics_are_declared_in_one_place():
    elsewhere = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in (ROOT / "controlplane").rglob("*.py")
        if path.name != "telemetry.py"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom)
        and (node.module or "").startswith("prometheus_client")
        and DECLARERS & {alias.name for alias in node.names}
    ]
    assert not elsewhere, "declare metrics in controlplane/telemetry.py"
