"""The driver is killed while a real CLI runs a tool: no process is left, and the run goes on to its end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from clis import binary_of, left_behind, options

from gitrepo import commit, sh
from processes_for_tests import until
from windlass.testing.scripted_model import ScriptedModel

PASS: dict[str, Any] = {"status": "pass", "findings": [], "summary": "ok"}
IMPLEMENTER = {"role": "implementer"}


def rules(mark: Path) -> tuple[dict[str, Any], ...]:
    slow = {"when": {**IMPLEMENTER, "attempt": "1"}, "run": [f"echo here > {mark.name} && sleep 300"]}
    build = {"files": {"src/add.py": "x = 1\n", "tests/test_add.py": "def test_it(): pass\n"}, "say": "Built."}
    return slow, {"when": IMPLEMENTER, **build}, {"json": PASS}


def windlass(repo: Path, home: Path, *argv: str) -> subprocess.Popen[str]:
    env = {"PATH": os.environ["PATH"], "HOME": str(home), "LANG": "C.UTF-8"}
    command = [sys.executable, "-m", "windlass", *argv]
    with (home / "out").open("a") as out:
        return subprocess.Popen(command, cwd=repo, env=env, stdout=out, stderr=subprocess.STDOUT, text=True)


def sample(tmp_path: Path, name: str, server: ScriptedModel) -> tuple[Path, Path]:
    repo, home = tmp_path / "repo", tmp_path / "home"
    repo.mkdir()
    home.mkdir()
    lines = [f"{key} = {json.dumps(value)}" for key, value in options(server, binary_of(name)).items()]
    config = "\n".join(["[agents]", f'default = "{name}"', f"[agents.{name}]", *lines])
    sh(repo, "init", "--quiet", "--initial-branch=main")
    sh(repo, "config", "user.name", "Ada")
    sh(repo, "config", "user.email", "ada@example.org")
    commit(repo, {"README.md": "# sample\n", ".windlass/config.toml": config})
    return repo, home


def test_a_driver_killed_in_the_middle_of_a_tool_leaves_nothing_and_the_run_goes_on(
    name: str, tmp_path: Path, model: Callable[..., ScriptedModel]
) -> None:
    mark = Path("tool-runs")
    server = model(*rules(mark))
    repo, home = sample(tmp_path, name, server)
    driver = windlass(repo, home, "task", "Add add", "--yes")
    until(lambda: bool(list(home.rglob(mark.name))) or driver.poll() is not None, 60)
    [run] = {request.job.run for request in server.asked if request.job}
    assert left_behind(run) != [], (home / "out").read_text()
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    until(lambda: left_behind(run) == [], 20)
    again = windlass(repo, home, "resume")
    assert again.wait(240) == 0, (home / "out").read_text()
    second = [request for request in server.asked if request.job and request.job.attempt == 2]
    assert "Title: Add add" in second[0].text
    # gemini forgets a call that had no answer yet; opencode tells of its session late, so it may begin afresh
    assert name in ("gemini", "opencode") or "sleep 300" in second[0].text
    branch = sh(repo, "branch", "--list", "windlass/*", "--format=%(refname:short)")
    assert "src/add.py" in sh(repo, "ls-tree", "-r", "--name-only", branch).splitlines()
    assert left_behind(run) == []
    assert sh(repo, "status", "--porcelain") == ""
