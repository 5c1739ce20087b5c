"""What the README says of the sidecar is what the code does."""

import re
import shlex
from pathlib import Path

import pytest

from controlplane.cli import sidecar
from controlplane.cli.application import app
from controlplane.sidecar.environment import ENGINE_PORTS
from events import Role

ROOT = Path(__file__).parents[2]
ROW = re.compile(r"^\| `(\w+)` \| `(\w+)`", re.MULTILINE)


def section() -> str:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return text.split("\n## Any engine, without a line of code in it\n")[1].split(
        "\n## "
    )[0]


def commands() -> list[list[str]]:
    parts = section().split("```sh\n")[1:]
    whole = [part.split("```")[0].replace("\\\n", " ") for part in parts]
    return [shlex.split(text) for text in whole]


def test_the_table_of_variables_is_the_codes():
    assert {n: (v,) for n, v in ROW.findall(section())} == dict(ENGINE_PORTS)


@pytest.mark.parametrize("words", commands(), ids=["vllm", "sglang"])
def test_the_examples_are_understood(words):
    assert words[0] == "controlplane"
    command, bound, _ = app.parse_args(
        words[1:], exit_on_error=False, print_error=False
    )
    assert command is sidecar.run
    made = sidecar.made_plan(
        bound.args,
        bound.kwargs["worker"],
        bound.kwargs.get("patience", sidecar.PATIENCE),
    )
    assert made.command == tuple(words[words.index("--") + 1 :])
    assert made.metrics == "http://127.0.0.1:{http}/metrics"
    assert "http" in made.ports
    if made.spec.role is Role.DECODE:
        assert made.spec.needs == ((Role.PREFILL,),)


def test_every_option_that_the_text_names_exists():
    options = set(
        re.findall(r"`?(--[a-z][a-z-]+)", section().split("**What it does")[1])
    )
    ours = sidecar.AsWorker.__dataclass_fields__ | sidecar.Patience.__dataclass_fields__
    known = {f"--{name.replace('_', '-')}" for name in ours}
    others = {"--help", "--enable-metrics", "--shutdown-timeout"}
    assert options - others <= known
