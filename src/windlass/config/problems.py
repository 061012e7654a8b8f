"""What is wrong with a setting, said so that a person can find and mend it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, get_args, get_origin

from msgspec import Struct
from pydantic import BaseModel, ValidationError

from windlass.config.lines import Lines, line_of
from windlass.errors import UserError, near


class ConfigError(UserError):
    """Settings that cannot be used: every problem at once, each with file, line and key."""

    def __init__(self, problems: Sequence[ConfigProblem]) -> None:
        self.problems = tuple(problems)
        count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
        lines = "\n".join(f"  {problem}" for problem in problems)
        super().__init__(f"the configuration has {count}:\n{lines}", hint="correct the lines named above")


class ConfigProblem(Struct, frozen=True):
    file: str
    line: int
    """0: the place has no lines, as the command line."""
    key: str
    message: str

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        return f"{place}: {self.key}: {self.message}" if self.key else f"{place}: {self.message}"


WORDS = {
    "bool_type": "must be true or false",
    "dict_type": "must be a table",
    "finite_number": "must be a finite number",
    "float_type": "must be a number",
    "int_type": "must be a whole number",
    "model_type": "must be a table",
    "string_type": "must be a text in quotes",
    "tuple_type": "must be a list",
}


def problems_of(
    error: ValidationError, model: type[BaseModel], file: str, lines: Lines | None
) -> Iterator[ConfigProblem]:
    for one in error.errors(include_url=False):
        path = tuple(str(part) for part in one["loc"] if part != "[key]")
        line = line_of(lines, path) if lines is not None else 0
        yield ConfigProblem(file, line, ".".join(path), _message(one, model, path))


def _message(error: Any, model: type[BaseModel], path: tuple[str, ...]) -> str:
    known = known_keys(model, path[:-1])
    unknown = error["type"] == "extra_forbidden" or (error["type"] == "dict_type" and known and path[-1] not in known)
    if unknown:
        return f"unknown key '{path[-1]}'; {near(path[-1], known)}"
    if error["type"] == "greater_than_equal":
        least = error["ctx"]["ge"]
        return f"must not be negative, it is {error['input']}" if least == 0 else f"must be at least {least}"
    if error["type"] == "value_error":
        return str(error["ctx"]["error"])
    return WORDS.get(error["type"], str(error["msg"]))


def known_keys(model: type[BaseModel], path: tuple[str, ...]) -> set[str]:
    """The keys of the table at `path`; none where a table may have any."""
    kind: Any = model
    for part in path:
        if get_origin(kind) is dict:
            kind = get_args(kind)[1]
        elif isinstance(kind, type) and issubclass(kind, BaseModel) and part in kind.model_fields:
            kind = kind.model_fields[part].annotation
        else:
            return set()
    if not (isinstance(kind, type) and issubclass(kind, BaseModel)):
        return set()
    return {field.alias or name for name, field in kind.model_fields.items()}
