"""The problems of a flow file with their lines, all at once."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from windlass.errors import UserError


class FlowProblem(Struct, frozen=True, order=True):
    line: int
    message: str
    hint: str = ""

    def at(self, where: str) -> str:
        hint = f" ({self.hint})" if self.hint else ""
        # a quoted text of the file may contain terminal escapes
        return printable(f"{where}:{self.line}: {self.message}{hint}")


def printable(text: str) -> str:
    return "".join(char if char.isprintable() else " " for char in text)


class FlowError(UserError):
    """The flow file cannot be used; the error names every problem with its line."""

    def __init__(self, where: str, problems: Iterable[FlowProblem]) -> None:
        self.where = where
        self.problems = tuple(sorted(set(problems)))
        super().__init__(
            "\n".join(problem.at(where) for problem in self.problems),
            hint=f"fix these lines, then try `windlass flow check {where}`",
        )
