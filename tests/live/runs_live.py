"""A whole run through a real CLI, from the front door: the model behind it is scripted, everything else is real."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from clis import binary_of, left_behind, options

from front import LEAN, ONE_TASK, Done, Front
from windlass.events import DispatchFinished, WaitStarted
from windlass.model import RunState
from windlass.testing.scripted_model import Request, ScriptedModel

PASS: dict[str, Any] = {"status": "pass", "findings": [], "summary": "ok"}
GOOD = {"when": {}, "json": PASS}
CODE = {"src/add.py": "x = 1\n", "tests/test_add.py": "def test_it(): pass\n"}
#: whose price everybody knows, of each CLI's own provider
MODELS = {
    "claude": "claude-sonnet-4-5",
    "codex": "gpt-5",
    "pi": "claude-sonnet-4-5",
    "gemini": "gemini-2.5-pro",
    "opencode": "claude-sonnet-4-5",
}
REQUEST = "Add add"
FIRST = {"role": "implementer", "attempt": "1"}
FLOW = ("--flow", "tiny", "--yes")


def front_of(tmp_path: Path, name: str, server: ScriptedModel, **more: Any) -> Front:
    return Front(tmp_path, config_of(name, server, **more) + LEAN)


def config_of(name: str, server: ScriptedModel, **more: Any) -> str:
    settings = {**options(server, binary_of(name)), **more}
    lines = [f"{key} = {json.dumps(value)}" for key, value in settings.items()]
    return "\n".join(["[agents]", f'default = "{name}"', f"[agents.{name}]", *lines, ""])


def build(*commands: str, **more: Any) -> dict[str, Any]:
    """An implementer who does the work and what it was told besides."""
    return {"when": {"role": "implementer"}, "files": CODE, "run": list(commands), "say": "Built.", **more}


# -- one dispatch


class Tiny:
    """A run of one dispatch, whose model does something wrong at the first attempt."""

    def __init__(self, tmp_path: Path, name: str, server: ScriptedModel, config: str = "", **options: str) -> None:
        self.name, self.server, self.options = name, server, options
        self.seen: dict[str, Any] = {"waits": []}
        self.seen_at = 0.0
        self.front = Front(tmp_path, files={".windlass/flows/tiny.yaml": ONE_TASK})
        self.configure(config)

    def configure(self, more: str) -> None:
        self.front.configure(config_of(self.name, self.server, model=MODELS[self.name], **self.options) + more)

    def start(self, *argv: str) -> Done:
        return self.front("run", *FLOW, *argv, "--", REQUEST)

    @contextmanager
    def driver(self, *argv: str) -> Iterator[subprocess.Popen[str]]:
        """The same as a process of its own; what it says is in `said`."""
        command = [sys.executable, "-m", "windlass", "run", *FLOW, *argv, "--", REQUEST]
        with self._out.open("a") as out:
            process = subprocess.Popen(
                command, cwd=self.front.root, env=self.front.env, stdout=out, stderr=subprocess.STDOUT, text=True
            )
        try:
            yield process
        finally:
            process.kill()
            process.wait()

    @property
    def _out(self) -> Path:
        return self.front.tmp / "driver.out"

    @property
    def said(self) -> str:
        return self._out.read_text()

    @property
    def errors(self) -> list[str]:
        """How each attempt ended."""
        return [event.error for event in self.front.events(DispatchFinished)]

    @property
    def waits(self) -> list[WaitStarted]:
        return self.front.events(WaitStarted)

    def look(self) -> dict[str, Any]:
        """What `status` says just now; kept as `seen`."""
        if self.front.service.has_runs:
            self.seen, self.seen_at = self.front.status, time.time()
        return self.seen

    def in_slots(self, file: str) -> bool:
        """A slot that comes or goes meanwhile is no news."""
        state = Path(self.front.env["XDG_STATE_HOME"]) / "windlass"
        return any((slot / file).exists() for slot in state.glob("*/slots/*"))

    def asked(self, attempt: int) -> list[Request]:
        return [request for request in self.server.asked if request.job and request.job.attempt == attempt]

    def ended_right(self, done: Done) -> None:
        assert done.code == 0, done.out + done.err
        assert set(CODE) <= self.front.landed
        assert self.front.view.state is RunState.FINISHED
        self.is_clean()

    def is_clean(self) -> None:
        assert left_behind(self.front.run) == []
        assert self.front.git("status", "--porcelain") == ""
