"""The product's pure functions as they were written, whatever a mutant makes of them.

Deliberate faults are patched into the product's modules while a run goes on. What is
true must not change with them, so the oracle folds, derives and hashes with a copy of
``projections`` of its own: the same files, loaded once more under another name. Its
classes are not the product's; the two meet as bytes, digests and fields. ``events`` is
shared: it is the language that both speak.
"""

import importlib.util
import sys
from types import ModuleType

import projections


def private_copy(name: str) -> ModuleType:
    """``projections`` loaded once more, as the module ``name``."""
    loaded = sys.modules.get(name)
    if loaded is not None:
        return loaded
    folders = list(projections.__path__)
    spec = importlib.util.spec_from_file_location(
        name, projections.__file__, submodule_search_locations=folders
    )
    if spec is None or spec.loader is None:
        raise AssertionError(projections.__file__)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


PRISTINE = private_copy("pristine_projections")
"""Never patched: capture nothing of the product's own modules for the oracle."""
