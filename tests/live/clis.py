"""Where the installed CLIs are, and how an adapter is pointed at the scripted model."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from windlass.testing.scripted_model import ScriptedModel

ROOT = Path(__file__).parent.parent.parent
# Read here, because the clean room of a test has neither.
FOLDER = Path(os.environ.get("WINDLASS_AGENTS") or ROOT / ".venv-agents")
IN_CI = os.environ.get("CI", "").lower() in ("1", "true")
CLIS = ("claude", "codex", "pi", "gemini", "opencode")
ALL_TOOLS = ("read", "grep", "find", "ls", "bash", "write", "edit")
READ_TOOLS = ("read", "grep", "find", "ls")
PATIENT = 240.0
"""Seconds for what takes a few on a quiet machine: being slow is no failure."""


def binary_of(name: str) -> Path:
    path = FOLDER / "bin" / name
    if path.exists():
        return path
    missing = f"'{name}' is not installed in {FOLDER}: run `make agents`"
    if IN_CI:
        pytest.fail(missing)
    pytest.skip(missing)


def pace(name: str) -> float:
    """Seconds that it takes to say its version: the CLI's own speed, and how busy the machine is."""
    began = time.monotonic()
    subprocess.run([str(binary_of(name)), "--version"], capture_output=True, check=True, timeout=PATIENT)
    return time.monotonic() - began


def options(server: ScriptedModel, binary: Path) -> dict[str, Any]:
    return {"bin": str(binary), "base_url": server.url_for("{job}"), "api_key": "scripted"}


def left_behind(run: str) -> list[str]:
    """Processes that carry the run's marker."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("WINDLASS_ATTEMPT", "").startswith(run):
                found.append(" ".join(process.cmdline()))
        except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
            continue
    return found
