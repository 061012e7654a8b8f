"""Roles: markdown files with front matter. A role defines who an agent is, its permissions, and all its prompts.

The text before the first `## prompt: <purpose>` is the system prompt. Prompt text lives here and nowhere else.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from windlass.agents.contracts.fences import fence
from windlass.agents.contracts.registry import CONTRACTS
from windlass.agents.templates import VARIABLES, Piece, TemplateError, compile_template, fill, is_out, known, names
from windlass.errors import UserError, near
from windlass.model import is_id, is_inner_path
from windlass.strict_yaml import Plain, YamlError, YamlTable, read, values
from windlass.text import plain

BUILT_IN = Path(__file__).parent / "roles"
TOOLS = ("read", "grep", "find", "ls", "bash", "write", "edit")
_WRITES = ("none", "outs", "code")
_PROMPT = re.compile(r"^## prompt: *(?P<purpose>\S*)[^\n]*\n?", re.MULTILINE)
_UNITS = {"s": 1, "m": 60, "h": 3600}


class RoleError(UserError):
    """A role file that cannot be used, with every problem as file:line."""


class Prompt(Struct, frozen=True):
    pieces: tuple[Piece, ...]
    line: int
    """The line of the file at which its text starts."""


class Role(Struct, frozen=True):
    name: str
    about: str
    tools: tuple[str, ...]
    writes: str = "none"
    """none | outs | code: the changes that the engine accepts after a dispatch."""
    agent: str = ""
    model: str = ""
    effort: str = ""
    contract: str = ""
    contracts: Mapping[str, str] = field(default_factory=dict)
    """Purpose -> contract, for purposes that do not use `contract`."""
    guard: str = ""
    """'tdd': code without a test in the same change is a finding."""
    prefers: str = ""
    """The CLI that plays the role if it is installed and the config names no agent for it and no default. The model
    and the effort in the file are meant for this CLI."""
    profile: bool = False
    """The file only lends its settings to other roles: it has no tools and no prompts."""
    recommended: str = ""
    """The model of this role on a CLI that serves it, when the config and the file name no other."""
    wall_s: float | None = None
    turns: int | None = None
    usd: float | None = None
    instructions: tuple[str, ...] = ()
    """Files of the repository that the agent must follow."""
    system: str = ""
    prompts: Mapping[str, Prompt] = field(default_factory=dict)
    path: Path = Path()


def load_roles(folders: Sequence[Path]) -> dict[str, Role]:
    """Earlier folders win; the roles that ship with Windlass come last."""
    roles: dict[str, Role] = {}
    for folder in (*folders, BUILT_IN):
        for path in sorted(folder.glob("*.md")) if folder.is_dir() else ():
            if path.stem not in roles:
                roles[path.stem] = load_role(path)
    return roles


def load_role(path: Path) -> Role:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RoleError(f"{path}: cannot be read: {error}", hint="a role is a UTF-8 markdown file") from None
    return parse_role(text.replace("\r\n", "\n"), path)


def parse_role(text: str, path: Path) -> Role:
    lines = text.split("\n")
    if lines[0] != "---" or "---" not in lines[1:]:
        raise RoleError(f"{path}:1: there is no front matter", hint="begin with '---', 'name: …', '---'")
    end = lines.index("---", 1)
    reader = _RoleReader(path)
    try:
        front = read("\n".join(lines[1:end]))
    except YamlError as error:
        problems = "\n".join(f"{path}:{fault.line + 1}: {fault.message}" for fault in error.faults)
        raise RoleError(problems, hint="the front matter is YAML") from None
    if not isinstance(front, YamlTable):
        raise RoleError(f"{path}:2: the front matter is not a mapping", hint="like 'name: …', 'tools: […]'")
    role = _fields(front, reader)
    body = "\n".join(lines[end + 1 :])
    system, sections = _sections(body, end + 2, reader, is_profile=role.get("profile") is True)
    reader.raise_all()
    return Role(**role, system=system, prompts=sections, path=path)


def prompts(role: Role) -> set[str]:
    return set(role.prompts)


def variables(role: Role, purpose: str) -> set[str]:
    return names(_prompt(role, purpose).pieces)


def contract_for(role: Role, purpose: str) -> str:
    return role.contracts.get(purpose, role.contract)


def render(role: Role, purpose: str, values: Mapping[str, str]) -> str:
    """Byte for byte the same for the same values. A format reminder always comes last."""
    prompt = _prompt(role, purpose)
    missing = sorted(name for name in names(prompt.pieces) - set(values) if not is_out(name))
    if missing:
        raise RoleError(
            f"{role.path}:{prompt.line}: prompt '{purpose}' of role '{role.name}' needs '{missing[0]}'",
            hint=near(missing[0], values),
        )
    text = fill(prompt.pieces, values).strip() + "\n"
    late = values.get("reminder", "") if "reminder" not in names(prompt.pieces) else ""
    return f"{text}\n{late.strip()}\n" if late.strip() else text


def continuation_prompt(why: str = "", tag: str = "") -> str:
    """The prompt that continues an agent's session after an interruption.

    `why`: '' when Windlass was stopped. `tag`: the tag of the block that the agent still has to write.
    """
    cause = why or "the machine or Windlass was stopped"
    text = (
        f"You were interrupted in the middle of this work: {cause}. The working directory is"
        " as you left it. See what is done, finish the rest, and answer as you were asked to at the beginning.\n"
    )
    return f"{text}The tag of the answer's block is `{tag}`.\n" if tag else text


def instructions_text(files: Mapping[str, str]) -> str:
    """Project files that a flow, a role or the config requires; the first part of the prompt."""
    return "".join(
        f"The project's own instructions, from '{path}'. Follow them where your role, the task and the form of the"
        f" answer leave it open.\n\n{fence(plain(content), 'instructions')}\n\n"
        for path, content in files.items()
    )


def wishes_text(texts: Sequence[str]) -> str:
    """What the person who sent the work back wants changed; it comes before the reviewers' findings."""
    if not texts:
        return ""
    return (
        "The person who started this run sent the work back. Their request follows. It comes before every finding"
        " of a reviewer, and you may not reject it or leave a part of it out:\n\n"
        f"{fence(plain(chr(10).join(texts)), 'data-wish')}\n\n"
    )


def messages_text(texts: Sequence[str]) -> str:
    """Messages of a person during the run; the end of the prompt."""
    if not texts:
        return ""
    return f"\nThe person who started this run adds:\n\n{fence(plain(chr(10).join(texts)), 'data-told')}\n"


def _prompt(role: Role, purpose: str) -> Prompt:
    if purpose not in role.prompts:
        raise RoleError(f"{role.path}: role '{role.name}' has no prompt '{purpose}'", hint=near(purpose, role.prompts))
    return role.prompts[purpose]


class _RoleReader:
    """Collects every problem of a file before it raises."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.problems: list[str] = []

    def problem(self, line: int, text: str) -> None:
        self.problems.append(f"{self.path}:{line}: {text}")

    def raise_all(self) -> None:
        if self.problems:
            raise RoleError("\n".join(self.problems), hint="see the role files that ship with Windlass")


Value = Plain
Problem = Callable[[str], None]


def _fields(table: YamlTable, reader: _RoleReader) -> dict[str, Any]:
    fields: dict[str, Any] = {"name": "", "about": "", "tools": ()}
    for key, node in table.items.items():
        line = table.lines[key] + 1

        def problem(text: str, line: int = line) -> None:
            reader.problem(line, text)

        if key in _KEYS:
            fields |= _KEYS[key](key, values(node), problem)
        else:
            problem(f"unknown key '{key}'; {near(key, _KEYS)}")
    if fields["name"] != reader.path.stem:
        reader.problem(2, f"the name '{fields['name']}' is not the file's name '{reader.path.stem}'")
    for key in ("about",) if fields.get("profile") else ("about", "tools"):
        if not fields[key]:
            reader.problem(2, f"'{key}' is missing")
    return fields


def _string(key: str, value: Value, problem: Problem) -> dict[str, object]:
    if isinstance(value, list | dict):
        problem(f"'{key}' is one line of text")
        return {}
    return {key: value or ""}


def _name(key: str, value: Value, problem: Problem) -> dict[str, object]:
    if not isinstance(value, str) or not is_id(value):
        problem(f"'{value}' is not a valid name")
    return {key: value}


def _tools(key: str, value: Value, problem: Problem) -> dict[str, object]:
    tools = _words(value)
    for tool in tools:
        if tool not in TOOLS:
            problem(f"unknown tool '{tool}'; {near(tool, TOOLS)}")
    return {key: tools}


def _files(key: str, value: Value, problem: Problem) -> dict[str, object]:
    files = _words(value)
    for file in files:
        if not is_inner_path(file):
            problem(f"'{file}' is not a file inside the repository; write it like AGENTS.md")
    return {key: files}


def _words(value: Value) -> tuple[str, ...]:
    words = value.split(",") if isinstance(value, str) else value if isinstance(value, list) else []
    return tuple(str(word).strip() for word in words)


def _one_of(known_words: Sequence[str]) -> Callable[[str, Value, Problem], dict[str, object]]:
    def take(key: str, value: Value, problem: Problem) -> dict[str, object]:
        word = "" if value is None else str(value)
        if word not in known_words:
            problem(f"'{key}' cannot be '{word}'; {near(word, known_words)}")
        return {key: word}

    return take


def _flag(key: str, value: Value, problem: Problem) -> dict[str, object]:
    if value not in ("true", "false"):
        problem(f"'{key}' is true or false")
    return {key: value == "true"}


def _contracts(key: str, value: Value, problem: Problem) -> dict[str, object]:
    if not isinstance(value, dict):
        problem("'contracts' is a mapping of purpose to contract")
        return {}
    for name in value.values():
        _one_of(tuple(CONTRACTS))(key, name, problem)
    return {key: value}


def _limits(key: str, value: Value, problem: Problem) -> dict[str, object]:
    if not isinstance(value, dict):
        problem("'limits' is a mapping of wall, turns and usd")
        return {}
    found: dict[str, object] = {}
    for name, text in value.items():
        if name not in _LIMITS:
            problem(f"unknown limit '{name}'; {near(name, _LIMITS)}")
            continue
        field_name, convert, shape = _LIMITS[name]
        try:
            found[field_name] = convert(str(text))
        except ValueError:
            problem(f"'{name}' cannot be '{text}'; write it like {shape}")
    return found


def _seconds(text: str) -> float:
    match = re.fullmatch(r"([0-9]{1,6}(?:\.[0-9]+)?)([smh])", text)
    if not match:
        raise ValueError(text)
    return _positive(match[1]) * _UNITS[match[2]]


def _positive(text: str) -> float:
    if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]+)?", text) or float(text) <= 0:
        raise ValueError(text)
    return float(text)


def _whole_number(text: str) -> int:
    if "." in text:
        raise ValueError(text)
    return int(_positive(text))


_LIMITS: dict[str, tuple[str, Callable[[str], object], str]] = {
    "wall": ("wall_s", _seconds, "30m"),
    "turns": ("turns", _whole_number, "40"),
    "usd": ("usd", _positive, "2.50"),
}
_KEYS: dict[str, Callable[[str, Value, Problem], dict[str, object]]] = {
    "name": _name,
    "about": _string,
    "tools": _tools,
    "writes": _one_of(_WRITES),
    "agent": _string,
    "model": _string,
    "effort": _string,
    "recommended": _string,
    "prefers": _string,
    "profile": _flag,
    "contract": _one_of(("", *CONTRACTS)),
    "contracts": _contracts,
    "guard": _one_of(("", "tdd")),
    "limits": _limits,
    "instructions": _files,
}


def _sections(body: str, first_line: int, reader: _RoleReader, *, is_profile: bool) -> tuple[str, dict[str, Prompt]]:
    found: dict[str, Prompt] = {}
    headings = list(_PROMPT.finditer(body))
    ends = [*(heading.start() for heading in headings[1:]), len(body)]
    for heading, end in zip(headings, ends, strict=False):
        line = first_line + body.count("\n", 0, heading.end())
        text = body[heading.end() : end]
        purpose = heading["purpose"]
        if not is_id(purpose) or purpose in found:
            reader.problem(line - 1, f"'{purpose}' is not a purpose of its own")
        found[purpose] = Prompt(_compile(text, line, reader), line)
    system = body[: headings[0].start()] if headings else body
    if not found and not is_profile:
        reader.problem(first_line, "there is no '## prompt: <purpose>' section")
    # The system prompt is the same for every dispatch: a variable in it would be sent unreplaced.
    if "{{" in system:
        at = system.count("\n", 0, system.index("{{"))
        reader.problem(first_line + at, "the system prompt takes no variables")
    return system.strip(), found


def _compile(text: str, line: int, reader: _RoleReader) -> tuple[Piece, ...]:
    try:
        pieces = compile_template(text)
    except TemplateError as error:
        reader.problem(line + error.line - 1, error.message)
        return ()
    for name in sorted(names(pieces)):
        if not known(name):
            at = text.count("\n", 0, re.search(r"\{\{[#/]?" + re.escape(name), text).start())  # type: ignore[union-attr]
            reader.problem(line + at, f"unknown variable '{name}'; {near(name, VARIABLES)}")
    return pieces
