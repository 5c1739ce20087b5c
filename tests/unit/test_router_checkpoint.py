"""A checkpoint file is whole or not used, whatever happened to it."""

import json
import os
import stat
from datetime import UTC, datetime
from pathlib import Path
from threading import Thread

import msgspec
import pytest

from controlplane import viewfeed
from controlplane.errors import SettingsError
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


# ---- what is no file ---------------------------------------------------------------
def no_file(path):
    with pytest.raises(SettingsError) as caught:
        CheckpointFile(path, "default")
    assert caught.value.field == "checkpoint"


def test_a_directory_is_refused_before_anything_is_written(tmp_path):
    place = tmp_path / "place"
    place.mkdir()
    no_file(place)
    assert list(tmp_path.rglob("*")) == [place]


def test_what_else_is_no_file_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "link").symlink_to(tmp_path)
    (tmp_path / "file").touch()
    for name in ("pipe", "loop", "link", "file/below", "a\0b", "x" * 300):
        no_file(tmp_path / name)
    no_file(Path("/dev/null"))


def test_a_directory_that_came_later_is_refused_and_nothing_left_beside(
    tmp_path, replica
):
    file = CheckpointFile(tmp_path / "view", "default")
    file.path.mkdir()
    with pytest.raises(SettingsError):
        file.check()
    with pytest.raises(OSError, match="directory"):
        file.write(replica, NOW)
    assert list(tmp_path.iterdir()) == [file.path]


def test_a_link_is_followed_once_and_stays(tmp_path, replica):
    """Also one that leads to nothing yet: what it leads to is the file."""
    target, link = tmp_path / "far" / "view", tmp_path / "link"
    target.parent.mkdir()
    link.symlink_to(target)
    file = CheckpointFile(link, "default")
    file.write(replica, NOW)
    assert link.is_symlink()
    assert target.is_file()
    assert CheckpointFile(link, "default").read() == (replica, NOW)
    link.unlink()
    file.write(replica, NOW)
    assert not link.exists()


def test_what_unpacks_to_too_much_is_not_used(saved, monkeypatch):
    """A few kilobytes may say that they are gigabytes, or not say it."""
    monkeypatch.setattr(viewfeed, "UNPACKED_BYTES_MAX", 1 << 20)
    for size in (1 << 20, (1 << 20) + 1, 1 << 26):
        packer = viewfeed.zstd.ZstdCompressor()
        bomb = packer.compress(bytes(size)) + packer.flush()
        header, _ = header_of(saved)
        header["checksum"] = viewfeed._checksum(bomb)
        saved.path.write_bytes(json.dumps(header).encode() + b"\n" + bomb)
        said = "unpacks to more" if size > 1 << 20 else "damaged"
        assert said in refused(saved)


def test_a_snapshot_is_one_whole_frame():
    line = ViewLine()
    line.publish(given(registered("a")))
    line.take_snapshot()
    packed, _ = viewfeed.pack_snapshot(line.snapshot)
    for other in (packed + packed, packed[:-1], b""):
        with pytest.raises(SnapshotUnusableError, match="not one whole frame"):
            viewfeed.unpack_snapshot(other, viewfeed._checksum(other))


def test_a_directory_that_is_not_there_is_an_error_of_the_disk(tmp_path, replica):
    with pytest.raises(OSError, match="No such file"):
        CheckpointFile(tmp_path / "no" / "view", "default").write(replica, NOW)
