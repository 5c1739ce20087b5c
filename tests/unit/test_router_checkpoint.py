"""A checkpoint file is whole or not used, whatever happened to it."""

import json
import stat
from datetime import UTC, datetime
from threading import Thread

import msgspec
import pytest

from controlplane.router.checkpoint import CheckpointFile
from projections import SnapshotUnusableError
from tests.support.fleet_builder import given, registered, weighted
from tests.support.view_line import ViewLine

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.fixture
def replica():
    line = ViewLine()
    line.publish(given(registered("a"), registered("b"), weighted(0.5)))
    return line.replica()


@pytest.fixture
def saved(tmp_path, replica):
    file = CheckpointFile(tmp_path / "view.checkpoint", "default")
    file.write(replica, NOW)
    return file


def header_of(file):
    line, _, packed = file.path.read_bytes().partition(b"\n")
    return json.loads(line), packed


def rewrite(file, **fields):
    header, packed = header_of(file)
    file.path.write_bytes(json.dumps({**header, **fields}).encode() + b"\n" + packed)


def refused(file):
    with pytest.raises(SnapshotUnusableError) as caught:
        file.read()
    return caught.value.reason


def test_what_is_written_is_read_again(saved, replica):
    assert saved.read() == (replica, NOW)


def test_it_keeps_apart_how_far_it_is_and_which_record_it_knows(saved, replica):
    """A head may have told of a later revision, but not what stands there."""
    later = msgspec.structs.replace(replica, revision=9)
    saved.write(later, NOW)
    assert saved.read()[0] == later
    assert later.fingerprint_at < 9


def test_a_file_that_does_not_say_which_record_it_knows_knows_none(saved):
    header, packed = header_of(saved)
    del header["fingerprint_at"]
    saved.path.write_bytes(json.dumps(header).encode() + b"\n" + packed)
    assert saved.read()[0].fingerprint == ""


def test_only_its_owner_may_read_it(saved):
    assert stat.S_IMODE(saved.path.stat().st_mode) == 0o600


def test_it_replaces_the_old_one_and_leaves_nothing_beside(saved, replica):
    later = msgspec.structs.replace(replica, revision=9)
    saved.write(later, NOW)
    assert saved.read()[0].revision == 9
    assert [path.name for path in saved.path.parent.iterdir()] == ["view.checkpoint"]


def test_what_a_killed_writer_left_beside_is_overwritten(saved, replica):
    beside = saved.path.with_name(".view.checkpoint.new")
    beside.write_bytes(b"half a check")
    assert saved.read()[0] == replica
    saved.write(replica, NOW)
    assert not beside.exists()
    assert saved.read()[0] == replica


def test_two_threads_never_tear_it(saved, replica):
    def write():
        for _ in range(20):
            saved.write(replica, NOW)

    threads = [Thread(target=write) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert saved.read() == (replica, NOW)


def test_a_missing_file_is_not_used(tmp_path):
    assert "No such file" in refused(CheckpointFile(tmp_path / "none", "default"))


@pytest.mark.parametrize("share", [0.0, 0.01, 0.3, 0.9, 0.99])
def test_a_truncated_file_is_not_used(saved, share):
    content = saved.path.read_bytes()
    saved.path.write_bytes(content[: int(len(content) * share)])
    assert refused(saved)


@pytest.mark.parametrize("place", [-1, -40, 5])
def test_a_damaged_file_is_not_used(saved, place):
    content = bytearray(saved.path.read_bytes())
    content[place] ^= 0xFF
    saved.path.write_bytes(content)
    assert refused(saved)


def test_a_file_of_another_format_is_not_used(saved):
    rewrite(saved, checkpoint=2)
    assert refused(saved) == "format 2, this version reads 1"


def test_a_file_of_another_cell_is_not_used(saved):
    other = CheckpointFile(saved.path, "staging")
    assert "is of cell default, not staging" in refused(other)


def test_a_time_without_a_zone_is_not_used(saved):
    rewrite(saved, fresh_at="2026-01-02T03:04:05")
    assert "time zone" in refused(saved)


def test_a_fleet_that_is_not_what_its_digest_says_is_not_used(saved, replica):
    fleet = msgspec.structs.replace(replica.fleet, total=replica.fleet.total + 1)
    saved.write(msgspec.structs.replace(replica, fleet=fleet), NOW)
    assert refused(saved).startswith("its digest is")


def test_a_directory_that_is_not_there_is_an_error_of_the_disk(tmp_path, replica):
    with pytest.raises(OSError, match="No such file"):
        CheckpointFile(tmp_path / "no" / "view", "default").write(replica, NOW)
