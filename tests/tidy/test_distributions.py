"""Our three import packages are ours: another project is called ``events`` too."""

from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

import events

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("package", ["events", "projections", "controlplane"])
def test_no_other_distribution_owns_our_import_packages(package):
    owners = set(packages_distributions().get(package, ()))
    assert owners <= {"controlplane"}, f"uninstall {owners - {'controlplane'}}"


def test_what_is_imported_as_events_is_ours():
    assert Path(events.__file__).parent == ROOT / "events"
