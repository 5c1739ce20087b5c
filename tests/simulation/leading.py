"""Nobody leads when its lease is over: by its own clock, whatever others do.

A process that was stopped needs a moment to notice, and no more than that.
"""

from __future__ import annotations

from .hosts import ProjectorHost
from .outcome import Violation

NOTICED_S = 1.0


class Leading:
    """See the module."""

    def look(self, host: ProjectorHost) -> None:
        """Look at a projector: "leads", if it does and must not."""
        service = host.service
        if service is None or not service.leading or not host.running:
            return
        over_at = max(service._lease.until, host.frozen_until)
        late_s = host.loop.time() - over_at
        if late_s > NOTICED_S:
            what = f"{host.name} leads, {late_s:.1f} s after its lease was over"
            raise Violation("leads", what)
