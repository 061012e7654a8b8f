"""The staged flow on two real CLIs: codex reviews, fixes and builds the hard task; claude does everything else."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from clis import binary_of, left_behind, options
from runs_live import MODELS

from staged import FILES, PHASES, STAGES, Staged, basics, issue, review, unchanged, worker
from windlass.events import DispatchFinished, DispatchStarted, StageRestarted
from windlass.testing.scripted_model import ScriptedModel

Model = Callable[..., ScriptedModel]
BOTH = ("claude", "codex")
ON_CODEX = "".join(f'[roles.{role}]\nagent = "codex"\n' for role in ("codex-reviewer", "codex-high", "codex-xhigh"))
REQUEST = ("--flow", "staged", "--yes", "--", "Add sub and mul")
TASKS = (
    {"title": "Add sub", "description": "Do sub.", "difficulty": "hard"},
    {"title": "Add mul", "description": "Do mul.", "difficulty": "easy"},
)
USAGE = {"input": 9_000, "output": 300}
#: `lint` names the source file that does not compile
COMMANDS = """\
[commands.lint]
commands = [["python3", "-m", "compileall", "-q", "src"]]
[commands.test]
commands = [["python3", "tests/test_t1.py"], ["python3", "tests/test_t2.py"]]
"""
PLAYED = [
    *[("0", "explorer", "claude")] * 3,
    ("1.1", "brainstormer", "claude"),
    *[("1.2", "planner", "claude")] * 2,
    ("1.2", "plan-merger", "claude"),
    ("1.3", "codex-reviewer", "codex"),
    ("2.1", "worker", "codex"),
    ("2.1", "worker", "claude"),
    ("2.2", "simplifier", "claude"),
    ("2.3", "codex-reviewer", "codex"),
    ("2.3", "bug-fixer", "codex"),
    ("2.3", "codex-reviewer", "codex"),
    ("2.1+2", "worker", "codex"),
    ("2.1+2", "worker", "claude"),
    ("2.2+2", "simplifier", "claude"),
    ("2.3+2", "codex-reviewer", "codex"),
    ("3.3", "codex-reviewer", "codex"),
    ("4.1", "docs-writer", "claude"),
    ("4.2", "codex-reviewer", "codex"),
]


def served_by(server: ScriptedModel, *, on_path: bool = False) -> str:
    """The configuration of both CLIs. It names neither a default agent nor a role."""
    lines = []
    for name in BOTH:
        given = {**options(server, binary_of(name)), "model": MODELS[name]}
        if on_path:
            del given["bin"]
        lines += [f"[agents.{name}]", *(f"{key} = {json.dumps(value)}" for key, value in given.items())]
    return "\n".join([*lines, ""])


def rules() -> list[dict[str, Any]]:
    """The hard task does not compile until its stage is restarted; one review finds one issue."""
    hard = {"role": "worker", "task": "t1"}
    broken = {"src/t1.py": "y = (\n", "tests/test_t1.py": "def test_it(): pass\n"}
    listed = [
        worker(when=hard, files=broken, times=1),
        worker(when=hard, files={"src/t1.py": "y = 1\n"}),
        worker(times=1),
        unchanged(),
        {"when": {"role": "bug-fixer"}, "run": ["echo '# checked' >> src/app.py"], "say": "Done."},
        review("2.3", "needs_revision", issue("x is not checked", file="src/app.py"), times=1),
        *basics(TASKS),
    ]
    return [{**rule, "usage": USAGE} for rule in listed]


def test_a_whole_run_is_played_by_codex_and_claude(tmp_path: Path, model: Model) -> None:
    config = f'[agents]\ndefault = "claude"\n{served_by(model(*rules()))}{ON_CODEX}{COMMANDS}'
    front = Staged(tmp_path, config, files={".gitignore": "__pycache__/\n"})
    done = front("run", *REQUEST)
    assert (done.code, front.asked) == (0, []), done.out + done.err

    started = front.events(DispatchStarted)
    # Calls of one phase that run at the same time start in any order.
    played = [(event.key.partition("/")[0], event.role, event.agent) for event in started]
    assert sorted(played) == sorted(PLAYED)
    by_task = {(event.task, event.agent) for event in started if event.role == "worker"}
    assert by_task == {("t1", "codex"), ("t2", "claude")}

    assert {id: stage["status"] for id, stage in front.stages.items()} == dict.fromkeys(STAGES, "completed")
    assert front.statuses() == dict.fromkeys(PHASES, "completed")
    # All tests passed in the end: there was nothing to analyze.
    assert front.made == set().union(*FILES.values()) - {"3.2-analysis.md"}
    assert front.data("3.1-test-results.json")["ok"] is True

    [restart] = front.events(StageRestarted)
    assert (restart.stage, restart.source, restart.count) == ("IMPLEMENT", "TEST", 1)
    assert "- IMPLEMENT: completed, 1 restart\n" in front.report
    assert front.report.count("IMPLEMENT restarted from TEST") == 1
    assert "SyntaxError" in front.prompt("2.1+2/t1/implement")

    assert {"src/t1.py", "src/t2.py"} <= front.landed
    changed = front.git("diff", "--name-only", "main", front.branch).splitlines()
    assert [name for name in changed if f"- `{name}`\n" not in front.report] == []
    assert "# checked" in front.show("src/app.py")
    assert front.git("ls-tree", "-r", "--name-only", front.branch, ".agents") == ""
    assert front.git("status", "--porcelain") == ""

    costs: dict[str, float] = {}
    for event in front.events(DispatchFinished):
        assert event.cost_usd, event
        costs[event.agent] = costs.get(event.agent, 0) + event.cost_usd
    assert set(costs) == set(BOTH)
    told = front.status
    assert told["known_usd"] == pytest.approx(sum(costs.values()))
    assert (told["assumed_usd"], told["assumed_dispatches"]) == (0, 0)
    assert left_behind(front.run) == []


def put_on_path(front: Staged, names: Sequence[str]) -> None:
    folder = front.clis()
    for name in names:
        (folder / name).symlink_to(binary_of(name))


@pytest.mark.parametrize("names", [BOTH, BOTH[:1]], ids=["both", "only the first"])
def test_without_roles_in_the_config_the_installed_clis_decide(
    names: tuple[str, ...], tmp_path: Path, model: Model
) -> None:
    front = Staged(tmp_path)
    put_on_path(front, names)
    users = {one["name"]: set(one["roles"]) for one in json.loads(front("agents", "--json").out)}
    reviewer = names[-1]
    assert "codex-reviewer" in users[reviewer]
    assert {"explorer", "planner", "worker", "docs-writer"} <= users["claude"]

    front.configure(served_by(model(*rules()), on_path=True))
    stages = [f"stages.{stage}.enabled={str(stage == 'PLAN').lower()}" for stage in STAGES]
    done = front("run", *(word for one in stages for word in ("--set", one)), "--set", "plan.agents=1", *REQUEST)
    assert done.code == 0, done.out + done.err
    played = {event.role: event.agent for event in front.events(DispatchStarted)}
    assert played.pop("codex-reviewer") == reviewer
    assert set(played.values()) == {"claude"}
