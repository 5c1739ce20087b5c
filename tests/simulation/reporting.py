"""What is printed of a failure: how to see it again, and how it came about."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from tests.simulation.columns import WIDTH, fitted, readable
from tests.simulation.failures import Failure
from tests.simulation.outcome import Broken
from tests.simulation.plan import Plan, Step
from tests.simulation.running import PRODUCT
from tests.simulation.seeds import as_words

TAIL: Final = 60


def replay_command(
    seed: int,
    *,
    keep: tuple[int, ...] | None = None,
    plan: Path | None = None,
    world: str = PRODUCT,
) -> str:
    """The command that shows the run again."""
    words = [_python(), "-m", "tests.simulation", "replay"]
    if plan is not None:
        words.append(f"--plan {plan}")  # which says of what seed it is
    else:
        words.append(f"--seed {seed}")
    if plan is None and keep is not None:
        words.append(f"--keep {as_words(keep)}")
    if world != PRODUCT:
        words.append(f"--world {world}")
    return " ".join(words)


def told(failure: Failure, *, world: str = PRODUCT) -> Iterator[str]:
    """The lines to print. Writes the trace and the simplified plan to files.

    All but commands, which are to be copied as they are, fit the columns of a screen.
    """
    broken = failure.broken
    yield from fitted(f"seed {failure.seed} breaks {said(broken)}")
    room = Path(tempfile.mkdtemp(prefix="sim-"))
    plan_file = _written_plan(failure, room)
    keep = failure.keep
    if failure.plan is not None:
        rest = "" if failure.finished else "; the time was up, --shrink-s gives more"
        yield from fitted(
            f"shrunk from {failure.steps} steps to {len(failure.plan.steps)} "
            f"by {failure.runs} runs in {failure.seconds:.0f} s{rest}"
        )
    yield "replay it with:"
    shown = plan_file if failure.simplified else None
    yield f"  {replay_command(failure.seed, keep=keep, plan=shown, world=world)}"
    if plan_file is not None:
        yield "once mended, keep the plan and its line in seeds.txt:"
        yield f"  cp {plan_file} tests/simulation/plans/NAME.json"
        yield f"  plan=NAME.json  # {broken.invariant}: …"
    if failure.plan is not None:
        yield "the steps left:"
        yield from _indented(steps_of(failure.plan, keep))
    yield from _trace(failure.trace, room)
    if not any(room.iterdir()):
        room.rmdir()


def said(broken: Broken) -> str:
    """What does not hold, in a line."""
    return f"{broken.invariant} at {broken.at_s:.3f} s: {broken.what}"


def steps_of(plan: Plan, keep: tuple[int, ...] | None = None) -> Iterator[str]:
    """The steps, one a line, with their index in the seed's plan."""
    numbers: Sequence[int] = range(len(plan.steps)) if keep is None else keep
    for number, step in zip(numbers, plan.steps, strict=True):
        yield f"{number:4} {step.at_s:9.3f} s  {_step(step)}"


def _step(step: Step) -> str:
    """Its kind, and its fields that are not as usual."""
    words = [str(type(step).__struct_config__.tag)]
    for field in msgspec.structs.fields(step):
        value = getattr(step, field.name)
        if field.name != "at_s" and value != field.default:
            words.append(f"{field.name}={_value(value)}")
    return " ".join(words)


def _value(value: object) -> str:
    return msgspec.json.encode(value).decode().strip('"')


def _trace(trace: tuple[str, ...], room: Path) -> Iterator[str]:
    if not trace:
        return
    whole = room / "trace.txt"
    whole.write_text("\n".join(trace) + "\n", encoding="utf-8")
    last = f", the last {TAIL} of {len(trace)} lines" if len(trace) > TAIL else ""
    yield f"the trace (whole in {whole}){last}:"
    yield from _indented(trace[-TAIL:])


def _indented(lines: Iterable[str]) -> Iterator[str]:
    return (f"  {line}" for line in readable(lines, width=WIDTH - 2))


def _written_plan(failure: Failure, room: Path) -> Path | None:
    if failure.plan is None:
        return None
    path = room / "plan.json"
    path.write_bytes(msgspec.json.format(msgspec.json.encode(failure.plan)) + b"\n")
    return path


def _python() -> str:
    """This interpreter, as a shell in this directory would call it."""
    here = os.path.relpath(sys.executable)
    return sys.executable if here.startswith("..") else here
