"""How a child is: whether it is healthy, and how much it has to do."""

from __future__ import annotations

from typing import Final

from projections import PortBlock

from .asking import get, knock
from .engine_metrics import read_load
from .plan import NONE, TCP
from .steps import Answered, Load

LOOPBACK: Final = "127.0.0.1"


async def probed(health: str, http: PortBlock, timeout_s: float) -> Answered:
    """Ask once for ``health``, as an `Engine` has it, at its port ``http``."""
    try:
        if health == NONE:
            return Answered(healthy=True, said="it runs")
        if health == TCP:
            return await _accepts(http, timeout_s)
        answer = await get(health, timeout_s)
        return Answered(healthy=answer.good, said=str(answer))
    except TimeoutError:
        said = f"nothing in {timeout_s:g} s"
    except OSError as error:
        said = f"no connection ({error})"
    return Answered(healthy=False, said=said)


async def _accepts(http: PortBlock, timeout_s: float) -> Answered:
    port = http.start
    try:
        await knock(LOOPBACK, port, timeout_s)
    except OSError:  # it may listen where others reach it, and only there
        await knock(http.host, port, timeout_s)
    return Answered(healthy=True, said=f"port {port} accepts connections")


async def scraped(url: str, timeout_s: float) -> Load:
    """The load that the page at ``url`` tells now.

    Raises OSError for no page, ValueError for one that tells no load.
    """
    page = await get(url, timeout_s)
    if not page.good:
        raise ConnectionError(str(page))
    load = read_load(page.body.decode("utf-8", "replace"))
    if load is None:
        message = "it tells no load by a name of vLLM or SGLang"
        raise ValueError(message)
    return load
