"""The product's pure functions as they were written, whatever a mutant makes of them.

Deliberate faults are patched into the product's modules while a run goes on. What is
true must not change with them, so the oracle folds, derives and hashes with a copy of
``projections`` of its own: the same files, loaded once more under another name. Its
classes are not the product's; the two meet as bytes, digests and fields. The events
themselves are shared, they are the language that both speak, but not their decoding.
"""

import importlib.util
import sys
from types import ModuleType
from typing import get_args

import msgspec

import projections
from events import AnyEvent, codec
from events.upcast import UpcasterChain


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


def private_codec(without=()):
    """``events.codec`` loaded once more; of a version that lacks some kinds of event.

    It stays out of ``sys.modules``, where whoever patches a version looks.
    """
    spec = importlib.util.spec_from_file_location("events.codec", codec.__file__)
    if spec is None or spec.loader is None:
        raise AssertionError(codec.__file__)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    kinds = [kind for kind in get_args(AnyEvent) if kind not in without]
    union = kinds[0]
    for kind in kinds[1:]:
        union = union | kind
    module.EVENT_TYPES = {str(k.__struct_config__.tag): k for k in kinds}
    module.CHAIN = UpcasterChain(module.UPCASTERS, module.EVENT_TYPES)
    module._EVENT = msgspec.json.Decoder(union)
    return module


CODEC = private_codec()
"""Reads a stored message as the product of today does, in whose process ever."""
