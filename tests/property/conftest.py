"""Hypothesis: bounded and repeatable by default; ``HYPOTHESIS_PROFILE=long`` digs."""

import os

from hypothesis import HealthCheck, settings

_SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]
settings.register_profile(
    "ci", max_examples=80, derandomize=True, deadline=None, suppress_health_check=_SLOW
)
settings.register_profile(
    "long", max_examples=3000, deadline=None, suppress_health_check=_SLOW
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))
