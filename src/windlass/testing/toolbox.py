"""Turns a step of a script into a call of a tool that the CLI offers, with arguments that fit the tool's schema."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any, TypeAlias

from msgspec import Struct

from windlass.model import Json
from windlass.testing.wire.base import Asked, Tool

WRITERS = ("write", "write_file", "create_file")
PATCHERS = ("apply_patch",)
READERS = ("read", "read_file")
SHELLS = ("bash", "run_shell_command", "exec_command", "shell_command", "shell", "local_shell")
STRUCTURED = ("structuredoutput",)
PATHS = ("file_path", "filepath", "path", "absolute_path")
TEXTS = ("content", "contents", "text")
COMMANDS = ("command", "cmd")
_UNREAD = re.compile(
    r"\b(must|first|not (yet )?been|before)\b.{0,80}\bread\b|\bread\b.{0,80}\b(first|before)\b", re.IGNORECASE
)


class Write(Struct, frozen=True):
    path: str
    text: str


class Read(Struct, frozen=True):
    path: str


class Shell(Struct, frozen=True):
    command: str


class Structured(Struct, frozen=True):
    """The answer as a tool call."""

    value: Json


class ToolUse(Struct, frozen=True):
    """A call of a tool by its name, such as a tool of an MCP server."""

    tool: str
    input: dict[str, Json]


Step: TypeAlias = Write | Read | Shell | Structured | ToolUse
Filled: TypeAlias = tuple[str, dict[str, Json] | str]


def steps_of(rule: Mapping[str, Any]) -> tuple[Step, ...]:
    writes = [Write(path, text) for path, text in rule.get("files", {}).items()]
    shells = [f"echo step {number + 1}" for number in range(rule.get("events", 0))]
    shells += [f"rm -f -- {shlex.quote(path)}" for path in rule.get("delete", ())]
    shells += list(rule.get("run", ()))
    if rule.get("commit"):
        shells.append(commit_command(rule["commit"]))
    uses = [ToolUse(one["tool"], one.get("input", {})) for one in rule.get("call", ())]
    return (*writes, *map(Shell, shells), *uses)


def commit_command(message: str) -> str:
    git = "git -c user.name='Scripted Model' -c user.email=model@windlass.invalid -c commit.gpgsign=false -c gc.auto=0"
    return f"{git} add -A && ({git} diff --cached --quiet || {git} commit -qm {shlex.quote(message)})"


def requires_read(step: Step, result: str) -> bool:
    """Some CLIs refuse to overwrite a file that the model has not read."""
    return isinstance(step, Write) and len(result) < 2000 and bool(_UNREAD.search(result))


def fill(step: Step, asked: Asked, cwd: Path) -> Filled:
    match step:
        case Write():
            return _write(step, asked, cwd)
        case Read():
            reader = asked.tool(*READERS)
            if reader:
                return reader.name, _arguments(reader, {PATHS: str(cwd / step.path)})
            return _shell(Shell(f"cat -- {shlex.quote(step.path)}"), asked)
        case Shell():
            return _shell(step, asked)
        case ToolUse():
            return step.tool, step.input
        case Structured(value=dict(value)):
            tool = asked.tool(*STRUCTURED)
            return (tool.name if tool else "StructuredOutput"), value
        case Structured():
            return "StructuredOutput", {"value": step.value}


def _write(step: Write, asked: Asked, cwd: Path) -> Filled:
    writer, patcher = asked.tool(*WRITERS), asked.tool(*PATCHERS)
    if writer:
        return writer.name, _arguments(writer, {PATHS: str(cwd / step.path), TEXTS: step.text})
    if patcher and step.text.endswith("\n"):
        lines = "".join(f"+{line}\n" for line in step.text.removesuffix("\n").split("\n"))
        patch = f"*** Begin Patch\n*** Add File: {step.path}\n{lines}*** End Patch\n"
        return patcher.name, patch if patcher.freeform else {next(iter(patcher.fields), "input"): patch}
    if asked.tool(*SHELLS):
        folder = shlex.quote(str(PurePosixPath(step.path).parent))
        return _shell(
            Shell(f"mkdir -p {folder} && printf %s {shlex.quote(step.text)} > {shlex.quote(step.path)}"), asked
        )
    # Not offered at all: call it by its usual name, so that the CLI must refuse.
    return _usual_name(asked, "write_file", "Write"), {"file_path": str(cwd / step.path), "content": step.text}


def _shell(step: Shell, asked: Asked) -> Filled:
    tool = asked.tool(*SHELLS)
    if tool is None:
        return _usual_name(asked, "run_shell_command", "Bash"), {"command": step.command}
    name = next((field for field in tool.fields if field.lower() in COMMANDS), "command")
    as_list = (tool.fields.get(name) or {}).get("type") == "array"
    command: Json = ["bash", "-c", step.command] if as_list else step.command
    return tool.name, _arguments(tool, {(name.lower(),): command})


def _arguments(tool: Tool, values: Mapping[tuple[str, ...], Json]) -> dict[str, Json]:
    """The values under the schema's names, and sample values for other required fields."""
    filled: dict[str, Json] = {}
    for name, schema in tool.fields.items():
        found = [value for names, value in values.items() if name.lower() in names]
        if found:
            filled[name] = found[0]
        elif name in tool.required:
            filled[name] = sample(name, schema if isinstance(schema, dict) else {})
    return filled or {names[0]: value for names, value in values.items()}


def sample(name: str, schema: Mapping[str, Any]) -> Json:
    """A value that the schema allows."""
    if schema.get("enum"):
        return schema["enum"][0]  # type: ignore[no-any-return]
    kind = str(schema.get("type")).lower()
    if kind == "object":
        return {one: sample(one, schema.get("properties", {}).get(one) or {}) for one in schema.get("required", ())}
    blank: dict[str, Json] = {"boolean": False, "integer": 1, "number": 1, "array": []}
    return blank.get(kind, "Does what the script says" if name != "workdir" else ".")


def _usual_name(asked: Asked, in_gemini: str, in_claude: str) -> str:
    """The name of a tool in the CLI that offers these tools."""
    if asked.tool("read_file", "grep_search"):
        return in_gemini
    return in_claude if any(tool.name[:1].isupper() for tool in asked.tools) else in_claude.lower()
