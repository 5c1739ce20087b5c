"""Replays the log: the past, through the same fold as the present."""

from .player import replay_log

__all__ = ["replay_log"]
