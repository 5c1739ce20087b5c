"""Verifies that everybody agrees: the log, the view, its snapshots, every router."""

from .claims import Claim
from .findings import Count, Finding, Verdict, Verification
from .gathering import Gathered, gather
from .judge import Judge
from .verification import verify

__all__ = [
    "Claim",
    "Count",
    "Finding",
    "Gathered",
    "Judge",
    "Verdict",
    "Verification",
    "gather",
    "verify",
]
