"""One exit for the whole program: the user's fault, ours with a log, an interrupt."""

from __future__ import annotations

import sys


def main() -> None:
    if sys.argv[1:] == ["--version"]:
        # `--version` needs nothing else, so nothing else is loaded.
        from windlass import __version__

        print(f"windlass {__version__}")
        return
    from windlass.interfaces.interrupts import quit_on_interrupt

    quit_on_interrupt()
    from windlass.app import compose
    from windlass.interfaces.exit import run

    code = run(sys.argv[1:], compose())
    # Only Python's shutdown is left: Ctrl-C may cut it short, but does not change the result of the command.
    quit_on_interrupt(code, b"")
    sys.exit(code)


if __name__ == "__main__":
    main()
