"""Look for seeds that break the product: ``python -m tests.simulation COMMAND``.

Exit codes: 0 all hold, 1 something is broken (or a mutant survives), 64 called
wrongly, 130 and 143 stopped by a signal before there was an answer.
"""

import sys

from tests.simulation.stopping import STOP

if __name__ == "__main__":
    # Importing the product takes a second, in which one may be told to stop as well.
    with STOP:
        from tests.simulation.commands import main

        sys.exit(main(sys.argv[1:]))
