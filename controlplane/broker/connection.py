"""Keeps one link to the broker open, for ever, and says when it comes and goes.

The supervisor opens a link, gives it the core subscriptions, announces it, checks the
server, then pings it until it is lost; then again. A link that does not answer a ping
is lost, whatever its socket says: a stopped server keeps its sockets open.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Final, Protocol
from urllib.parse import ParseResult, unquote, urlparse

import nats.errors
from msgspec.structs import replace

from controlplane.broker import OLDEST_SERVER
from controlplane.broker.link import Link, LinkLostError, Login
from controlplane.broker.translate import nats_errors, refusal_of
from controlplane.broker.wire import decode_object, parse_status
from controlplane.errors import LogUnavailableError, SettingsError
from controlplane.logs import get_logger

_log: Final = get_logger("broker")

_RETRY_S: Final = 0.1
_REFUSED_RETRY_S: Final = 1.0
_CANCEL_AGAIN_S: Final = 0.2
_PING_EVERY_S: Final = 1.0
_PING_TIMEOUT_S: Final = 3.0
_CHECK_TIMEOUT_S: Final = 1.0
_JETSTREAM_OFF: Final = (10039, 10076)


class Attachment(Protocol):
    """What must be told to each new link, such as a core subscription."""

    async def attach(self, link: Link) -> None:
        """Make it known to ``link``."""
        ...

    async def close(self) -> None:
        """Attach to no further link."""
        ...


class Connection:
    """The link that there is right now, or the wait for the next one."""

    def __init__(
        self,
        servers: str | Sequence[str],
        *,
        name: str,
        connect_timeout_s: float,
        creds: str | None,
        tls: ssl.SSLContext | None,
    ) -> None:
        asked = servers.split(",") if isinstance(servers, str) else list(servers)
        self._login, self._servers = _login_and_servers(
            asked, Login(name=name, creds=creds, tls=tls)
        )
        self.url: Final = ",".join(self._servers)
        self.connect_timeout_s: Final = connect_timeout_s
        self.attachments: Final[dict[Attachment, None]] = {}
        self._listeners: Final[dict[object, Callable[[bool], None]]] = {}
        self._supervisor: asyncio.Task[None] | None = None
        self._stopped = False
        self._link: Link | None = None
        self._came: Final = asyncio.Event()
        self._judged: Final = asyncio.Event()
        self._refusal: SettingsError | None = None
        self._reason = "not started"
        self._opening: Link | None = None

    @property
    def link(self) -> Link | None:
        """The usable link, or None."""
        return self._link if self._link is not None and self._link.up else None

    # ---- lifetime --------------------------------------------------------------
    def start(self) -> None:
        """Begin to connect."""
        if self._supervisor is None:
            self._reason = "no answer"
            self._supervisor = asyncio.create_task(
                self._supervise(), name=f"nats connection {self._login.name}"
            )

    async def stop(self) -> None:
        """End the supervisor; who waits for a link is told."""
        self._stopped = True
        if self._supervisor is not None:
            supervisor, self._supervisor = self._supervisor, None
            # More than once: Python 3.11's wait_for, inside nats-py, may lose one.
            while not supervisor.done():
                supervisor.cancel()
                await asyncio.wait({supervisor}, timeout=_CANCEL_AGAIN_S)
            if not supervisor.cancelled():
                supervisor.result()
        self._reason = "stopped"
        self._came.set()
        self._judged.set()

    # ---- waiting ---------------------------------------------------------------
    async def require(self, doing: str, *, timeout_s: float | None = None) -> Link:
        """Return the link, waiting for one at most the connect timeout."""
        if (link := self.link) is not None:
            return link
        limit_s = self.connect_timeout_s if timeout_s is None else timeout_s
        try:
            async with asyncio.timeout(limit_s):
                return await self.next_link(doing)
        except TimeoutError as error:
            raise self.unavailable(doing, self._why()) from error

    async def next_link(self, doing: str) -> Link:
        """Return the link, waiting for one as long as it takes."""
        while (link := self.link) is None:
            if self._stopped or self._supervisor is None:
                raise self.unavailable(doing, self._reason)
            await self._came.wait()
            await asyncio.sleep(0)  # a link just lost is about to be taken down
        return link

    async def wait_judged(self, timeout_s: float) -> None:
        """Return when connected to a server that will do, else raise."""
        doing = "connecting"
        try:
            async with asyncio.timeout(timeout_s):
                await self._judged.wait()
        except TimeoutError as error:
            raise self.unavailable(doing, self._why()) from error
        if self._refusal is not None:
            raise self._refusal
        if self._stopped:
            raise self.unavailable(doing, self._reason)

    def _why(self) -> str:
        """What stands in the way of a connection right now."""
        failure = self._opening.last_failure if self._opening else None
        return str(failure or self._reason)

    def unavailable(self, doing: str, reason: str) -> LogUnavailableError:
        """Return the error for a call that found no broker."""
        return LogUnavailableError(url=self.url, doing=doing, reason=reason)

    def on_change(self, listener: Callable[[bool], None]) -> Callable[[], None]:
        """Call ``listener`` at each change until the returned function is called."""
        key = object()
        self._listeners[key] = listener

        def stop() -> None:
            self._listeners.pop(key, None)

        return stop

    # ---- the supervisor --------------------------------------------------------
    async def _supervise(self) -> None:
        while True:
            link = self._opening = Link()
            pause_s = _RETRY_S
            try:
                self._check_credentials()
                await self._open(link)
                await self._serve(link)
            except SettingsError as error:
                self._refuse(error)
                pause_s = _REFUSED_RETRY_S
            except (LogUnavailableError, LinkLostError, TimeoutError) as error:
                self._reason = getattr(error, "reason", None) or "connection lost"
            except Exception:  # noqa: BLE001  # connects for ever, whatever breaks
                self._reason = "our connection failed"
                _log.exception("nats connection failed unexpectedly", url=self.url)
            finally:
                self._went(link)
                await link.shut()
            await asyncio.sleep(pause_s)

    async def _open(self, link: Link) -> None:
        try:
            with nats_errors(url=self.url, doing="connecting"):
                await link.open(self._servers, self._login)
        except LogUnavailableError as error:
            refusal = refusal_of(error, url=self.url)
            raise refusal or error from error

    async def _serve(self, link: Link) -> None:
        await link.round_trip(_PING_TIMEOUT_S)
        link.check_hearing()
        await self._attach_all(link)
        self._arrived(link)
        await self._judge(link)
        while not link.lost.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(_PING_EVERY_S):
                    await link.lost.wait()
            await link.round_trip(_PING_TIMEOUT_S)

    async def _attach_all(self, link: Link) -> None:
        """Attach everything, also what comes while we are at it."""
        attached: set[Attachment] = set()
        while missing := [a for a in self.attachments if a not in attached]:
            for attachment in missing:
                await attachment.attach(link)
            attached.update(missing)
            await link.round_trip(_PING_TIMEOUT_S)

    async def _judge(self, link: Link) -> None:
        """Decide once per link whether the server will do; ask until it answers."""
        said = link.connected_server_version
        version = (said.major, said.minor, said.patch)
        if version < OLDEST_SERVER:
            self._refuse(
                SettingsError(
                    field="nats-server",
                    value=".".join(map(str, version)),
                    rule="at least {}.{}.{} is needed".format(*OLDEST_SERVER),
                )
            )
            return
        while (enabled := await _jetstream_enabled(link)) is None:
            await link.round_trip(_PING_TIMEOUT_S)
        if not enabled:
            self._refuse(
                SettingsError(
                    field="JetStream",
                    value="disabled",
                    rule="start nats-server with JetStream enabled for this account",
                )
            )
            return
        self._refusal = None
        self._judged.set()

    def _check_credentials(self) -> None:
        creds = self._login.creds
        if creds is None:
            return
        if not Path(creds).is_file():
            raise SettingsError(field="creds", value=creds, rule="a readable file")
        if find_spec("nkeys") is None:
            raise SettingsError(
                field="creds", value=creds, rule="install nkeys: pip install nkeys"
            )

    def _arrived(self, link: Link) -> None:
        self._link = link
        self._refusal = None
        self._judged.clear()
        self._came.set()
        self._tell(connected=True)

    def _went(self, link: Link) -> None:
        if self._link is not link:
            return
        self._link = None
        self._reason = "connection lost"
        self._came.clear()
        self._judged.clear()
        self._tell(connected=False)

    def _refuse(self, refusal: SettingsError) -> None:
        self._refusal = refusal
        self._reason = str(refusal)
        self._judged.set()

    def _tell(self, *, connected: bool) -> None:
        for listener in list(self._listeners.values()):
            listener(connected)


async def _jetstream_enabled(link: Link) -> bool | None:
    """Ask the server; None: it cannot say yet (a cluster without a leader)."""
    try:
        request = await link.ask("$JS.API.INFO", b"", timeout_s=_CHECK_TIMEOUT_S)
        answer = await request
    except TimeoutError:
        return None
    except nats.errors.Error as error:
        raise LinkLostError from error
    except SettingsError:  # this role may not ask
        return link.greeted_jetstream
    status = parse_status(answer.headers)
    if status is not None:
        return False
    code = decode_object(answer.payload).get("error", {}).get("err_code")
    if code is None:
        return True
    return False if code in _JETSTREAM_OFF else None


def _login_and_servers(asked: Sequence[str], login: Login) -> tuple[Login, list[str]]:
    """Take the credentials out of the URLs, so that they serve every server."""
    servers = []
    for text in asked:
        url = urlparse(text if "://" in text else f"nats://{text}")
        if url.username and url.password:
            login = replace(
                login, user=unquote(url.username), password=unquote(url.password)
            )
        elif url.username:
            login = replace(login, token=unquote(url.username))
        servers.append(_bare(url))
    return login, servers


def _bare(url: ParseResult) -> str:
    host = url.netloc.rpartition("@")[2]
    return f"{url.scheme}://{host}"
