"""The command line: ``controlplane COMMAND``. Everything that a shell should see.

Only here are logging and the event loop configured. A command prints its answer to
stdout, errors as one line to stderr, and ends with an exit code of `exits`.
"""

import sys

try:
    from .application import main
except KeyboardInterrupt:  # before there is anybody to take the signal
    sys.exit(130)

__all__ = ["main"]
