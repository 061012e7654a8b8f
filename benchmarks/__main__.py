"""Measures Windlass beside what it is compared with. usage: python -m benchmarks [--json] [--check] [GROUP]..."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator

from benchmarks import driving, journal, parsing, scale, scheduling, startup, terminal, workspace
from benchmarks.figures import Figure, as_json, table

GROUPS: dict[str, Callable[[int], Iterator[Figure]]] = {
    "journal": journal.figures,
    "startup": startup.figures,
    "driving": driving.figures,
    "scheduling": scheduling.figures,
    "workspace": workspace.figures,
    "parsing": parsing.figures,
    "terminal": terminal.figures,
    "scale": scale.figures,
}


def main() -> int:
    options = _options()
    # Without bytecode every start would compile Windlass anew, and that is what would be measured.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    found = [figure for name in options.groups or GROUPS for figure in _measured(name, options.rounds)]
    print(as_json(found) if options.json else table(found))
    return int(options.check and not all(figure.ok for figure in found))


def _measured(name: str, rounds: int) -> list[Figure]:
    print(f"measuring: {name}", file=sys.stderr)
    return list(GROUPS[name](rounds))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks", description=__doc__)
    parser.add_argument("groups", nargs="*", metavar="GROUP", choices=[[], *GROUPS], help=", ".join(GROUPS))
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="turns of each measurement; the best counts")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--check", action="store_true", help="exit 1 when a limit is not met")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
