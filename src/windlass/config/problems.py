"""Problems of settings, with the place, so that a person can find and fix them."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from windlass.config.lines import Lines, line_of
from windlass.conversion import Fault
from windlass.errors import UserError


class ConfigError(UserError):
    """Names all problems of the settings at once, each with file, line and key."""

    def __init__(self, problems: Sequence[ConfigProblem]) -> None:
        self.problems = tuple(problems)
        count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
        lines = "\n".join(f"  {problem}" for problem in problems)
        super().__init__(f"the configuration has {count}:\n{lines}", hint="correct the lines named above")


class ConfigProblem(Struct, frozen=True):
    file: str
    line: int
    """0 for a place without lines, as the command line."""
    key: str
    message: str

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        return f"{place}: {self.key}: {self.message}" if self.key else f"{place}: {self.message}"


WORDS = {"table": "must be a table", "text": "must be a text in quotes"}
"""Messages with the words of TOML."""


def problem_of(fault: Fault, file: str, lines: Lines | None) -> ConfigProblem:
    path = tuple(str(part) for part in fault.path)
    hint = f"; {fault.hint}" if fault.code == "unknown" else ""
    message = WORDS.get(fault.code, f"{fault.message}{hint}")
    return ConfigProblem(file, line_of(lines, path) if lines is not None else 0, ".".join(path), message)
