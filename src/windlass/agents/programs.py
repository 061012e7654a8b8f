"""How our own small programs are started: in an interpreter that loads next to nothing."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent


def program(entry: str, *args: str) -> tuple[str, ...]:
    """The command for `entry`, module.function of this folder."""
    module, _, function = entry.partition(".")
    # As a script it would be compiled at every start. Its path is there for those who look at `ps`.
    code = (
        "import sys; sys.argv.pop(0); sys.path.append(sys.argv[0].rsplit('/', 3)[0]); "
        f"from windlass.agents import {module}; sys.exit({module}.{function}())"
    )
    return (sys.executable, "-I", "-S", "-c", code, str(HERE / f"{module}.py"), *args)
