"""The command line: ``controlplane COMMAND``. Everything that a shell should see.

Only here are logging and the event loop configured. A command prints its answer to
stdout, errors as one line to stderr, and ends with an exit code of `exits`.
"""

from .application import main

__all__ = ["main"]
