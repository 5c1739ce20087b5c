"""Each option that is a whole number takes nothing else, in every command."""

from typing import get_args

import pytest
from cyclopts import App

from controlplane.cli import main
from controlplane.cli.application import app

URL = "nats://127.0.0.1:1"
FRACTIONS = ("1.5", "5.6", "3.0", "1e3", "0x10", "1_0", "٣", "")
OTHERS = {  # what a call needs besides
    "pick": ["m"],
    "thresholds": ["m"],
    "run": ["--model", "m", "--", "vllm"],
}


def whole_numbers(part: App, path: tuple[str, ...] = ()):
    """Each such option, as (the words of its command, its name)."""
    for word in part:
        if word.startswith("-"):
            continue
        if part[word].default_command is None:
            yield from whole_numbers(part[word], (*path, word))
            continue
        for argument in part[word].assemble_argument_collection():
            if int in (argument.hint, *get_args(argument.hint)):
                yield (*path, word), argument.name


OPTIONS = sorted(whole_numbers(app))


def test_they_are_found():
    found = {f"{' '.join(path)} {name}" for path, name in OPTIONS}
    assert found >= {
        "log tail --lines",
        "pick --count",
        "run --unhealthy-after",
        "thresholds --busy-running",
        "thresholds --busy-waiting",
        "up --port",
        "wait --min-ready",
        "wait --revision",
    }


@pytest.mark.parametrize("text", FRACTIONS)
@pytest.mark.parametrize(
    ("path", "name"), OPTIONS, ids=lambda part: part if isinstance(part, str) else ""
)
def test_a_fraction_is_refused_and_never_rounded(path, name, text, capsys, monkeypatch):
    monkeypatch.setenv("NATS_URL", URL)
    assert main([*path, name, text, *OTHERS.get(path[-1], [])]) == 64
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith(f"controlplane: Invalid value for {name}: {text!r} is")
    assert "a whole number, as 16" in said.err
    assert said.err.count("\n") == 1
