"""One exit for the whole program: the user's fault, ours with a log, an interrupt."""

from __future__ import annotations

import sys


def main() -> None:
    if sys.argv[1:] == ["--version"]:
        # Nothing else is needed for it, so nothing else is loaded.
        from windlass import __version__

        print(f"windlass {__version__}")
        return
    from windlass.interfaces.exit import run

    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
