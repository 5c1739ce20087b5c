"""Plays the log back: the past, through the same fold as the present.

Not named after its verb: `controlplane.replay` is the public function.
"""

from .player import replay_log

__all__ = ["replay_log"]
