"""A flow file as a value with line numbers. Only true, false and null are special; misleading values are refused."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field

from windlass.conversion import Path
from windlass.flow.problem import FlowError, FlowProblem
from windlass.model import Json
from windlass.strict_yaml import QUOTE, Node, YamlError, YamlScalar, YamlSequence, YamlTable, read

MAX_CHARS = 400_000
MAX_DEPTH = 24
SPECIAL: Mapping[str, Json] = {"true": True, "false": False, "null": None}


class Located(Struct, frozen=True):
    """The value of a document, and the line of every key and item in it."""

    value: Json
    where: str
    lines: Mapping[Path, int] = field(default_factory=dict)

    def line(self, path: Path) -> int:
        """The line of the path, or of its nearest parent in the file."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)


def load_strict(text: str, where: str) -> Located:
    """Raises FlowError with every problem found; a syntax error ends the search."""
    try:
        node = read(text, max_chars=MAX_CHARS, max_depth=MAX_DEPTH)
    except YamlError as error:
        raise FlowError(where, [FlowProblem(one.line, one.message, one.hint) for one in error.faults]) from None
    if node is None:
        raise FlowError(where, [FlowProblem(1, "the file is empty")])
    lines: dict[Path, int] = {}
    problems: list[FlowProblem] = []
    value = _value(node, (), lines, problems)
    if problems:
        raise FlowError(where, problems)
    return Located(value, where, lines)


def _value(node: Node, path: Path, lines: dict[Path, int], problems: list[FlowProblem]) -> Json:
    lines.setdefault(path, node.line)
    match node:
        case YamlTable():
            lines.update({(*path, key): line for key, line in node.lines.items()})
            return {key: _value(one, (*path, key), lines, problems) for key, one in node.items.items()}
        case YamlSequence():
            return [_value(one, (*path, index), lines, problems) for index, one in enumerate(node.items)]
        case YamlScalar(text=text, quoted=False):
            problems.extend(_misleading_values(text, node.line))
            return SPECIAL.get(text, text)
        case YamlScalar():
            return node.text


def _misleading_values(text: str, line: int) -> list[FlowProblem]:
    if not text:
        return [FlowProblem(line, "a value is missing here", 'write null or "" if that is meant')]
    if "?" in text or ": " in text:
        flat = " ".join(text.split())
        short = flat if len(flat) <= 40 else flat[:37] + "..."
        return [FlowProblem(line, f"'{short}' has '?' or ': ' in it", QUOTE)]
    return []
