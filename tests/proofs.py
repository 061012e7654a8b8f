"""One task through the proof: a small repository with tests of its own, a flow without reviews, real git and pytest."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from front import Done, Front, plan_of
from windlass.events import TaskProved

# Other packages' plugins cost a second of every start.
PYTEST = ["env", "PYTEST_DISABLE_PLUGIN_AUTOLOAD=1", sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
REPORTING = [*PYTEST, "--junitxml={junit}", "{files}"]
FLOW = """
flow: proof
about: One task, nobody reviews it.
branch: windlass/{slug}-{id8}
tdd: TDD
over_budget: stop
artifacts:
  plan: {kind: file, path: plan.md, contract: tasks}
  changes: {kind: diff}
phases:
  - id: plan
    kind: produce
    calls: [{role: planner, in: [request], out: plan}]
    on: {empty: stop, failed: stop}
  - id: execute
    kind: tasks
    from: plan
    failure: stop
    steps:
      - id: implement
        kind: produce
        calls: [{role: implementer, guard: off, in: [task, plan]}]
        on: {failed: fail}
    land:
      FIXER
      on: {conflict: fail, red: fail, unproved: fail}
    on: {done: finish, stopped: stop}
"""
BASE = {
    ".gitignore": "__pycache__/\n*.snap\n",
    "calc.py": "def add(a, b):\n    return a + b\n\n\ndef half(n):\n    return n // 2\n",
    "tests/test_calc.py": (
        "from calc import add, half\n\n\ndef test_add():\n    assert add(1, 2) == 3\n\n\n"
        "def test_half():\n    assert half(8) == 4\n"
    ),
}
ADD_SUB = BASE["calc.py"] + "\n\ndef sub(a, b):\n    return a - b\n"
TEST_SUB = "import calc\n\n\ndef test_sub():\n    assert calc.sub(5, 2) == 3\n"


class Proving:
    """Contract: the first task's verdict is that of its first try; nobody mends it, unless the flow has a fixer."""

    def __init__(
        self,
        tmp: Path,
        *,
        run_files: list[str] | None = None,
        base: dict[str, str] | None = None,
        tests: str = "",
        config: str = "",
        tdd: str = "required",
        fixer: bool = False,
    ) -> None:
        command = f"run_files = {json.dumps(run_files or REPORTING)}\n"
        self.front = Front(tmp, f"[tests]\n{command}{tests}\n{config}", base or BASE)
        self.flow = tmp / "proof.yaml"
        mend = "fixer: {role: implementer, in: [task]}\n      max: 2" if fixer else "checks: all"
        self.flow.write_text(FLOW.replace("TDD", tdd).replace("FIXER", mend))

    def start(self, rules: list[dict[str, Any]], **task: Any) -> Done:
        listed = [{"title": "The task", "description": "Do it.", **task}]
        plan = {"when": {"role": "planner"}, "files": {"{plan_path}": plan_of(listed)}, "say": "done"}
        return self.front.start([plan, *rules], "--flow", str(self.flow), request="Do it")

    def change(self, changed: dict[str, str] | None = None, *, delete: tuple[str, ...] = (), **task: Any) -> TaskProved:
        """What the engine says of a task that leaves these files."""
        rule = {"when": {"role": "implementer"}, "commit": "work", "say": "done"}
        done = self.start([{**rule, "files": changed or {}, "delete": list(delete)}], **task)
        assert done.code in (0, 12), done.out + done.err
        proved = self.proofs[0]
        assert (done.code == 0) is proved.ok, done.out + done.err
        return proved

    @property
    def proofs(self) -> list[TaskProved]:
        return self.front.events(TaskProved)


def counted(log: Path, command: list[str]) -> list[str]:
    """The same command, one line in `log` for every time it is run."""
    return ["sh", "-c", f'echo run >> "{log}"; exec "$@"', "counted", *command]


def runs_in(log: Path) -> int:
    return len(log.read_text().splitlines()) if log.exists() else 0
