"""Each command that the README shows is one that there is, with options it takes."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from controlplane.cli.application import app

ROOT = Path(__file__).parents[2]
SHELL = re.compile(r"```sh\n(.*?)```", re.DOTALL)


def commands() -> list[str]:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks = "\n".join(SHELL.findall(readme)).replace("\\\n", " ")
    lines = (line.removesuffix("&&").strip() for line in joined(blocks.splitlines()))
    return [line for line in lines if line.startswith("controlplane ")]


def joined(lines: list[str]) -> Iterator[str]:
    """The lines, those of a text in quotes as one."""
    begun = ""
    for line in lines:
        begun += line
        try:
            shlex.split(begun, comments=True)
        except ValueError:  # no closing quotation yet
            begun += "\n"
            continue
        yield begun
        begun = ""
    assert not begun, "a text in quotes that does not end"


def test_there_are_some():
    assert len(commands()) > 15


@pytest.mark.parametrize("line", commands())
def test_a_command_of_the_readme_can_be_typed(line):
    _, *tokens = shlex.split(line, comments=True)
    command, bound, _ = app.parse_args(tokens, exit_on_error=False, print_error=False)
    assert command.__module__.startswith("controlplane.cli"), tokens
    assert bound is not None
