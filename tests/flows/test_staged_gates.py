"""Gates of the staged flow: a file that a person deletes between phases blocks the run, and a person has ways out."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import zygote
from front import Done
from staged import APPROVED, FILES, SETTINGS, Staged, basics, unchanged, worker
from windlass.driver.artifacts import EngineArtifacts
from windlass.events import PhaseEntered, PhaseSkipped, QuestionAnswered, QuestionAsked, StageRestarted
from windlass.model import Key
from windlass.views.state_file import render_state

FOLDER = ".agents/tmp/phases"
ONE = [{"title": "Add sub", "description": "Do sub."}]
RULES = [worker(times=1), unchanged(), *basics(ONE)]
LEAN = {"explorers": "1", "planners": "1"}
GATES = [
    ("1.1", "0-explore.md"),
    ("2.1", "1.3-plan-review.json"),
    ("3.1", "2.1-tasks.json"),
    ("4.1", "3.3-test-review.json"),
    ("4.3", "4.2-final-review.json"),
    ("2.1", "1.2-plan.md"),
    ("3.1", "2.3-impl-review.json"),
    ("4.1", "3.1-test-results.json"),
]


@pytest.fixture
def front(tmp_path: Path) -> Staged:
    return Staged(tmp_path)


def blocked(front: Staged, phase: str, *names: str, **settings: str) -> tuple[Done, dict[str, str]]:
    """A run whose files a person deletes at the last moment before the gate of a phase looks. What they contained."""
    real, contents = EngineArtifacts.missing_files, {}

    async def missing_files(self: EngineArtifacts, key: Key, needed: Sequence[str]) -> list[str]:
        if key.text == f"{phase}/gate#1":
            for name in names:
                path = front.phases / name
                contents[name] = path.read_text()
                path.unlink()
        return await real(self, key, needed)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(EngineArtifacts, "missing_files", missing_files)
        done = front.go(RULES, **LEAN, **settings)
    assert sorted(contents) == sorted(names), f"the gate of {phase} was never looked at"
    return done, contents


def entered(front: Staged) -> list[str]:
    return [event.key for event in front.events(PhaseEntered)]


def opened(front: Staged) -> list[str]:
    return [question["id"] for question in front.status["questions"]]


@pytest.mark.req("S3-07", "S3-15", "S3-22", "S3-33", "S3-42", "S3-47")
@pytest.mark.sweep(4)
@pytest.mark.parametrize(("phase", "name"), GATES)
def test_a_deleted_file_blocks_its_gate_until_a_person_has_it_restored(front: Staged, phase: str, name: str) -> None:
    done, contents = blocked(front, phase, name)
    path = front.phases / name
    assert done.code == 12
    assert f"{phase} cannot begin: '{FOLDER}/{name}' was deleted" in " ".join(done.out.split())
    hint = " ".join((done.out + done.err).split())
    assert all(way in hint for way in ("windlass resume", "windlass restart --stage", "windlass skip"))
    assert (front.view.state, front.state["status"]) == ("blocked", "blocked")
    assert name in front.state["reason"]
    assert phase not in entered(front)
    assert not path.exists()

    assert front("resume").code == 10
    [asked] = front.events(QuestionAsked)
    assert (asked.id, f"{FOLDER}/{name}" in asked.detail) == ("restore", True)
    assert not path.exists(), "it was restored before the answer"
    left = front("answer", "leave")
    assert left.code == 12
    assert f"'{FOLDER}/{name}' was deleted" in " ".join(left.out.split())
    assert (phase in entered(front), path.exists()) == (False, False)

    assert front("resume").code == 10
    assert front("answer", "restore").code == 0
    assert path.read_text() == contents[name]
    assert entered(front).count(phase) == 1
    assert front.state_path.read_text() == render_state(front.view)


@pytest.mark.parametrize(
    "argv", [("resume", "--yes"), ("resume", "--answer", "restore=restore")], ids=["yes", "answer"]
)
@pytest.mark.sweep(2)
def test_a_resume_that_says_so_restores_without_a_question(front: Staged, argv: tuple[str, ...]) -> None:
    _, contents = blocked(front, "2.1", "1.2-plan.md", "1.3-plan-review.json")
    assert front(*argv).code == 0
    assert {name: (front.phases / name).read_text() for name in contents} == contents


@pytest.mark.req("S3-07")
def test_all_deleted_files_of_a_gate_are_named_at_once(front: Staged) -> None:
    done, contents = blocked(front, "2.1", "1.2-plan.md", "1.3-plan-review.json")
    said = " ".join(done.out.split())
    assert all(f"'{FOLDER}/{name}'" in said for name in contents)
    assert front("resume").code == 10
    [asked] = front.events(QuestionAsked)
    assert asked.detail.splitlines() == [f"{FOLDER}/{name}" for name in contents]


@pytest.mark.req("S3-07", "S3-10")
def test_a_skip_lets_the_phase_begin_without_the_file_and_the_report_says_so(front: Staged) -> None:
    blocked(front, "3.1", "2.3-impl-review.json")
    assert front("skip", "--why", "I have read it").code == 0
    waived = [event for event in front.events(PhaseSkipped) if event.waived]
    assert [(event.phase, event.by) for event in waived] == [("3.1", "windlass skip")]
    assert "2.3-impl-review.json" in waived[0].reason
    assert entered(front).count("3.1") == 1
    assert [one["phase"] for one in front.state["waivers"]] == ["3.1"]
    assert front.statuses()["3.1"] == "completed", "the phase itself was carried out"
    report = " ".join(front.report.split())
    assert "2.3-impl-review.json" in report
    assert "I have read it" in report
    assert not (front.phases / "2.3-impl-review.json").exists(), "a skip makes up no file"


@pytest.mark.parametrize("argv", [("skip",), ("restart", "--stage", "IMPLEMENT")], ids=["skip", "restart"])
def test_a_person_s_own_way_answers_the_question_about_the_deleted_file(front: Staged, argv: tuple[str, ...]) -> None:
    blocked(front, "3.1", "2.3-impl-review.json")
    assert front("resume").code == 10
    assert front(*argv).code == 0
    assert opened(front) == []
    [answer] = front.events(QuestionAnswered)
    assert (answer.id, answer.by) == ("restore", f"windlass {argv[0]}")
    assert [event.phase for event in front.events(PhaseEntered)].count("3.1") == 1
    assert front.state_path.read_text() == render_state(front.view)


@pytest.mark.req("S3-67", "S3-72")
def test_a_restart_of_the_stage_makes_the_file_again(front: Staged) -> None:
    blocked(front, "3.1", "2.1-tasks.json")
    assert front("restart", "--stage", "IMPLEMENT").code == 0
    assert [(one.stage, one.count) for one in front.events(StageRestarted)] == [("IMPLEMENT", 1)]
    assert front.made >= FILES["IMPLEMENT"]
    assert entered(front).count("2.1+2") == 1
    assert {event.phase for event in front.events(PhaseSkipped)} == set()


def test_a_file_that_an_agent_deletes_blocks_as_well(front: Staged) -> None:
    plan = front.root / f".git/windlass/runs/*/files/{FOLDER}/1.2-plan.md"
    careless = {"when": {"role": "codex-reviewer", "phase": "1.3"}, "run": [f"rm {plan}"], "json": APPROVED}
    done = front.go([careless, *RULES], **LEAN)
    assert done.code == 12
    assert "2.1 cannot begin: '.agents/tmp/phases/1.2-plan.md' was deleted" in " ".join(done.out.split())
    assert front("resume", "--yes").code == 0


@pytest.mark.req("S3-83")
def test_with_test_off_the_gate_before_final_looks_at_the_files_of_implement(front: Staged) -> None:
    done, _ = blocked(front, "4.1", "2.3-impl-review.json", test="false")
    assert done.code == 12
    assert "4.1 cannot begin" in done.out
    assert front("resume", "--yes").code == 0


@pytest.mark.long
def test_a_deleted_file_that_no_gate_needs_blocks_nothing(front: Staged) -> None:
    done, _ = blocked(front, "3.1", "2.2-simplify.md", "1.1-brainstorm.md")
    assert done.code == 0


@pytest.mark.sweep(2)
@pytest.mark.parametrize(("phase", "name"), [("2.1", "1.2-plan.md"), ("4.1", "3.3-test-review.json")])
def test_after_a_kill_a_missing_file_is_written_again_without_a_question(front: Staged, phase: str, name: str) -> None:
    """The driver may have died before it wrote the file: nobody deleted it."""
    assert killed(front, f"before {phase}/gate#1") == -signal.SIGKILL
    text = (front.phases / name).read_text()
    (front.phases / name).unlink()
    assert front("resume").code == 0
    assert front.events(QuestionAsked) == []
    assert (front.phases / name).read_text() == text


@pytest.mark.long
def test_a_file_deleted_from_a_run_at_rest_is_asked_about_before_the_run_goes_on(front: Staged) -> None:
    """At a question of the flow, long before the gate that needs the file."""
    rules: list[Any] = [{"when": {"role": "simplifier"}, "exit": 3, "stderr": "no"}, *RULES]
    assert front.go(rules, **LEAN).code == 10
    (front.phases / "2.1-tasks.json").unlink()
    front.say(RULES)
    assert front("answer", "retry").code == 10
    assert opened(front) == ["restore"]
    assert front("answer", "restore").code == 0
    assert front.made >= FILES["IMPLEMENT"]


def killed(front: Staged, point: str) -> int:
    front.say(RULES)
    given = [word for name, value in LEAN.items() for word in ("--set", f"{SETTINGS[name]}={value}")]
    argv = ["-m", "windlass", "run", "--flow", "staged", "--script", str(front.script), *given, "--", "Add sub"]
    return int(zygote.run(argv, cwd=front.root, env={**front.env, "WINDLASS_CRASH": point}).returncode)
