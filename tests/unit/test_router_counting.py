"""The metrics of a router that is started again."""

from prometheus_client import CollectorRegistry

from controlplane.router.core import Core
from controlplane.router.counting import Counting
from controlplane.telemetry import RouterMetrics


def test_a_view_started_again_goes_on_counting():
    """Its core begins at nothing; what was counted stays."""
    metrics = RouterMetrics(CollectorRegistry())
    counting = Counting(metrics)
    for duplicates in (50, 3, 70):
        core = Core(behind_max_s=1.0, now=0.0)
        core.duplicates = duplicates
        counting.show(core, 0.0)
        counting.show(core, 0.0)
    assert metrics.duplicates_compared._value.get() == 123
