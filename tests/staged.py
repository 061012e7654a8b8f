"""The staged flow for tests: what its agents say, and the files that its phases make."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

from front import Done, Front, Rule, plan_of
from windlass.events import DispatchStarted, PhaseFinished, StageRestarted
from windlass.views import state_file

STAGES = ("EXPLORE", "PLAN", "IMPLEMENT", "TEST", "FINAL")
PHASES = ("0", "1.1", "1.2", "1.3", "2.1", "2.2", "2.3", "3.1", "3.2", "3.3", "4.1", "4.2", "4.3")
FILES = {
    "EXPLORE": {"0-explore.md"},
    "PLAN": {"1.1-brainstorm.md", "1.2-plan.md", "1.3-plan-review.json"},
    "IMPLEMENT": {"2.1-tasks.json", "2.2-simplify.md", "2.3-impl-review.json"},
    "TEST": {"3.1-test-results.json", "3.2-analysis.md", "3.3-test-review.json"},
    "FINAL": {"4.1-docs.md", "4.2-final-review.json"},
}
QUICK = "[retries]\ncrashed = 0\n"
APPROVED: Rule = {"status": "approved", "issues": [], "summary": "fine"}
TWO = ({"title": "Add sub", "description": "Do sub."}, {"title": "Add mul", "description": "Do mul."})


def issue(message: str, severity: str = "high", file: str = "src/t1.py") -> dict[str, Any]:
    return {"severity": severity, "file": file, "message": message}


def review(phase: str, status: str, *issues: dict[str, Any], times: int | None = None, **when: Any) -> Rule:
    rule: Rule = {
        "when": {"role": "codex-reviewer", "phase": phase, **when},
        "json": {"status": status, "issues": [*issues], "summary": f"{phase} {status}"},
    }
    return rule if times is None else {**rule, "times": times}


def negative(phase: str, times: int | None = None) -> Rule:
    """A review that finds the same each time, so that the loop ends after one fix that closed nothing."""
    return review(phase, "needs_revision", issue(f"{phase} is not good enough"), times=times)


def crash(role: str, times: int | None = None, **when: Any) -> Rule:
    rule: Rule = {"when": {"role": role, **when}, "exit": 1, "stderr": "it broke"}
    return rule if times is None else {**rule, "times": times}


def commands(**shell: str) -> str:
    """Configuration: the commands of phase 3.1. A crashed agent is not tried again."""
    return QUICK + "".join(
        f'[commands.{name}]\ncommands = [["sh", "-c", {json.dumps(line)}]]\n' for name, line in shell.items()
    )


def together(place: Path, count: int) -> str:
    """A shell command that ends well only if `count` agents run it at the same time."""
    wait = f"for i in $(seq 500); do [ $(ls {place} | wc -l) -ge {count} ] && exit 0; sleep 0.01; done; exit 1"
    return f"mkdir -p {place} && touch {place}/$$ && {wait}"


@contextlib.contextmanager
def looking(react: Callable[[dict[str, Any]], object] = lambda state: None) -> Iterator[list[dict[str, Any]]]:
    """Every state that is written to the state file, in order. `react` gets each before the run goes on."""
    seen: list[dict[str, Any]] = []
    render = state_file.render_state

    def look(view: Any) -> str:
        text = render(view)
        seen.append(json.loads(text))
        react(seen[-1])
        return text

    with mock.patch.object(state_file, "render_state", look):
        yield seen


def plans(tasks: Sequence[dict[str, Any]] = TWO) -> list[Rule]:
    return [
        {"when": {"role": "planner", "purpose": "propose"}, "say": "A plan.", "json": [*tasks]},
        {"when": {"role": "plan-merger"}, "files": {"{plan_path}": plan_of(tasks)}, "say": "done"},
    ]


def worker(**more: Any) -> Rule:
    """Each task has a module and its test."""
    files = {"src/{task_id}.py": "y = 1\n", "tests/test_{task_id}.py": "def test_it(): pass\n"}
    return {"when": {"role": "worker"}, "files": files, "commit": "feat: {task_id}", "say": "done", **more}


def unchanged() -> Rule:
    """What a worker says whose task is done already, after a restart."""
    return {"when": {"role": "worker"}, "json": {"nothing_to_change": True, "reason": "src has it already"}}


def basics(tasks: Sequence[dict[str, Any]] = TWO) -> list[Rule]:
    """What every good run ends with; put what goes wrong before it."""
    return [
        {"when": {"role": "explorer"}, "say": "A small program in src/app.py."},
        {"when": {"role": "brainstormer"}, "say": "Two functions, side by side."},
        *plans(tasks),
        {"when": {"role": "bug-fixer", "purpose": "revise"}, "files": {"{plan_path}": plan_of(tasks)}, "say": "done"},
        {"when": {"role": "bug-fixer"}, "run": ["echo '# mended' >> src/app.py"], "say": "mended"},
        worker(),
        {"when": {"role": "simplifier"}, "files": {"{out.simplify}": "Nothing to simplify.\n"}, "say": "done"},
        {"when": {"role": "test-analyst"}, "files": {"{out.analysis}": "The test is wrong.\n"}, "say": "done"},
        {"when": {"role": "docs-writer"}, "files": {"{out.docs}": "README is right.\n"}, "say": "done"},
        {"when": {"role": "codex-reviewer"}, "json": APPROVED},
    ]


class Staged(Front):
    """A repository, and the phase files of the runs in it."""

    def go(self, rules: Sequence[Rule], *argv: str, **settings: str) -> Done:
        given = [word for name, value in settings.items() for word in ("--set", f"{SETTINGS[name]}={value}")]
        return self.start(rules, "--flow", "staged", *given, *argv)

    def small(self, rules: Sequence[Rule], *argv: str, **settings: str) -> Done:
        """A run with one explorer and one planner: fewer dispatches, for tests of what comes after them."""
        return self.go(rules, *argv, explorers="1", planners="1", **settings)

    @property
    def files(self) -> Path:
        return self.folder / "files"

    @property
    def phases(self) -> Path:
        return self.files / ".agents/tmp/phases"

    @property
    def made(self) -> set[str]:
        return {path.name for path in self.phases.glob("*") if ".edited" not in path.name}

    @property
    def state_path(self) -> Path:
        return self.files / ".agents/tmp/state.json"

    @property
    def summaries(self) -> dict[str, str]:
        return {path.stem: path.read_text() for path in (self.files / ".agents/tmp/summaries").glob("*.md")}

    @property
    def stages(self) -> dict[str, Any]:
        return dict(json.loads(self.state_path.read_text())["stages"])

    @property
    def state(self) -> dict[str, Any]:
        return dict(json.loads(self.state_path.read_text()))

    def data(self, name: str) -> Any:
        return json.loads((self.phases / name).read_text())

    def said(self, key: str) -> str:
        """What the commands of an agent's rule printed."""
        return (self.folder / "attempts" / key / "@1" / "stderr").read_text()

    def models(self, role: str) -> dict[str, str]:
        return {event.key: event.model for event in self.events(DispatchStarted) if event.role == role}

    @property
    def outcomes(self) -> list[str]:
        """`phase outcome` of each phase that ended, in order."""
        return [f"{event.phase} {event.outcome}" for event in self.events(PhaseFinished)]

    @property
    def again(self) -> list[tuple[str, str, int]]:
        """The restarts: the stage, the stage it was restarted from, the count."""
        return [(event.stage, event.source, event.count) for event in self.events(StageRestarted)]

    def statuses(self) -> dict[str, str]:
        return {id: phase["status"] for stage in self.stages.values() for id, phase in stage["phases"].items()}

    @property
    def report(self) -> str:
        return (self.folder / "report.md").read_text()


SETTINGS = {
    "block": "blockOnSeverity",
    "fixer": "bugFixer",
    "phase": "retries.maxPerPhase",
    "stage": "retries.maxPerStage",
    "between_stages": "compaction.betweenStages",
    "between_phases": "compaction.betweenPhases",
    "explorers": "explore.agents",
    "planners": "plan.agents",
    "pr": "pullRequest",
    "code": "restart.code",
    **{stage.lower(): f"stages.{stage}.enabled" for stage in STAGES},
}
