"""A real Claude Code with a scripted model finds the tools of `windlass mcp`, calls one and is told the question."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from clis import binary_of

from front import LEAN, Front, basics, scripted
from windlass.testing.scripted_model import ScriptedModel

pytestmark = pytest.mark.real_agent
TOOL = "mcp__windlass__workflow"


def test_claude_code_calls_the_tool_and_reads_the_question(tmp_path: Path, model: Callable[..., ScriptedModel]) -> None:
    call = {"tool": TOOL, "input": {"input": "Add sub", "wait_s": 120}}
    server = model({"when": {}, "call": [call], "say": "It asks whether the plan is good."})
    front = Front(tmp_path)
    front.configure(scripted(front) + LEAN)
    front.say(basics("sub"))
    done = _claude(front, server)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "It asks whether the plan is good." in done.stdout
    assert (front.view.request, front.view.state) == ("Add sub", "waiting")
    told = [request.text for request in server.requests if "Approve this plan?" in request.text]
    assert told
    assert "1) approve - Approve" in told[-1]
    assert front("answer", "approve", "--no-resume").code == 0
    assert front("abort").code == 0


def _claude(front: Front, server: ScriptedModel) -> subprocess.CompletedProcess[str]:
    own = {"command": sys.executable, "args": ["-m", "windlass", "mcp"], "env": front.env}
    servers = json.dumps({"mcpServers": {"windlass": own}})
    flags = ["--strict-mcp-config", "--mcp-config", servers, "--setting-sources", "", "--allowedTools", TOOL]
    env = {
        **front.env,
        "ANTHROPIC_BASE_URL": server.url,
        "ANTHROPIC_API_KEY": "scripted",
        "CLAUDE_CONFIG_DIR": str(front.tmp / "claude"),
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "MCP_TIMEOUT": "60000",
        "MCP_TOOL_TIMEOUT": "180000",
    }
    return subprocess.run(
        [str(binary_of("claude")), "-p", "--output-format", "stream-json", "--verbose", *flags],
        cwd=front.root,
        env=env,
        input="Please add sub with the workflow tool.",
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
