from __future__ import annotations

from pathlib import Path

import pytest

from captured import CLIS
from windlass.agents.installed import Login, find, known_version, login_state, version, version_warning

FILES = {
    "claude": ".claude/.credentials.json",
    "codex": ".codex/auth.json",
    "gemini": ".gemini/oauth_creds.json",
    "opencode": ".local/share/opencode/auth.json",
    "pi": ".pi/agent/auth.json",
}


def program(tmp_path: Path, body: str) -> str:
    path = tmp_path / "cli"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize("says", ["2.1.325 (Claude Code)", "codex-cli 2.1.325", "2.1.325"])
def test_a_version_is_found_in_what_the_cli_says(tmp_path: Path, says: str) -> None:
    assert version(program(tmp_path, f"echo '{says}'"), {}) == "2.1.325"


@pytest.mark.parametrize("body", ["exit 1", "echo hello", "echo 1.2.3; exit 3"])
def test_no_version_is_nothing(tmp_path: Path, body: str) -> None:
    assert version(program(tmp_path, body), {}) == ""
    assert version(str(tmp_path / "none"), {}) == ""


def test_a_cli_is_looked_for_in_the_path_that_is_given(tmp_path: Path) -> None:
    path = program(tmp_path, "")
    assert find("cli", {"PATH": str(tmp_path)}) == path
    assert find("cli", {"PATH": ""}) == ""
    assert find("claude", {}, path) == path


def test_an_unversion_tried_is_a_warning() -> None:
    assert version_warning("claude", known_version("claude")) == ""
    assert version_warning("claude", "") == version_warning("mine", "1.2.3") == ""
    assert (
        version_warning("claude", "9.9.9")
        == f"claude 9.9.9 was not tested with Windlass; {known_version('claude')} was"
    )


@pytest.mark.parametrize("cli", CLIS)
def test_a_login_is_a_variable_or_a_file(tmp_path: Path, cli: str) -> None:
    assert login_state(cli, {"AWS_REGION": "x"}, tmp_path).found is False
    path = tmp_path / FILES[cli]
    path.parent.mkdir(parents=True)
    path.write_text("{}")
    assert login_state(cli, {}, tmp_path).found is False
    path.write_text('{"token": 1}')
    assert login_state(cli, {}, tmp_path) == Login(True, str(path))
    variable = {"codex": "OPENAI_API_KEY", "gemini": "GEMINI_API_KEY"}.get(cli, "ANTHROPIC_API_KEY")
    assert login_state(cli, {variable: "x"}, tmp_path) == Login(True, variable)


def test_another_agents_login_is_not_known(tmp_path: Path) -> None:
    assert login_state("mine", {}, tmp_path) == Login(False, "")


def test_what_every_installation_has_is_no_login(tmp_path: Path) -> None:
    (tmp_path / ".gemini").mkdir()
    (tmp_path / ".gemini" / "installation_id").write_text("0b5a-4c1e")
    assert login_state("gemini", {}, tmp_path) == Login(False, str(tmp_path / ".gemini" / "oauth_creds.json"))
