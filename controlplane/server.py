"""A real nats-server of our own: for a laptop, for `cp.local`, for tests.

It listens on the loopback interface only, with JetStream, and it cannot outlive its
parent: the kernel ends it when the parent dies, however that happens.
"""

from __future__ import annotations

import asyncio
import ctypes
import fcntl
import functools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, Self

import msgspec

from controlplane.broker import OLDEST_SERVER
from controlplane.broker.jetstream import JetStreamBroker
from controlplane.errors import LogUnavailableError, SettingsError

_START_TIMEOUT_S: Final = 15.0
_STOP_TIMEOUT_S: Final = 10.0
_POLL_S: Final = 0.005
_PR_SET_PDEATHSIG: Final = 1
_VERSION: Final = re.compile(r"v(\d+)\.(\d+)\.(\d+)")


class ServerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a test or an operator may want different."""

    sync_always: bool = False
    """Fsync every write: the durability profile ``strict``."""
    monitoring: bool = False
    """Serve nats-server's own HTTP monitoring on a free loopback port."""
    extra_config: str = ""
    """Appended to the configuration file as it is."""


class EmbeddedServer:
    """A nats-server process with JetStream on the loopback interface.

    ``port`` 0 takes any free port; a restart keeps it. Without ``store_dir`` the data
    lives in a temporary directory that `stop` removes.
    """

    def __init__(
        self,
        store_dir: str | Path | None = None,
        port: int = 0,
        *,
        options: ServerOptions | None = None,
    ) -> None:
        self._options: Final = options or ServerOptions()
        self._wanted_dir: Final = None if store_dir is None else Path(store_dir)
        self._store_dir: Path | None = self._wanted_dir
        self._port = port
        self._monitoring_url: str | None = None
        self._process: subprocess.Popen[bytes] | None = None

    async def __aenter__(self) -> Self:
        """Start."""
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop."""
        await self.stop()

    @property
    def url(self) -> str:
        """The URL for clients."""
        return f"nats://127.0.0.1:{self._port}"

    @property
    def port(self) -> int:
        """The port listened on; 0 before the first start with any port."""
        return self._port

    @property
    def monitoring_url(self) -> str | None:
        """The URL of the server's monitoring, if it was asked for."""
        return self._monitoring_url

    @property
    def pid(self) -> int | None:
        """The process id while it runs."""
        return None if self._process is None else self._process.pid

    @property
    def store_dir(self) -> Path:
        """Where the data lives."""
        if self._store_dir is None:
            raise SettingsError(
                field="store_dir", value=None, rule="known once the server started"
            )
        return self._store_dir

    async def start(self) -> None:
        """Start and return when JetStream answers.

        Raises `SettingsError` when there is no usable nats-server, the port is taken or
        the store directory is in use. After a kill it starts again on the same port.
        """
        if self._process is not None and self._process.poll() is None:
            return
        binary = find_nats_server()
        if self._store_dir is None:
            self._store_dir = Path(tempfile.mkdtemp(prefix="controlplane-nats-"))
        self._store_dir.mkdir(parents=True, exist_ok=True)
        self._process = self._spawn(binary)
        try:
            await self._await_ready()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """End the process (SIGTERM, later SIGKILL) and remove a temporary store."""
        process, self._process = self._process, None
        if process is not None:
            await _end(process)
        if self._wanted_dir is None and self._store_dir is not None:
            shutil.rmtree(self._store_dir, ignore_errors=True)
            self._store_dir = None

    async def kill(self) -> None:
        """SIGKILL it, as a crash would; `start` brings it back on the same store."""
        if self._process is not None:
            self._process.kill()
            await asyncio.to_thread(self._process.wait)
            self._process = None

    # ---- the process -----------------------------------------------------------
    def _spawn(self, binary: Path) -> subprocess.Popen[bytes]:
        directory = self.store_dir
        for stale in directory.glob("nats-server_*.ports"):
            stale.unlink()
        config = directory / "nats-server.conf"
        config.write_text(self._config())
        lock = _lock(directory)
        try:
            with (directory / "nats-server.log").open("wb") as log:
                return subprocess.Popen(  # noqa: S603  # our binary, our arguments
                    [binary, "--config", config],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,  # ctrl-c is the parent's to handle
                    pass_fds=(lock,),  # the lock lives as long as the server
                    preexec_fn=die_with(os.getpid()),  # noqa: PLW1509  # one syscall
                )
        finally:
            os.close(lock)

    def _config(self) -> str:
        sync = "  sync_interval: always\n" if self._options.sync_always else ""
        monitoring = "http: 127.0.0.1:-1\n" if self._options.monitoring else ""
        return (
            "# Written by controlplane at each start.\n"
            "server_name: controlplane\n"
            f"listen: 127.0.0.1:{self._port or -1}\n"
            f"{monitoring}"
            f"ports_file_dir: {json.dumps(str(self.store_dir))}\n"
            "jetstream {\n"
            f"  store_dir: {json.dumps(str(self.store_dir))}\n"
            f"{sync}"
            "}\n"
            f"{self._options.extra_config}\n"
        )

    async def _await_ready(self) -> None:
        """Wait for the ports file, then for JetStream's first answer."""
        deadline = time.monotonic() + _START_TIMEOUT_S
        while not self._read_ports():
            self._check_running()
            if time.monotonic() > deadline:
                raise LogUnavailableError(
                    url=self.url,
                    doing="starting nats-server",
                    reason=self._last_words(),
                )
            await asyncio.sleep(_POLL_S)
        await self._await_jetstream(deadline - time.monotonic())

    async def _await_jetstream(self, timeout_s: float) -> None:
        broker = JetStreamBroker(self.url, name="embedded server: readiness")
        await broker.start()
        try:
            await broker.wait_connected(timeout_s)
        except SettingsError:
            # The extra configuration may ask for credentials that we do not have:
            # a server that refuses us is up.
            if not self._options.extra_config:
                raise
        finally:
            await broker.stop()

    def _read_ports(self) -> bool:
        try:
            text = (self.store_dir / f"nats-server_{self.pid}.ports").read_text()
            ports = json.loads(text)
        except (FileNotFoundError, ValueError):  # not there, or not written out yet
            return False
        self._port = int(ports["nats"][0].rpartition(":")[2])
        monitoring = ports.get("monitoring")
        self._monitoring_url = monitoring[0] if monitoring else None
        return True

    def _check_running(self) -> None:
        if self._process is not None and self._process.poll() is not None:
            raise SettingsError(
                field="nats-server", value=str(self.store_dir), rule=self._last_words()
            )

    def _last_words(self) -> str:
        text = (self.store_dir / "nats-server.log").read_text(errors="replace")
        fatal = [
            line for line in text.splitlines() if "[FTL]" in line or "rror" in line
        ]
        lines = fatal or text.splitlines() or ["it said nothing"]
        return lines[-1].strip()


def find_nats_server() -> Path:
    """Return the newest-enough nats-server: of this environment, else on PATH.

    Raises `SettingsError` that names what to install.
    """
    found = []
    for name in (
        Path(sysconfig.get_path("scripts")) / "nats-server",
        shutil.which("nats-server"),
    ):
        if name is None or not Path(name).is_file():
            continue
        version = _version(str(name))
        if version >= OLDEST_SERVER:
            return Path(name)
        found.append(f"{name} is {'.'.join(map(str, version))}")
    raise SettingsError(
        field="nats-server",
        value=", ".join(found) or None,
        rule="install 2.12.1 or newer: pip install 'controlplane[embedded]'",
    )


@functools.cache
def _version(binary: str) -> tuple[int, ...]:
    output = subprocess.run(  # noqa: S603  # a nats-server that we found
        [binary, "--version"], capture_output=True, text=True, check=False
    ).stdout
    found = _VERSION.search(output)
    return tuple(map(int, found.groups())) if found else (0, 0, 0)


def _lock(directory: Path) -> int:
    """Take the store directory for one server; the descriptor holds the lock."""
    descriptor = os.open(directory / "nats-server.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        raise SettingsError(
            field="store_dir",
            value=str(directory),
            rule="it is in use by another running nats-server; stop that one first",
        ) from error
    return descriptor


def die_with(parent: int) -> Callable[[], None]:
    """Return what makes a forked child die when ``parent`` dies. Linux only."""
    if sys.platform != "linux":
        return lambda: None
    libc = ctypes.CDLL(None, use_errno=True)

    def in_child() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it died before we asked
            os._exit(1)

    return in_child


async def _end(process: subprocess.Popen[bytes]) -> None:
    for number in (signal.SIGCONT, signal.SIGTERM):
        if process.poll() is None:
            process.send_signal(number)
    try:
        await asyncio.to_thread(process.wait, _STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        await asyncio.to_thread(process.wait)
