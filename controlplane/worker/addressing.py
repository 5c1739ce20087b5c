"""Addresses with names in them, as ``http://{host}:{http}``, until ports are claimed.

Which port a worker serves on may be known only when it holds it. So the address of a
spec may name blocks of its own ports; each name becomes the first port of its block,
and ``{host}`` the host that the blocks are on. What is registered has no names.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from events import InvalidIdentityError, check_address
from projections import PortBlock, Want

HOST: Final = "host"
_NAME: Final = re.compile(r"\{([^{}]*)\}")
_ANY_PORT: Final = "1"


def check_address_with_names(value: str) -> str:
    """Return ``value`` if it is an address once its names are filled in, else raise."""
    if not isinstance(value, str):
        return check_address(value)
    try:
        check_address(_NAME.sub(_ANY_PORT, value))
    except InvalidIdentityError as error:
        raise InvalidIdentityError(
            field=error.field, value=value, rule=error.rule
        ) from error
    return value


def check_names(address: str, wants: Sequence[Want]) -> None:
    """Raise `InvalidIdentityError` for a name in ``address`` that no port will have."""
    known = {want.name for want in wants}
    if known:
        known.add(HOST)
    unknown = [name for name in _NAME.findall(address) if name not in known]
    if unknown:
        rule = f"{{{unknown[0]}}} is none of the ports that are claimed: "
        rule += ", ".join(sorted(known)) or "there are none"
        raise InvalidIdentityError(field="address", value=address, rule=rule)


def placed(address: str, wants: Sequence[Want], blocks: Sequence[PortBlock]) -> str:
    """``address`` with the ports of ``blocks``, one for each want, in their order."""
    if not blocks or not _NAME.search(address):
        return address
    values = {
        want.name: str(block.start) for want, block in zip(wants, blocks, strict=True)
    }
    host = blocks[0].host
    values.setdefault(HOST, f"[{host}]" if ":" in host else host)
    return _NAME.sub(lambda found: values[found[1]], address)
