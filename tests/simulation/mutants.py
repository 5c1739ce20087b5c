"""Every deliberate fault, by room: `make mutants` puts each into the product.

What each is caught by is printed as a table; `special` has the plans that lead to the
rare ones.
"""

from __future__ import annotations

from typing import Final

from . import (
    mutants_fold,
    mutants_lease,
    mutants_log,
    mutants_ports,
    mutants_projector,
    mutants_router,
)
from .mutating import Mutant

MUTANTS: Final[tuple[Mutant, ...]] = (
    *mutants_log.MUTANTS,
    *mutants_fold.MUTANTS,
    *mutants_projector.MUTANTS,
    *mutants_lease.MUTANTS,
    *mutants_ports.MUTANTS,
    *mutants_router.MUTANTS,
)
