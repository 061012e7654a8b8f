"""The types of the values in settings, with their parsers."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import PurePosixPath
from typing import Annotated, Any, TypeAlias

from msgspec import Meta

from windlass.conversion import After, Before, Parser
from windlass.model import is_id, is_inner_path

DURATION = re.compile(r"(?:[0-9]+(?:\.[0-9]+)?(?:ms|s|m|h|d))+")
DURATION_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d)")
SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
LONGEST_S = 366 * 86400.0
SHELL_OPERATORS = frozenset({"&&", "||", "|", ";", "&", ">", ">>", "<", "<<"})


def parse_duration(text: object) -> float:
    """Seconds of '30m', '10s', '1h30m', '250ms'. A number without a unit is refused."""
    if isinstance(text, str) and DURATION.fullmatch(text):
        seconds = sum(float(number) * SECONDS[unit] for number, unit in DURATION_PART.findall(text))
        if seconds <= LONGEST_S:
            return seconds
    raise ValueError(f'{_quote(text)} is not a duration; write a number and a unit, like "30m", "10s" or "1h30m"')


def parse_command(value: object) -> tuple[str, ...]:
    """An argv: a list of words, or a text that is split into words without a shell."""
    try:
        words = shlex.split(value) if isinstance(value, str) else value
    except ValueError as error:
        raise ValueError(f"'{value}' cannot be split into words: {str(error).lower()}") from None
    if not isinstance(words, list | tuple) or not words or not all(isinstance(word, str) for word in words):
        raise ValueError(f'{_quote(value)} is not a command; write "pytest -q" or ["pytest", "-q"]')
    if isinstance(value, str):
        operator = next((word for word in words if word in SHELL_OPERATORS or word.endswith(";")), "")
        if operator:
            raise ValueError(f"'{operator}' needs a shell, but Windlass uses none; write one entry for each command")
        if re.match(r"[A-Za-z_][A-Za-z0-9_]*=", words[0]):
            raise ValueError(f'\'{words[0]}\' needs a shell, but Windlass uses none; write ["env", "{words[0]}", ...]')
    return tuple(words)


def _with_files(command: tuple[str, ...]) -> tuple[str, ...]:
    if "{files}" not in command and "{folders}" not in command:
        raise ValueError(
            "it has no {files} or {folders}; "
            'write ["python", "-m", "pytest", "--junitxml={junit}", "{files}"] '
            'or ["go", "test", "-json", "{folders}"]'
        )
    return command


def _quote(value: object) -> str:
    return f"'{value}'" if isinstance(value, str) else json.dumps(value, default=str)


def _inner_path(text: str) -> str:
    path = PurePosixPath(text)
    if not text or path.is_absolute() or ".." in path.parts or ".git" in path.parts:
        raise ValueError(f"'{text}' must be a path inside the repository")
    return text


def _file(text: str) -> str:
    if not is_inner_path(text):
        raise ValueError(f"'{text}' must be a file inside the repository")
    return text


def _variable(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", text):
        raise ValueError(f"'{text}' is not the name of an environment variable")
    return text


def _address(text: str) -> str:
    if not re.match(r"[A-Za-z][A-Za-z0-9+.-]*://.", text):
        # The message must not show the address, which may contain a secret.
        raise ValueError('an address has the form SCHEME://..., like "ntfy://ntfy.sh/topic"')
    return text


def _word(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int | float):
        return str(value)
    raise ValueError(f"{_quote(value)} must be a text, a number, true or false")


def _with_dots(value: Any) -> Any:
    """Tables inside become names with dots: {"retries": {"maxPerStage": 2}} -> {"retries.maxPerStage": 2}."""
    if not isinstance(value, dict):
        return value
    flat: dict[str, Any] = {}
    for name, inner in value.items():
        below = _with_dots(inner)
        flat |= {f"{name}.{key}": one for key, one in below.items()} if isinstance(inner, dict) else {name: inner}
    return flat


def _option(value: Any) -> Any:
    return tuple(_word(item) for item in value) if isinstance(value, list | tuple) else _word(value)


def _command_name(name: str) -> str:
    if name in ("checks", "acceptance") or not is_id(name):
        raise ValueError(f"'{name}' cannot name a command; 'checks' and 'acceptance' are taken")
    return name


Money: TypeAlias = Annotated[float, Meta(ge=0)]
Count: TypeAlias = Annotated[int, Meta(ge=0)]
AtLeastOne: TypeAlias = Annotated[int, Meta(ge=1)]
Duration: TypeAlias = Annotated[float, Parser(parse_duration)]
Durations: TypeAlias = tuple[Duration, ...]
Command: TypeAlias = Annotated[tuple[str, ...], Parser(parse_command)]
Commands: TypeAlias = tuple[Command, ...]
FilesCommand: TypeAlias = Annotated[Command, After(_with_files)]
Globs: TypeAlias = tuple[Annotated[str, After(_inner_path)], ...]
Paths: TypeAlias = tuple[Annotated[str, After(_file)], ...]
Variables: TypeAlias = tuple[Annotated[str, After(_variable)], ...]
Addresses: TypeAlias = tuple[Annotated[str, After(_address)], ...]
Word: TypeAlias = Annotated[str, Parser(_word)]
FlowSettings: TypeAlias = Annotated[dict[str, Word], Before(_with_dots)]
Options: TypeAlias = dict[str, Annotated[str | tuple[str, ...], Parser(_option)]]
CommandName: TypeAlias = Annotated[str, After(_command_name)]
