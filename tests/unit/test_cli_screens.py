"""What people see: whole screens of fixed logs, within 80 columns, in plain text."""

import re
from pathlib import Path

import pytest
from rich.cells import cell_len

from controlplane.cli.columns import Column, cut, fit, shown, stream_widths, table
from controlplane.cli.printing import print_lines, terminal_width
from controlplane.cli.tables import YES
from tests.golden.cli.screens import HERE, SCREENS, WIDTH, screen

README = Path(__file__).parents[2] / "README.md"


@pytest.mark.parametrize("name", SCREENS)
def test_a_screen_is_as_it_was(name):
    written = (HERE / f"{name}.txt").read_text(encoding="utf-8")
    assert screen(name) == written, (
        "if it is better now: python -m tests.golden.cli.write"
    )


def test_every_kept_screen_is_one_that_is_made():
    assert {path.stem for path in HERE.glob("*.txt")} == set(SCREENS)


@pytest.mark.parametrize("name", ["ports_few", "models_roles"])
def test_the_readme_shows_what_is_printed(name):
    assert f"```text\n{screen(name)}```" in README.read_text(encoding="utf-8")


def test_the_readme_explains_as_it_is_printed():
    readme = README.read_text(encoding="utf-8")
    (shown,) = re.findall(r"```text\n(prod/gpu7 is not.*?)```", readme, re.DOTALL)
    printed = iter(screen("explain_then").splitlines())
    lines = [line for line in shown.splitlines() if line != "…"]
    assert all(line in printed for line in lines), "in their order"


def test_the_readme_shows_why_a_router_picked():
    shown = screen("explain_router")
    beginning = shown[: shown.index("\nwhat the log said")]
    assert f"```text\n{beginning}…\n```" in README.read_text(encoding="utf-8")


def test_a_host_is_named_alike_in_both_tables_of_ports():
    above, below = screen("ports_long_host").split("\n\n")
    names = [
        {line.split()[0] for line in lines.splitlines() if "revision" not in line}
        for lines in (above, below)
    ]
    assert names[0] == names[1]
    assert any("…" in name for name in names[0]), "there was no room for all of it"


@pytest.mark.parametrize("name", SCREENS)
def test_no_line_is_wider_than_the_terminal(name):
    lines = screen(name).splitlines()
    assert max(map(cell_len, lines)) <= WIDTH
    assert all(line == line.rstrip() for line in lines)


@pytest.mark.parametrize("width", range(1, 14))
@pytest.mark.parametrize("middle", [True, False])
@pytest.mark.parametrize("text", ["vllm-decode-7f9c", "模型模型模型模型", "é"])
def test_what_is_cut_fits_and_says_so(text, width, middle):
    short = cut(text, width, middle=middle)
    assert cell_len(short) <= width
    assert short == text or "…" in short


def test_a_name_cut_in_the_middle_keeps_both_ends():
    assert cut("prefix-of-many-pods-x2x4z", 13, middle=True) == "prefix…-x2x4z"


def test_a_terminal_is_not_steered_by_names():
    hostile = "w\x1b[2J\r\n\u202ew"
    assert shown(hostile) == "w�[2J���w"
    columns = [Column(title="worker")]
    assert "\x1b" not in "".join(line.plain for line in table(columns, [[hostile]], 80))


def test_markup_in_names_is_only_text(capsys):
    print_lines(table([Column(title="worker")], [["[bold]w1[/bold]"]], 80))
    assert "[bold]w1[/bold]" in capsys.readouterr().out


def test_the_widest_column_that_may_shrink_gives_way_first():
    columns = [
        Column(title="a", least=5),
        Column(title="b"),
        Column(title="c", least=5),
    ]
    assert fit(columns, [10, 30, 20], 60) == [10, 30, 16]
    assert fit(columns, [10, 30, 20], 10) == [5, 30, 5], "no further than their least"


def test_in_a_stream_of_lines_the_last_column_takes_what_is_left():
    columns = [Column(title="a", usual=8), Column(title="b", usual=10, least=4)]
    assert stream_widths(columns, 100) == [8, 90]
    assert stream_widths(columns, 16) == [8, 6]


def test_colours_are_for_terminals(capsys, monkeypatch):
    print_lines([YES])
    assert capsys.readouterr().out == "yes\n"
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    print_lines([YES])
    assert "\x1b[32m" in capsys.readouterr().out
    monkeypatch.setenv("NO_COLOR", "1")
    print_lines([YES])
    assert "\x1b[32m" not in capsys.readouterr().out


def test_lines_are_as_wide_as_the_environment_says(monkeypatch):
    monkeypatch.setenv("COLUMNS", "132")
    assert terminal_width() == 132
