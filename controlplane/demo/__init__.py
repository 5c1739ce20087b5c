"""The demo: a whole fleet on one machine, with kills, that must end in agreement."""

from .outcome import DemoEvent, DemoResult, Standing, Traffic
from .story import run_demo

__all__ = ["DemoEvent", "DemoResult", "Standing", "Traffic", "run_demo"]
