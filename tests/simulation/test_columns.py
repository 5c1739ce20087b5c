"""What people read fits 80 columns, and is to be had whole."""

import io

import msgspec

from tests.simulation import toy_world
from tests.simulation.columns import WIDTH, fitted, readable
from tests.simulation.failures import Failure
from tests.simulation.outcome import Broken
from tests.simulation.progress import Progress
from tests.simulation.reporting import TAIL, told
from tests.simulation.shell import TOY, simulation

LIFE = "019b76da-bc1c-76c9-b421-a81fa1ed6318"
TRACE = (
    f"    5.2768 w05    entered as {LIFE} at 6 among many; nobody-could-have-known-it",
    f"{'':17} | w05 says: worker registered: namespace='prod' incarnation='{LIFE}'",
    f"{'':17} | {'x' * 200}",
)


def test_what_fits_stays_as_it_is():
    line = "  twice  spaced, " + "x" * (WIDTH - 17)
    assert list(fitted(line)) == [line]


def test_what_does_not_fit_goes_on_below_its_words():
    assert list(readable(TRACE[:2])) == [
        "    5.2768 w05    entered as 019b76da-bc1c-76c9… at 6 among many;",
        "                  nobody-could-have-known-it",
        "                  | w05 says: worker registered: namespace='prod'",
        "                    incarnation='019b76da-bc1c-76c9…'",
    ]
    step = f"   4     4.300 s  enter process=w10 {'a=b ' * 12}c=d"
    assert list(fitted(step)) == [
        f"   4     4.300 s  enter process=w10 {'a=b ' * 11}".rstrip(),
        "                  a=b c=d",
    ]


def test_broken_lines_lose_nothing():
    for line in TRACE:
        pieces = list(fitted(line))
        assert max(map(len, pieces)) <= WIDTH
        words = "".join(pieces).replace(" ", "")
        assert words == line.replace(" ", "")


def test_a_report_fits_and_its_trace_is_kept_whole(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    plan = toy_world.plan_of(7)
    what = f"{LIFE} stands at 7 and should at 9; " * 5
    failure = Failure(
        seed=7,
        broken=Broken(invariant="prefix", what=what, at_s=60.456),
        steps=len(plan.steps),
        plan=plan,
        simplified=True,
        trace=TRACE * TAIL,
    )
    lines = list(told(failure))
    said = " ".join(" ".join(lines).split())
    assert what.strip() in said  # the verdict is not cut
    commands = [line for line in lines if str(tmp_path) in line]
    for line in lines:
        assert len(line) <= WIDTH or line in commands
    [whole] = tmp_path.glob("*/trace.txt")
    assert tuple(whole.read_text().splitlines()) == failure.trace
    [kept] = tmp_path.glob("*/plan.json")
    assert any(f"replay --plan {kept}" in line for line in commands)


async def test_a_replay_fits_and_a_wide_one_is_exact():
    """Of the product: the toy has too little to say."""
    narrow = await simulation("replay", "--seed", "1")
    wide = await simulation("replay", "--seed", "1", "--wide")
    assert (narrow.code, wide.code) == (0, 0)
    assert max(map(len, narrow.out.splitlines())) <= WIDTH
    lines = wide.out.splitlines()
    assert max(map(len, lines)) > WIDTH
    last = lines.pop()
    assert "\n".join((*readable(lines), last)) == narrow.out.rstrip()


async def test_what_breaks_is_told_in_columns_and_wide_in_a_line():
    words = ("replay", "--seed", "7", *TOY)
    narrow, wide = await simulation(*words), await simulation(*words, "--wide")
    assert max(map(len, narrow.out.splitlines())) <= WIDTH
    step = msgspec.json.encode(toy_world.plan_of(7).steps[0]).decode()
    assert step in wide.out.splitlines()


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_progress_stays_in_its_row(monkeypatch):
    """A row that runs over could not be erased."""
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setattr("tests.simulation.progress._TERMINAL_EVERY_S", 0.0)
    terminal = Terminal()
    progress = Progress(quiet=False, every_s=9.0, stream=terminal)
    progress.tick("1234 seeds in 60 s (1234/min), 12345 records")
    progress.tick("1234 seeds")
    _, cut, short = terminal.getvalue().split("\r\x1b[2K")
    assert cut == "1234 seeds in 60 s (1234/min), 12345 r…"
    assert short == "1234 seeds"
