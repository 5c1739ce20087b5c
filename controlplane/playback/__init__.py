"""Plays the log back: the past, through the same fold as the present.

Not named after its verb: `controlplane.replay` is the public function.
"""

from .player import replay_log
from .ports import PortsThen, replay_ports

__all__ = ["PortsThen", "replay_log", "replay_ports"]
