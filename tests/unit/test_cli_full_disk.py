"""Where nothing can be written, or read, the code says so: it is nobody's bug."""

import os
import subprocess
from pathlib import Path

import pytest

from controlplane.cli.exits import exit_code, sentence
from tests.support.commands import COMMAND

FULL = Path("/dev/full")
CLOSED = 'exec "$0" "$@" >&-'


def test_an_error_of_the_machine_is_no_bug_of_ours():
    error = OSError(28, os.strerror(28))
    assert exit_code(error) == 75
    assert "No space left on device; this machine refused" in sentence(error)
    assert "bug" not in sentence(error)


@pytest.mark.parametrize("arguments", [["schema"], ["--help"]])
def test_a_full_disk_is_75_and_one_line(arguments):
    with FULL.open("wb") as full:
        ended = subprocess.run(
            [*COMMAND, *arguments], stdout=full, stderr=subprocess.PIPE, check=False
        )
    said = ended.stderr.decode()
    assert ended.returncode == 75, said
    assert said.startswith("controlplane: [Errno 28] No space left on device; ")
    assert said.count("\n") == 1


def test_with_stderr_full_too_the_code_stays():
    with FULL.open("wb") as full:
        ended = subprocess.run(
            [*COMMAND, "schema"], stdout=full, stderr=full, check=False
        )
    assert ended.returncode == 75


STOPPED_EARLY = """
import sys
class Finder:
    def find_spec(self, name, *_):
        if name == "cyclopts":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Finder())
import controlplane.cli
"""


def test_ctrl_c_while_it_is_still_starting_shows_no_traceback():
    ended = subprocess.run(
        [COMMAND[0], "-c", STOPPED_EARLY], stderr=subprocess.PIPE, check=False
    )
    assert (ended.returncode, ended.stderr) == (130, b"")


def test_without_any_stdout_it_works_unseen():
    ended = subprocess.run(
        ["/bin/sh", "-c", CLOSED, *COMMAND, "schema"],
        stderr=subprocess.PIPE,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, b"")


@pytest.mark.parametrize("closed", ["<&-", ">&-", "<&- >&- 2>&-"])
def test_whatever_is_closed_the_event_loop_ends_well(closed, tmp_path):
    """Its own descriptors are none of the three: else it aborts at its end."""
    shell = ("/bin/sh", "-c", f'exec "$0" "$@" {closed}')
    missing = ("replay", "--from-archive", str(tmp_path / "none"))
    ended = subprocess.run([*shell, *COMMAND, *missing], check=False)
    assert ended.returncode == 65
