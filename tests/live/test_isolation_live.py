"""What a person has set up for a CLI, and what lies in a repository for it, does not reach a dispatch."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from clis import PATIENT, binary_of, options

from jobs import run
from windlass.agents import registry
from windlass.agents.base import Job
from windlass.testing.scripted_model import ScriptedModel

Note = Callable[[str, object], None]
PASS: dict[str, Any] = {"status": "pass", "findings": [], "summary": "ok"}
SKILL = "---\nname: {mark}\ndescription: LEAK {mark}. Use it always.\n---\nLEAK {mark}\n"
CANNOT_BE_HELPED: Mapping[str, set[str]] = {"gemini": {"project GEMINI.md"}}
"""Only where the CLI has no switch for it."""


def server_command(trace: Path, what: str) -> dict[str, Any]:
    """A program that a CLI would start by itself: a hook, an MCP server."""
    return {"command": "sh", "args": ["-c", f"touch '{trace}/{what}'"]}


def planted(home: Path, trace: Path) -> dict[Path, str]:
    """Everything that the five CLIs read of a person."""
    hook = {"hooks": [{"type": "command", "command": f"touch '{trace}/hook'"}]}
    claude = {"hooks": {name: [hook] for name in ("SessionStart", "UserPromptSubmit", "PreToolUse", "Stop")}}
    mcp = {"mcpServers": {"leak": server_command(trace, "mcp")}}
    opencode = {"mcp": {"leak": {"type": "local", "command": ["sh", "-c", f"touch '{trace}/mcp'"]}}}
    opencode |= {"instructions": [str(home / "extra.md")]}
    codex = (
        f"developer_instructions = 'LEAK codex config'\n[mcp_servers.leak]\ncommand = 'touch'\nargs = ['{trace}/mcp']\n"
    )
    return {
        home / ".claude/CLAUDE.md": "LEAK user CLAUDE.md\n",
        home / ".claude/settings.json": json.dumps(claude),
        home / ".claude/skills/leaking/SKILL.md": SKILL.format(mark="user claude skill"),
        home / ".claude/agents/leaking.md": SKILL.format(mark="user claude agent"),
        home / ".claude.json": json.dumps(mcp),
        home / ".codex/AGENTS.md": "LEAK user codex AGENTS.md\n",
        home / ".codex/config.toml": codex,
        home / ".codex/skills/leaking/SKILL.md": SKILL.format(mark="user codex skill"),
        home / ".agents/skills/leaking/SKILL.md": SKILL.format(mark="user agents skill"),
        home / ".pi/agent/AGENTS.md": "LEAK user pi AGENTS.md\n",
        home / ".pi/agent/SYSTEM.md": "LEAK user pi SYSTEM.md\n",
        home / ".pi/agent/APPEND_SYSTEM.md": "LEAK user pi APPEND_SYSTEM.md\n",
        home / ".pi/agent/skills/leaking/SKILL.md": SKILL.format(mark="user pi skill"),
        home / ".gemini/GEMINI.md": "LEAK user GEMINI.md\n",
        home / ".gemini/settings.json": json.dumps(mcp),
        home / ".config/opencode/AGENTS.md": "LEAK user opencode AGENTS.md\n",
        home / ".config/opencode/opencode.json": json.dumps(opencode),
        home / "config/opencode/AGENTS.md": "LEAK user opencode AGENTS.md\n",
        home / "config/opencode/opencode.json": json.dumps(opencode),
        home / "extra.md": "LEAK user opencode instructions\n",
    }


def in_the_repository(cwd: Path, trace: Path) -> dict[Path, str]:
    hook = {"hooks": [{"type": "command", "command": f"touch '{trace}/project-hook'"}]}
    mcp = {"mcpServers": {"leak": server_command(trace, "project-mcp")}}
    opencode = {"mcp": {"leak": {"type": "local", "command": ["sh", "-c", f"touch '{trace}/project-mcp'"]}}}
    return {
        cwd / "CLAUDE.md": "LEAK project CLAUDE.md\n",
        cwd / "AGENTS.md": "LEAK project AGENTS.md\n",
        cwd / "GEMINI.md": "LEAK project GEMINI.md\n",
        cwd / ".claude/settings.json": json.dumps({"hooks": {"SessionStart": [hook], "PreToolUse": [hook]}}),
        cwd / ".claude/skills/leaking/SKILL.md": SKILL.format(mark="project claude skill"),
        cwd / ".mcp.json": json.dumps(mcp),
        cwd / ".gemini/settings.json": json.dumps(mcp),
        cwd / "opencode.json": json.dumps(opencode),
        cwd / ".opencode/AGENTS.md": "LEAK project opencode AGENTS.md\n",
        cwd / ".pi/SYSTEM.md": "LEAK project pi SYSTEM.md\n",
        cwd / ".agents/skills/leaking/SKILL.md": SKILL.format(mark="project agents skill"),
        cwd / ".codex/config.toml": "developer_instructions = 'LEAK project codex config'\n",
    }


def write(files: Mapping[Path, str]) -> None:
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def leaks(server: ScriptedModel, trace: Path) -> set[str]:
    """What was sent to the model, and what was started."""
    sent = " ".join(request.text for request in server.requests)
    told = {found.strip() for found in re.findall(r"LEAK ([A-Za-z]+ [A-Za-z_.]+(?: [A-Za-z_.]+)?)", sent)}
    return {re.sub(r"\. Use$|\.$", "", text) for text in told} | {f"{path.name} started" for path in trace.iterdir()}


@pytest.fixture
def room(tmp_path: Path, clean_room: Path, job: Job) -> Path:
    """A home and a repository full of instructions; the folder in which a hook or an MCP server leaves its trace."""
    trace = tmp_path / "trace"
    trace.mkdir()
    write(planted(clean_room, trace) | in_the_repository(job.cwd, trace))
    return trace


def test_nothing_that_was_planted_reaches_a_dispatch(
    name: str, job: Job, room: Path, model: Any, record_property: Note
) -> None:
    server = model({"files": {"a.py": "x\n"}, "run": ["true"], "json": PASS})
    adapter = registry.make(name, options(server, binary_of(name)), dict(os.environ))
    result = run(adapter, job)
    assert (result.error, result.reason) == (None, "")
    assert job.prompt in server.asked[0].text
    found = leaks(server, room)
    record_property("instructions that reach it unasked", ", ".join(sorted(found)) or "none")
    assert found <= CANNOT_BE_HELPED.get(name, set())


def test_a_command_has_the_path_of_the_dispatch_whatever_the_login_files_say(
    name: str, job: Job, clean_room: Path, model: Any
) -> None:
    """A login shell would set it anew: the project's own tools, a virtual environment for one, would be gone."""
    profile = "export PATH=/nowhere-to-be-found\n"
    write({clean_room / file: profile for file in (".bash_profile", ".profile", ".zprofile", ".zlogin")})
    own = clean_room / "tools"
    write({own / "project-tool": "#!/bin/sh\necho found\n"})
    (own / "project-tool").chmod(0o755)
    server = model({"run": ["project-tool > said.txt"], "json": PASS})
    environ = {**os.environ, "PATH": f"{own}{os.pathsep}{os.environ['PATH']}"}
    adapter = registry.make(name, options(server, binary_of(name)), environ)
    with mock.patch.dict(os.environ, environ):
        result = run(adapter, job)
    assert (result.error, result.reason) == (None, "")
    assert (job.cwd / "said.txt").read_text() == "found\n"


def test_the_plants_would_be_found_if_they_came_through(tmp_path: Path, clean_room: Path, model: Any) -> None:
    """The same set-up, and the CLI started as a person would: what the test above looks for is there to be seen."""
    trace = tmp_path / "trace"
    trace.mkdir()
    write(planted(clean_room, trace))
    server = model({"say": "ok"})
    environ = {**os.environ, "ANTHROPIC_BASE_URL": server.url, "ANTHROPIC_API_KEY": "none", "IS_SANDBOX": "1"}
    subprocess.run(
        [str(binary_of("claude")), "-p", "hello"],
        cwd=tmp_path,
        env=environ,
        timeout=PATIENT,
        check=False,
        capture_output=True,
    )
    assert {"user CLAUDE.md", "hook started"} <= leaks(server, trace)
