"""``import controlplane`` is cheap, and whoever asks finds every public name there."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import controlplane as cp

FACE = Path(cp.__file__)
ALONE = """
import importlib, os, sys
import controlplane
assert not [n for n in sys.modules if n.split(".")[0] in ("events", "projections")]
for home in dict.fromkeys(module for module, _ in controlplane._HOMES.values()):
    child = os.fork()
    if child == 0:
        importlib.import_module(home, "controlplane")
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0, home
from controlplane import *
assert replay([]).revision == 0
"""


def for_the_type_checker():
    """Where a type checker, and who reads the file, finds each name."""
    tree = ast.parse(FACE.read_text(encoding="utf-8"))
    (guarded,) = (
        node
        for node in tree.body
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name)
    )
    return {
        alias.asname or alias.name: ("." * node.level + node.module, alias.name)
        for node in guarded.body
        for alias in node.names
    }


def test_what_is_looked_up_is_what_a_type_checker_sees():
    assert for_the_type_checker() == cp._HOMES
    assert sorted(cp._HOMES) == cp.__all__


def test_no_public_name_is_that_of_a_module():
    """Importing the module would put it in the name's place."""
    modules = {path.stem for path in FACE.parent.iterdir()}
    assert not modules & set(cp.__all__)


def test_nothing_is_imported_before_it_is_asked_for_and_each_home_by_itself():
    subprocess.run([sys.executable, "-c", ALONE], check=True)


def test_names_are_listed_and_kept():
    assert set(cp.__all__) <= set(dir(cp))
    assert cp.Settings is vars(cp)["Settings"]


def test_a_module_is_there_without_importing_it():
    assert cp.settings.Settings is cp.Settings
    assert cp.archive.read_archive is cp.read_archive


@pytest.mark.parametrize("name", ["Setings", "settings.x", "_x", "__wrapped__", ""])
def test_a_name_that_is_not_there_is_said(name):
    assert not hasattr(cp, name)
    with pytest.raises(AttributeError, match="module 'controlplane' has no attribute"):
        getattr(cp, name)
