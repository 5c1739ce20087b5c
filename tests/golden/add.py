"""Write the golden files that are missing; never touch one that is there."""

import sys

from tests.golden.files import GOLDEN, wanted

if __name__ == "__main__":
    for path, content in wanted().items():
        if not path.exists():
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(content)
            sys.stdout.write(f"added {path.relative_to(GOLDEN)}\n")
