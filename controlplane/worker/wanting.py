"""What a worker's caller wants, command by command."""

from __future__ import annotations

from .declared import Declared
from .signals import Command, LoadAdapter, SetStatus, UnloadAdapter, Update


def wanted_after(wanted: Declared, command: Command) -> Declared:
    """What is wanted after one more command."""
    match command:
        case SetStatus():
            return wanted.with_fields(status=command.status)
        case Update():
            return wanted.with_fields(
                address=command.address,
                capacity=command.capacity,
                labels=command.labels,
            )
        case LoadAdapter():
            adapters = wanted.adapters | {command.adapter}
            return wanted.with_fields(adapters=adapters)
        case UnloadAdapter():
            adapters = wanted.adapters - {command.adapter}
            return wanted.with_fields(adapters=adapters)
