"""Command lines for Windlass's own small programs: an interpreter that loads almost nothing."""

from __future__ import annotations

import sys
from pathlib import Path

import windlass

PACKAGE = Path(windlass.__file__).parent


def program(entry: str, *args: str) -> tuple[str, ...]:
    """The command line for `entry`, a dotted function below `windlass`, such as `agents.process.supervisor.serve`."""
    module, _, function = entry.rpartition(".")
    package, _, name = module.rpartition(".")
    script = PACKAGE.joinpath(*module.split(".")).with_suffix(".py")
    # A script would be compiled at every start. Its path is an argument for people who read `ps`.
    code = (
        f"import sys; sys.argv.pop(0); sys.path.append(sys.argv[0].rsplit('/', {module.count('.') + 2})[0]); "
        f"from windlass.{package} import {name}; sys.exit({name}.{function}())"
    )
    return (sys.executable, "-I", "-S", "-c", code, str(script), *args)
