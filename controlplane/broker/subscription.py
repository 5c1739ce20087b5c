"""A core subscription that outlives links."""

from __future__ import annotations

from typing import Final

from controlplane.broker import CoreMessage
from controlplane.broker.connection import Attachment
from controlplane.broker.link import Link
from controlplane.broker.mailbox import Mailbox
from controlplane.broker.wire import RawMessage, parse_headers


class CoreSubscription(Mailbox):
    """A mailbox for ``subject`` that every new link is told of."""

    def __init__(
        self, subject: str, *, limit: int, attachments: dict[Attachment, None]
    ) -> None:
        """Enter itself into ``attachments``, which every new link is given."""
        super().__init__(limit=limit)
        self.subject: Final = subject
        self._attachments: Final = attachments
        self._place: tuple[Link, int] | None = None
        attachments[self] = None

    async def attach(self, link: Link) -> None:
        """Subscribe on ``link``."""
        if not self.closed:
            self._place = (link, await link.listen(self.subject, self._take))

    async def close(self) -> None:
        """Unsubscribe; a pending iteration ends. Idempotent."""
        self.shut()
        self._attachments.pop(self, None)
        if self._place is not None:
            (link, sid), self._place = self._place, None
            await link.forget(sid)

    def _take(self, raw: RawMessage) -> None:
        self.put(
            CoreMessage(
                subject=raw.subject.decode(),
                payload=raw.payload,
                headers=parse_headers(raw.headers),
            )
        )
