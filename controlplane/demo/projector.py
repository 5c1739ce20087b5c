"""A projector as a process of the demo: ``python -m controlplane.demo.projector``."""

from __future__ import annotations

import argparse
import asyncio
import sys

from controlplane.plane import connect
from controlplane.serving import Projector

from .process import announce, first_to_end, run_process


async def project(options: argparse.Namespace, stopping: asyncio.Event) -> None:
    """Fold and publish until told to stop. Raises what ends the projector."""
    async with (
        connect(name=options.name) as plane,
        Projector(plane, http=options.http, name=options.name) as projector,
    ):
        announce(name=options.name, url=projector.http_url or "")
        await first_to_end(stopping.wait(), projector.run())


def main() -> int:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description="A projector of the demo.")
    parser.add_argument("--name", required=True)
    parser.add_argument("--http", default="127.0.0.1:0", metavar="HOST:PORT")
    return run_process(project, parser.parse_args())


if __name__ == "__main__":
    sys.exit(main())
