"""What claimers are about to claim on a host: said beside the log, on core NATS.

A batch waits in the broker for its turn, a tenth of a second when fifty claim at once,
and the log shows nothing of it before it is decided. So whoever is about to claim
blocks says so, and keeps off what others say. That is a courtesy and no lock: it may be
lost, late, stale or a lie. The log alone decides, and where the only room is what
others intend to have, that is tried all the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated, Final

import msgspec

from controlplane.broker import Broker
from controlplane.errors import SettingsError
from controlplane.identifiers import new_uuid7
from controlplane.logs import get_logger
from controlplane.topology import Names
from events import ControlPlaneError, Host, read_or_none
from projections import PORT_MAX, PORT_MIN, PORTS_MAX, PortBlock

from .watching import HostWatch

LISTENS_S: Final = 10.0
"""So long after a claim of blocks others are listened to on that host."""
HOSTS_MAX: Final = 64
"""So many hosts are listened to at once; of more nothing is heard."""
BLOCKS_MAX: Final = 64
"""An intent of more blocks is neither said nor believed."""
WAITING_MAX: Final = 1024
"""So many intents wait to be read; beyond that the oldest are dropped."""

_log = get_logger("ports")
_Start = Annotated[int, msgspec.Meta(ge=PORT_MIN, le=PORT_MAX)]
_Size = Annotated[int, msgspec.Meta(ge=1, le=PORTS_MAX)]
_Blocks = Annotated[
    tuple[tuple[_Start, _Size], ...], msgspec.Meta(max_length=BLOCKS_MAX)
]


class Intent(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Somebody is about to claim blocks of the host that the subject names."""

    by: str
    """The claimer, by a name that no other has."""
    blocks: _Blocks
    """The first port and the size of each."""


_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(Intent)


def encode_intent(intent: Intent) -> bytes:
    """The intent as msgpack."""
    return _ENCODER.encode(intent)


def decode_intent(payload: bytes) -> Intent | None:
    """The intent in ``payload``; None: it is none, or of more than a life may have."""
    intent = read_or_none(_DECODER, payload)
    if intent is None or sum(size for _, size in intent.blocks) > PORTS_MAX:
        return None
    return intent


class Intents:
    """Says what this process is about to claim, and hears what others are.

    Nothing here raises, and nobody waits for an answer.
    """

    def __init__(self, broker: Broker, names: Names) -> None:
        """Nothing was said yet, and nobody is listened to."""
        self._broker, self._names = broker, names
        self._by: Final = new_uuid7()
        self._ears: Final[dict[Host, _Ear]] = {}
        self._silent = False

    async def say(self, watch: HostWatch, blocks: Sequence[PortBlock]) -> None:
        """Tell whoever listens that ``blocks`` are about to be claimed; listen on.

        Of a lone port nothing is said: to lose it is as cheap.
        """
        if sum(block.size for block in blocks) == 1:
            return
        self.listen(watch)
        if len(blocks) > BLOCKS_MAX:
            return
        pairs = tuple((block.start, block.size) for block in blocks)
        payload = encode_intent(Intent(by=self._by, blocks=pairs))
        with suppress(ControlPlaneError):
            await self._broker.publish(self._names.intent(watch.host), payload)

    def listen(self, watch: HostWatch) -> None:
        """From now on tell ``watch`` what others say of its host, in the background.

        Until `LISTENS_S` after the last call.
        """
        ear = self._ears.get(watch.host)
        if ear is not None and ear.stays():
            return
        if self._silent or len(self._ears) >= HOSTS_MAX:
            return
        ear = self._ears[watch.host] = _Ear()
        ear.task = asyncio.create_task(self._hear(watch, ear))

    async def _hear(self, watch: HostWatch, ear: _Ear) -> None:
        try:
            async with asyncio.timeout(LISTENS_S) as ear.patience:
                await self._tell(watch)
        except TimeoutError:
            pass
        except ControlPlaneError as error:
            # Whoever may not listen need not ask again; a lost broker comes back.
            self._silent = self._silent or isinstance(error, SettingsError)
            _log.info("not heard what others are about to claim", reason=str(error))
        finally:
            if self._ears.get(watch.host) is ear:
                del self._ears[watch.host]

    async def _tell(self, watch: HostWatch) -> None:
        subject = self._names.intent(watch.host)
        subscription = await self._broker.subscribe(subject, limit=WAITING_MAX)
        try:
            async for message in subscription:
                intent = decode_intent(message.payload)
                if intent is not None and intent.by != self._by:
                    watch.intended(intent.blocks)
        finally:
            with suppress(ControlPlaneError):
                await subscription.close()

    async def close(self, within_s: float) -> None:
        """Listen no more; what is not over after so long ends by itself."""
        self._silent = True
        tasks = [ear.task for ear in self._ears.values() if ear.task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=within_s)


class _Ear:
    """Listening to one host, for as long as somebody claims there."""

    def __init__(self) -> None:
        self.task: asyncio.Task[None] | None = None
        self.patience: asyncio.Timeout | None = None

    def stays(self) -> bool:
        """Listen for longer; False: it is over."""
        if self.patience is None:
            return True  # it is about to begin
        if self.patience.expired():
            return False
        self.patience.reschedule(asyncio.get_running_loop().time() + LISTENS_S)
        return True
