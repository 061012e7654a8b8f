"""The sample repository of `windlass demo`, and what a person does in it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TITLES = ("Token bucket implementation", "Rate limit middleware", "Configuration and tests")


@dataclass(frozen=True)
class Demo:
    folder: Path
    home: Path
    code: int
    out: str
    err: str

    def windlass(self, *args: str) -> subprocess.CompletedProcess[str]:
        return windlass(self.home, *args, cwd=self.folder)

    def git(self, *args: str) -> str:
        env = {"PATH": os.environ["PATH"], "HOME": str(self.home), "GIT_OPTIONAL_LOCKS": "0"}
        done = subprocess.run(["git", *args], cwd=self.folder, env=env, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    def events(self, type: str) -> list[dict[str, Any]]:
        lines = (json.loads(line) for line in self.windlass("log", "--json").stdout.splitlines())
        return [event for event in lines if event["type"] == type]

    @property
    def branch(self) -> str:
        return self.git("branch", "--list", "windlass/*", "--format=%(refname:short)")


def windlass(home: Path, *args: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    env = {"PATH": os.environ["PATH"], "HOME": str(home), "LANG": "C.UTF-8"}
    command = [sys.executable, "-m", "windlass", *args]
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False, timeout=120)
