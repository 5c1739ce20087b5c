"""Why epochs begin: not by a divergence, where nothing can make one.

Folds are equal, so what one leader publishes is what any other would have. Only who
loses history, plants messages, trims them unread or runs two versions may find another
delta in the place of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .outcome import Violation
from .plan import BrokerRestart, LogRecreated, Plant, Step, TrimView, Upgrade

if TYPE_CHECKING:
    from .world import World


class Numbering:
    """See the module."""

    def __init__(self, world: World) -> None:
        self._is_sure = not any(_may_diverge(step) for step in world.plan.steps)
        self._is_sure = (
            self._is_sure and world.settings.view_max_age_s > world.plan.end_s
        )

    def began(self, reason: str) -> None:
        """An epoch began for this reason."""
        if self._is_sure and reason in ("divergence", "foreign"):
            raise Violation("diverged", f"an epoch began by a {reason} of equal folds")


def _may_diverge(step: Step) -> bool:
    match step:
        case BrokerRestart():
            return bool(step.lose_log or step.lose_view)
        case Upgrade():
            return step.version == "old"
        case Plant():
            return step.where == "view"
    return isinstance(step, LogRecreated | TrimView)
