"""No staged run needs more dispatches or questions than `flow simulate` predicts. `make bounds` tries many more."""

from __future__ import annotations

import json
import os
import random
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from front import Rule
from staged import SETTINGS, Staged, basics, issue, review, unchanged, worker
from windlass.events import DispatchStarted, QuestionAsked

RUNS = int(os.environ.get("WINDLASS_BOUNDS_RUNS", "1"))
CONFIG = '[retries]\npauses = ["0s"]\n[commands.test]\ncommands = [["sh", "{test}"]]\n'
#: Each run of the tests takes the next line: what they complain about.
TEST = """\
line=$(head -n 1 {verdicts})
sed -i 1d {verdicts}
case "$line" in
  source) echo src/app.py:1: wrong; exit 1;;
  test) echo tests/test_t1.py:1: wrong; exit 1;;
  unknown) echo wrong; exit 1;;
esac
"""
#: Answers that do not lead back. Those that do are unbounded: a person decides how often.
ANSWERS = {"failure": ("skip",) * 8 + ("abort",), "restarts-used-up": ("force",) * 8 + ("abort",)}
SEVERITIES = ("low", "medium", "high", "critical")
ROLES = ("explorer", "brainstormer", "plan-merger", "simplifier", "docs-writer", "bug-fixer", "worker")
REVIEWS = ("1.3", "2.3", "3.3", "4.2")


@dataclass(frozen=True)
class Chances:
    """The settings of one run and all that goes wrong in it, from one number."""

    seed: int

    @property
    def _chance(self) -> random.Random:
        return random.Random(self.seed)

    @cached_property
    def settings(self) -> dict[str, str]:
        chance = self._chance
        off = chance.sample(("EXPLORE", "TEST", "FINAL"), chance.choice((0, 0, 0, 1, 2)))
        return {
            "explore.agents": str(chance.randint(1, 3)),
            "plan.agents": str(chance.randint(1, 3)),
            "retries.maxPerPhase": str(chance.randint(0, 2)),
            "retries.maxPerStage": str(chance.randint(0, 2)),
            "blockOnSeverity": chance.choice(SEVERITIES),
            "restart.code": chance.choice(("keep", "reset")),
            "compaction.betweenPhases": chance.choice(("true", "false")),
            **{SETTINGS[stage.lower()]: "false" for stage in off},
        }

    @cached_property
    def tasks(self) -> list[dict[str, Any]]:
        chance = random.Random(self.seed + 1)
        rated = ("easy", "medium", "hard")
        count = chance.randint(1, 3)
        return [
            {"title": f"Task {n}", "description": f"Do {n}.", "difficulty": chance.choice(rated)}
            for n in range(1, count + 1)
        ]

    @cached_property
    def verdicts(self) -> list[str]:
        chance = random.Random(self.seed + 2)
        return chance.choices(("source", "test", "unknown", "ok"), weights=(3, 3, 1, 4), k=12)

    @cached_property
    def rules(self) -> list[Rule]:
        chance = random.Random(self.seed + 3)
        # Every third run meets reviewers that are hardly ever content.
        phases = [phase for phase in REVIEWS for _ in range(chance.randint(0, 4) if self.seed % 3 else 12)]
        found = [self._bad_review(chance, phase) for phase in phases]
        broken = {"exit": 3, "stderr": "it broke"}
        found += [
            {"when": {"role": role}, "times": chance.randint(1, 4), **broken}
            for role in ROLES
            if chance.random() < 0.25
        ]
        chance.shuffle(found)
        # Tasks of one wave write the same line, so that they conflict.
        shared = {"src/shared.py": "{task_id}\n", "src/{task_id}.py": "y = 1\n"}
        first = worker(files=shared) if chance.random() < 0.5 else worker()
        return [*found, {**first, "times": len(self.tasks)}, unchanged(), *basics(self.tasks)]

    def _bad_review(self, chance: random.Random, phase: str) -> Rule:
        times = chance.randint(1, 2)
        if chance.random() < 0.2:
            return {"when": {"role": "codex-reviewer", "phase": phase}, "times": times, "say": "I do not know."}
        issues = [issue(f"wrong {chance.random()}", chance.choice(SEVERITIES)) for _ in range(chance.randint(1, 3))]
        status = chance.choice(("approved", "blocked")) if phase == "4.2" else "needs_revision"
        return review(phase, status, *issues, times=times)


class Insistent(Chances):
    """The tests find a source error each time, and no stage may be restarted."""

    settings = {"retries.maxPerPhase": "0", "retries.maxPerStage": "0", "explore.agents": "1", "plan.agents": "1"}
    tasks = [{"title": "Task 1", "description": "Do 1."}]
    verdicts = ["source"] * 12
    rules = [{**worker(), "times": 1}, unchanged(), *basics(tasks)]


@pytest.mark.req("S3-78")
def test_a_source_error_that_stays_ends_within_the_bounds(tmp_path: Path) -> None:
    check(Insistent(1), random.Random(1), tmp_path)


@pytest.mark.req("S3-78")
@pytest.mark.parametrize("seed", range(RUNS))
def test_a_run_stays_within_what_the_simulation_predicts(seed: int, tmp_path: Path) -> None:
    check(Chances(seed * 1000), random.Random(seed * 1000 + 4), tmp_path)


def check(chances: Chances, chance: random.Random, tmp_path: Path) -> None:
    verdicts, test = tmp_path / "verdicts", tmp_path / "test.sh"
    verdicts.write_text("\n".join(chances.verdicts) + "\n")
    test.write_text(TEST.format(verdicts=verdicts))
    front = Staged(tmp_path, CONFIG.format(test=test))
    given = [word for name, value in chances.settings.items() for word in ("--set", f"{name}={value}")]
    code = front.start(chances.rules, "--flow", "staged", "--budget", "100000", *given).code
    while code == 10:
        [question] = front.status["questions"]
        code = front("answer", chance.choice(ANSWERS[question["id"]])).code
    assert code in (0, 12, 14)

    said = front("flow", "simulate", "staged", "--tasks", str(len(chances.tasks)), *given, "--json").out
    most = json.loads(said)["max_dispatches"], json.loads(said)["max_questions"]
    dispatches = len({event.key for event in front.events(DispatchStarted)})
    questions, restarts = len(front.events(QuestionAsked)), front.state["restartCount"]
    used = f"{dispatches} of {most[0]} dispatches, {questions} of {most[1]} questions, {restarts} restarts"
    print(f"bounds {chances.seed}: {used}")
    assert dispatches <= most[0]
    assert questions <= most[1]
