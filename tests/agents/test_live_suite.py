"""`make agents`: pinned versions, and what it says when there is nothing to be had."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import agents

NAMES = [cli.name for cli in agents.CLIS]
#: driven by the adapter of a protocol, which is made for no version of it
BY_PROTOCOL = {"claude-agent-acp"}


def pins(name: str, file: str) -> dict[str, Any]:
    return dict(json.loads((agents.PINS / name / file).read_text()))


@pytest.mark.parametrize("name", [name for name in NAMES if name not in BY_PROTOCOL])
def test_the_version_that_is_installed_is_the_one_the_adapter_was_tested_with(name: str) -> None:
    [version] = pins(name, "package.json")["dependencies"].values()
    assert version == importlib.import_module(f"windlass.agents.cli.{name}").TESTED


@pytest.mark.parametrize("name", [*NAMES, "node"])
def test_the_lock_pins_the_same_version_and_names_no_host(name: str) -> None:
    wanted = pins(name, "package.json")["dependencies"]
    lock = pins(name, "package-lock.json")
    assert lock["packages"][""]["dependencies"] == wanted
    [(package, version)] = wanted.items()
    assert lock["packages"][f"node_modules/{package}"]["version"] == version
    assert [path for path, entry in lock["packages"].items() if "resolved" in entry] == []
    assert [path for path, entry in lock["packages"].items() if path and not entry.get("integrity")] == []


def make_agents(tmp_path: Path, npm: str, **env: str) -> subprocess.CompletedProcess[str]:
    """With a node that is new enough and an npm that does as told."""
    folder = tmp_path / "path"
    folder.mkdir()
    for name, text in (("node", "echo v22.19.0"), ("npm", npm)):
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    command = [sys.executable, agents.__file__, "--only", "codex", "--into", str(tmp_path / "into")]
    path = f"{folder}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(command, env={"PATH": path, **env}, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(("env", "code"), [({}, 0), ({"CI": "true"}, 1)])
def test_without_a_network_it_is_loud_and_fails_in_ci_only(tmp_path: Path, env: dict[str, str], code: int) -> None:
    done = make_agents(tmp_path, "echo 'ENOTFOUND the registry'; exit 1", **env)
    assert done.returncode == code
    assert "LIVE SUITE NOT COMPLETE" in done.stderr
    assert "codex: npm install failed:\n    ENOTFOUND the registry" in done.stderr


def test_a_package_without_a_binary_for_this_machine_is_told(tmp_path: Path) -> None:
    done = make_agents(tmp_path, "mkdir node_modules")
    assert "codex: no binary for this machine" in done.stderr


def test_an_agent_that_does_not_exist_is_refused() -> None:
    assert agents.main(["--only", "claude,copilot"]) == 2


def test_what_is_installed_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "codex").mkdir()
    (tmp_path / "codex" / ".stamp").write_text(agents.fingerprint("codex"))
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "codex").write_text("here")
    codex = next(cli for cli in agents.CLIS if cli.name == "codex")
    assert agents.install_all(tmp_path, [codex]) == []
    assert (tmp_path / "bin" / "codex").read_text() == "here"


@pytest.mark.parametrize(("ci", "flags"), [("", []), ("true", ["--check"])])
def test_what_a_whole_suite_saw_goes_into_the_docs_and_ci_only_compares(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ci: str, flags: list[str]
) -> None:
    monkeypatch.setenv("CI", ci)
    started = commands(monkeypatch, code=0)
    (tmp_path / agents.RESULTS).write_text("of another time")
    assert agents.run_tests(tmp_path, [], everything=True) == 0
    assert not (tmp_path / agents.RESULTS).exists()
    assert started[0][1:3] == ["-m", "pytest"]
    assert started[1][2:] == ["--results", str(tmp_path / agents.RESULTS), *flags]


@pytest.mark.parametrize(("everything", "code"), [(True, 1), (False, 0), (False, 1)])
def test_a_suite_that_failed_or_was_not_whole_leaves_the_docs_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, everything: bool, code: int
) -> None:
    started = commands(monkeypatch, code=code)
    assert agents.run_tests(tmp_path, ["-k", "pi"], everything=everything) == code
    assert len(started) == 1


def commands(monkeypatch: pytest.MonkeyPatch, *, code: int) -> list[list[str]]:
    """What would be started, and ends with this code."""
    started: list[list[str]] = []

    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        started.append(command)
        return subprocess.CompletedProcess(command, code)

    monkeypatch.setattr(agents.subprocess, "run", run)
    return started
