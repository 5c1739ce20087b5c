"""The application: its commands, and what becomes of whatever goes wrong in them."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from importlib.metadata import version
from typing import Final, TextIO

from cyclopts import App, CycloptsError, Parameter

from controlplane.runtime import first_of

from . import (
    archives,
    bisecting,
    deciding,
    diffing,
    draining,
    explaining,
    fleet,
    history,
    log_counts,
    log_reading,
    ports,
    serving,
    showing,
    sidecar,
    verifying,
    waiting,
)
from .exits import INTERRUPTED, OK, SILENT, USAGE, exit_code, sentence
from .printing import Screen

app: Final = App(
    name="controlplane",
    help="An event-sourced control plane for LLM-serving fleets over NATS JetStream.",
    version=lambda: f"controlplane {version('controlplane')}",
    default_parameter=Parameter(negative=""),
    console=Screen(),
)
log_app: Final = App(name="log", help="Look into the log.")

app.command(serving.up)
app.command(showing.demo)
app.command(serving.init)
app.command(serving.projector)
app.command(sidecar.run)
app.command(fleet.models)
app.command(fleet.workers)
app.command(ports.ports)
app.command(fleet.routers)
app.command(fleet.watch)
app.command(fleet.pick)
app.command(waiting.wait)
app.command(deciding.hold)
app.command(deciding.resume)
app.command(deciding.weight)
app.command(deciding.thresholds)
app.command(draining.drain)
app.command(deciding.forget)
app.command(log_app)
log_app.command(log_reading.tail)
log_app.command(log_reading.show)
log_app.command(log_counts.stats)
log_app.command(verifying.verify_, name="verify")
log_app.command(archives.export_, name="export")
log_app.command(archives.import_, name="import")
app.command(history.replay)
app.command(diffing.diff)
app.command(explaining.explain)
app.command(bisecting.bisect)
app.command(history.schema)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command that ``arguments`` (else the process's) name; its exit code.

    Never raises: what went wrong is one line on stderr, and a code that says who has
    to do something about it. With ``--debug`` the traceback comes first.
    """
    _open_what_was_closed()
    tokens = list(sys.argv[1:] if arguments is None else arguments)
    _replace_what_no_terminal_can_show()
    try:
        code = _dispatch(tokens)
        sys.stdout.flush()
    except BrokenPipeError:
        _close_quietly()
        return OK
    except KeyboardInterrupt:
        return INTERRUPTED
    except BaseException as error:  # noqa: BLE001 - the last line of defence
        return _explain(error, debug="--debug" in tokens)
    return code


def _dispatch(tokens: Sequence[str]) -> int:
    command, bound, _ = app.parse_args(
        tokens, exit_on_error=False, print_error=False, verbose=False
    )
    answer = command(*bound.args, **bound.kwargs)
    return answer if isinstance(answer, int) else OK


def _explain(error: BaseException, *, debug: bool) -> int:
    """Say what happened in one line; the exit code."""
    if isinstance(error, BaseExceptionGroup):
        error = first_of(error)
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else USAGE
    if debug:
        traceback.print_exception(error)
    if not isinstance(error, SILENT):
        usage = isinstance(error, CycloptsError)
        said = sentence(error)
        if usage:
            # Of an unknown command it lists a few others: the help has all of them.
            said = said.partition(" Available commands:")[0]
            said = f"{said.rstrip('.')}; see: {_help(error)}"
        _say(f"controlplane: {said}\n")
    if isinstance(error, OSError):
        _close_quietly()  # what could not be written is not tried again at the exit
    return USAGE if isinstance(error, CycloptsError) else exit_code(error)


def _say(line: str) -> None:
    """Write to stderr; where even that is full, the code says it."""
    try:
        sys.stderr.write(line)
        sys.stderr.flush()
    except OSError:
        _close_quietly(sys.stderr)


def _help(error: BaseException) -> str:
    chain = error.command_chain if isinstance(error, CycloptsError) else None
    return " ".join(("controlplane", *(chain or ()), "--help"))


def _open_what_was_closed() -> None:
    """Started with ``<&-`` or ``>&-``: as with /dev/null, nobody writes, or reads.

    Whatever is opened next would be taken for that stream, also by a child: the event
    loop ends the process when it finds itself there.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)  # the lowest that is free
            assert opened == number  # noqa: S101 - those below are open
            os.set_inheritable(opened, True)  # noqa: FBT003 - positional only
        if getattr(sys, name) is None:
            mode = "w" if number else "r"
            stream = open(number, mode, encoding="utf-8", closefd=False)  # noqa: SIM115 - for as long as the process runs
            setattr(sys, name, stream)


def _replace_what_no_terminal_can_show() -> None:
    """An encoding without a character is no reason to fail."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


def _close_quietly(stream: TextIO | None = None) -> None:
    """Nobody reads (stdout, else ``stream``): let the last flush go nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, (stream or sys.stdout).fileno())
    os.close(nowhere)
