"""S42: a crash between applying and saving leaves the old checkpoint or the new one."""

from __future__ import annotations

import asyncio
import sys


async def test_a_checkpoint_is_whole_whenever_its_writer_is_killed(tmp_path):
    path = tmp_path / "router.ckpt"
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "tests.support.checkpoint_killer", str(path), "7"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 0, err.decode()
    times, moved = map(int, out.split())
    assert times == 200
    assert moved > 20, "the writer was killed before it wrote anything"
