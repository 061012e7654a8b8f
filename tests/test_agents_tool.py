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
    assert version == importlib.import_module(f"windlass.agents.{name}").TESTED


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
