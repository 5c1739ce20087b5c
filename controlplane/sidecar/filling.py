"""``{name}`` in a command or a URL: what it stands for, and what is left alone."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Final

from controlplane.errors import SettingsError

NAME: Final = r"[A-Za-z][A-Za-z0-9_-]*"
_PLACE: Final = re.compile(rf"\{{\{{({NAME})\}}\}}|(?<!\$)\{{({NAME})\}}")
"""Nothing but a name between the braces: JSON in an argument stays as it is. And no
dollar before them: ``${HOME}`` is for a shell."""


def fill(text: str, values: Mapping[str, str]) -> str:
    """``text`` with each ``{name}`` replaced; ``{{name}}`` becomes ``{name}``.

    Every name has to be among ``values``: see `check_places`.
    """

    def value(place: re.Match[str]) -> str:
        return f"{{{place[1]}}}" if place[1] else values[place[2]]

    return _PLACE.sub(value, text)


def check_places(field: str, text: str, known: Collection[str]) -> str:
    """Return ``text`` if each ``{name}`` in it is ``known``, else raise.

    Raises `SettingsError` that names the first that is not.
    """
    for place in _PLACE.finditer(text):
        if place[2] and place[2] not in known:
            rule = (
                f"{{{place[2]}}} stands for nothing; known are "
                f"{', '.join(f'{{{name}}}' for name in sorted(known))}. Claim it with "
                f"--ports {place[2]}=1, or write {{{{{place[2]}}}}} for the text itself"
            )
            raise SettingsError(field=field, value=text, rule=rule)
    return text
