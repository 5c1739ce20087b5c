"""Write the screens as they are now: ``python -m tests.golden.cli.write``.

What people read may change; look at the difference before it is committed.
"""

from tests.golden.cli.screens import HERE, SCREENS, screen

if __name__ == "__main__":
    for name in SCREENS:
        (HERE / f"{name}.txt").write_text(screen(name), encoding="utf-8")
