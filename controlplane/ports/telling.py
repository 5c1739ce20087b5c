"""What a caller who knows blocks, and no subjects, is told when something fails."""

from __future__ import annotations

from collections.abc import Sequence

from controlplane.errors import AppendConflictError, AppendOutcomeUnknownError
from events import port_subject
from projections import Held, HostPorts, PortBlock, Resting, Unreadable


def span(block: PortBlock) -> str:
    """Its ports and their host."""
    last = block.start + block.size - 1
    ports = f"port {block.start}" if block.size == 1 else f"ports {block.start}-{last}"
    return f"{ports} of {block.host}"


def refused(
    known: HostPorts, block: PortBlock, reason: str, next_step: str
) -> AppendConflictError:
    """``block`` is not released, for that ``reason``."""
    return AppendConflictError(
        subject=port_subject(block.host, block.start),
        expected=None,
        last=known.expected(block.start),
        code=0,
        reason=reason,
        said=f"{span(block)} not released: {reason}; {next_step}",
    )


def claim_unknown(
    blocks: Sequence[PortBlock], error: AppendOutcomeUnknownError
) -> AppendOutcomeUnknownError:
    """Whether ``blocks`` were claimed nobody knows yet; they are being settled."""
    return AppendOutcomeUnknownError(
        subject=error.subject,
        reason=error.reason,
        said=f"it is not known whether {', '.join(map(span, blocks))} were claimed "
        f"({error.reason}); claim again: what landed of this claim is released in time",
    )


def release_unknown(
    block: PortBlock, error: AppendOutcomeUnknownError
) -> AppendOutcomeUnknownError:
    """Whether ``block`` was released nobody knows yet."""
    return AppendOutcomeUnknownError(
        subject=error.subject,
        reason=error.reason,
        said=f"it is not known whether {span(block)} were released ({error.reason}); "
        "release again: twice is fine",
    )


def what_became(known: HostPorts, block: PortBlock) -> str:
    """Why a claim does not hold ``block``, as far as the log tells."""
    states = [known.ports.get(port) for port in block]
    for state in states:
        if isinstance(state, Resting) and state.claim_id == block.claim_id:
            how = {"expired": "its life expired", "released": "it was released"}
            return how.get(state.cause, f"it ended as {state.cause}")
    for state in states:
        if isinstance(state, Held):
            worker = f"{state.owner.namespace}/{state.owner.worker_id}"
            return f"{worker} holds port {state.port} by claim {state.claim_id}"
    if any(isinstance(state, Unreadable) for state in states):
        return "a record there cannot be read"
    if all(state is None for state in states):
        return "nobody ever claimed a port of it"
    return "other claims held its ports last, and let them go"
