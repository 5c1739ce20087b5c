"""What a person sees while something takes long; a program sees nothing of it."""

import io
import sys

import pytest

from controlplane.cli.progress import Progress
from controlplane.cli.showing import Timeline
from controlplane.demo import DemoEvent


class Terminal(io.StringIO):
    """Where somebody looks."""

    def isatty(self) -> bool:
        return True


class Hand:
    """A clock that is moved by hand."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_long_replay_says_how_far_it_is_and_leaves_no_trace():
    stream, clock = Terminal(), Hand()
    progress = Progress(stream, clock)
    progress(10_000, 40_000)
    assert stream.getvalue() == "", "not long yet"
    clock.now = 1.5
    progress(20_000, 40_000)
    assert stream.getvalue().endswith("replaying 20,000 of 40,000 (50%)")
    before = stream.getvalue()
    progress(20_001, 40_000)
    assert stream.getvalue() == before, "not at each batch"
    clock.now = 2.0
    progress(30_000, 40_000)
    progress.clear()
    assert stream.getvalue().endswith("(75%)\r\x1b[K")


def test_a_short_replay_says_nothing():
    stream = Terminal()
    progress = Progress(stream, Hand())
    progress(1, 2)
    progress.clear()
    assert stream.getvalue() == ""


def test_a_long_replay_says_nothing_to_a_file():
    stream, clock = io.StringIO(), Hand()
    progress = Progress(stream, clock)
    clock.now = 60.0
    progress(1, 2)
    progress.clear()
    assert stream.getvalue() == ""


EVENT = DemoEvent(3.07, "kill", "[projector-a], the leader, killed " + "x" * 90)


def test_a_piped_timeline_is_plain_lines(capsys):
    with Timeline(to_stderr=False) as timeline:
        timeline.show(EVENT)
    said = capsys.readouterr()
    assert said.out == f"  3.07 s  {EVENT.text}\n"
    assert said.err == ""


def test_beside_a_document_nothing_is_said_into_a_pipe(capsys):
    with Timeline(to_stderr=True) as timeline:
        timeline.show(EVENT)
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", "")


@pytest.mark.parametrize("to_stderr", [True, False])
def test_on_a_terminal_the_timeline_is_live(monkeypatch, to_stderr):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr" if to_stderr else "stdout", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    with Timeline(to_stderr=to_stderr) as timeline:
        timeline.show(EVENT)
    assert "\x1b[1;31m" in terminal.getvalue(), "a kill is red"
    assert "[projector-a]" in terminal.getvalue(), "no markup is read out of it"
    assert "Ctrl-C" in terminal.getvalue()
