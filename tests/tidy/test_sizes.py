"""Files and functions stay small enough to be read at one go."""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
FILE_LINES_MAX = 400
FUNCTION_LINES_MAX = 70


def sources() -> list[Path]:
    rooms = ("events", "projections", "controlplane", "tests", "examples")
    return sorted(path for room in rooms for path in (ROOT / room).rglob("*.py"))


def test_no_file_is_longer_than_400_lines():
    long = {
        str(path.relative_to(ROOT)): lines
        for path in sources()
        if (lines := len(path.read_text(encoding="utf-8").splitlines()))
        > FILE_LINES_MAX
    }
    assert not long, "split it along its own seams"


def test_no_function_is_longer_than_70_lines():
    long = {
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name}": length
        for path in sources()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (length := (node.end_lineno or 0) - node.lineno + 1) > FUNCTION_LINES_MAX
    }
    assert not long, "a function of that length does more than one thing"
