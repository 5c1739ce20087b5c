"""Parsing many files in a process in which other tests ran."""

import gc

import pytest


@pytest.fixture(autouse=True, scope="module")
def _no_collection_while_parsing():
    # CPython 3.11 fails a parse ("AST constructor recursion depth mismatch", its
    # issue 106905) in the midst of which a collection finalizes what an earlier
    # test left open.
    gc.collect()
    gc.disable()
    yield
    gc.enable()
