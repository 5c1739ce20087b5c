"""Where TLS is asked for nothing is said in the clear."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from pathlib import Path

import pytest

import controlplane as cp
from controlplane.server import die_with, find_nats_server

KEPT = Path(__file__).parent.parent / "support" / "tls"
SETTINGS = cp.Settings(connect_timeout_s=5.0)


@pytest.fixture
async def encrypted(tmp_path):
    """A server that takes no client without TLS; its port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    config = tmp_path / "nats.conf"
    config.write_text(
        f"""
        listen: 127.0.0.1:{port}
        jetstream {{ store_dir: "{tmp_path}" }}
        tls {{
          cert_file: "{KEPT / "certificate.pem"}"
          key_file: "{KEPT / "key.pem"}"
        }}
        """
    )
    process = await asyncio.create_subprocess_exec(
        str(find_nats_server()),
        *("-c", str(config), "-l", str(tmp_path / "log")),
        preexec_fn=die_with(os.getpid()),
    )
    yield port
    process.kill()
    await process.wait()


async def test_a_server_without_tls_hears_nothing_from_who_asked_for_it(
    shared_nats_server,
):
    url = shared_nats_server.url.replace("nats://", "tls://nobody:secret@")
    for options in ({"url": url}, {"url": shared_nats_server.url, "tls": trusting()}):
        async with cp.connect(**options, settings=SETTINGS) as plane:
            with pytest.raises(cp.SettingsError, match="offer TLS") as refused:
                await plane.connected()
            assert "secret" not in str(refused.value)


@pytest.mark.parametrize("scheme", ["tls", "nats"])
async def test_who_trusts_the_server_s_certificate_is_connected(encrypted, scheme):
    url = f"{scheme}://127.0.0.1:{encrypted}"
    async with cp.connect(url, tls=trusting(), settings=SETTINGS) as plane:
        await plane.connected()
        assert await plane.init()


async def test_a_certificate_that_nobody_vouches_for_is_refused(encrypted):
    url = f"tls://127.0.0.1:{encrypted}"
    async with cp.connect(url, settings=cp.Settings(connect_timeout_s=1.0)) as plane:
        with pytest.raises(cp.LogUnavailableError, match="certificate"):
            await plane.connected()


def trusting() -> ssl.SSLContext:
    """Who takes the test's certificate for a good one."""
    return ssl.create_default_context(cafile=str(KEPT / "certificate.pem"))
