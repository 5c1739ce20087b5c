"""The values that labels of metrics take: what is counted apart."""

from __future__ import annotations

from typing import Final

ANOMALY_KINDS: Final = ("stale", "unknown", "undecodable", "no_op")
NOTICE_KINDS: Final = (
    "unknown",
    "expired",
    "superseded",
    "quarantined",
    "drain_requested",
)
VIEW_SOURCES: Final = ("none", "checkpoint", "live")
REFUSALS: Final = ("conflict", "refused", "outcome_unknown")
EPOCH_REASONS: Final = (
    "first",
    "fold_version",
    "rebuild",
    "log_replaced",
    "log_lost_tail",
    "log_forked",
    "view_lost",
    "foreign",
    "divergence",
)
HISTORY_LOSSES: Final = (
    "log_lost_tail",
    "log_forked",
    "log_replaced",
    "told_by_worker",
)
RESYNC_REASONS: Final = ("start", "epoch", "gap", "dropped", "divergence", "history")
PICK_FAILURES: Final = ("model_not_found", "model_unavailable", "stale")
REREGISTRATION_REASONS: Final = ("unknown", "expired")
LOAD_OUTCOMES: Final = ("taken", "other_life", "unreadable")
