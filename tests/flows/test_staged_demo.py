"""The staged demo: a code error that 3.1 finds restarts IMPLEMENT once, and the second visit repairs it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from demos import Demo, windlass
from staged import PHASES, STAGES
from windlass.runs.demo import SCENES

SCENE = SCENES["staged"]
BUILT = {
    "tests/end_to_end.py",
    "shortlink/store.py",
    "tests/test_expiry.py",
    "shortlink/lifetime.py",
    "tests/test_lifetime.py",
    "shortlink/app.py",
    "tests/test_app_expiry.py",
    "README.md",
}


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Demo:
    base = tmp_path_factory.mktemp("demo")
    home, folder = base / "home", base / "sample"
    home.mkdir()
    done = windlass(home, "demo", "--flow", "staged", "--into", str(folder), cwd=base)
    return Demo(folder, home, done.returncode, done.stdout, done.stderr)


def state_of(demo: Demo) -> dict[str, Any]:
    [path] = demo.folder.glob(".git/windlass/runs/*/files/.agents/tmp/state.json")
    return dict(json.loads(path.read_text()))


@pytest.mark.long
def test_it_finishes_by_itself_and_asks_nothing(demo: Demo) -> None:
    assert (demo.code, demo.err) == (0, ""), demo.out + demo.err
    assert demo.events("question.asked") == []


@pytest.mark.long
def test_five_stages_and_thirteen_phases_are_completed(demo: Demo) -> None:
    stages = state_of(demo)["stages"]
    assert {name: stage["status"] for name, stage in stages.items()} == dict.fromkeys(STAGES, "completed")
    phases = {id: phase["status"] for stage in stages.values() for id, phase in stage["phases"].items()}
    assert phases == dict.fromkeys(PHASES, "completed")


@pytest.mark.long
def test_the_code_error_in_the_tests_restarts_implement_once(demo: Demo) -> None:
    [restart] = demo.events("stage.restarted")
    assert (restart["stage"], restart["source"], restart["count"], restart["by"]) == (
        "IMPLEMENT",
        "TEST",
        1,
        "windlass",
    )
    assert restart["reason"].startswith("failure in shortlink/app.py: ")
    results = [event["outcome"] for event in demo.events("phase.finished") if event["phase"] == "3.1"]
    assert results == ["failed.source", "ok"]
    [report] = demo.events("report.written")
    assert "- IMPLEMENT: completed, 1 restart" in report["text"]
    assert "- IMPLEMENT restarted from TEST, 1 restart so far: failure in shortlink/app.py" in report["text"]


@pytest.mark.long
def test_two_reviews_find_one_issue_each_and_pass_after_the_fix(demo: Demo) -> None:
    verdicts: dict[str, list[str]] = {}
    for event in demo.events("review.finished"):
        if event["role"]:
            verdicts.setdefault(event["key"].split("/")[0].split("+")[0], []).append(event["verdict"])
    assert verdicts == {
        "1.3": ["fail", "pass"],
        "2.3": ["fail", "pass", "pass"],
        "3.3": ["pass"],
        "4.2": ["pass"],
    }


@pytest.mark.long
def test_every_landing_passed_the_checks_and_two_waves_were_built(demo: Demo) -> None:
    landed = demo.events("task.landed")
    assert {event["checks"] for event in landed} == {"passed"}
    assert [event["task"] for event in landed if event["files"]] == ["t1", "t2", "t3", "t3"]
    assert {event["checks"] for event in demo.events("fix.landed")} == {"passed"}
    unchanged = [event for event in demo.events("warned") if "changed nothing" in event["text"]]
    assert len(unchanged) == 2


@pytest.mark.long
def test_the_report_names_every_changed_file_and_the_whole_cost(demo: Demo) -> None:
    [report] = demo.events("report.written")
    listed = report["text"].split("## Changed Files\n")[1].split("\n\n")[0].splitlines()
    assert {line.strip("- `") for line in listed} == BUILT
    changed = demo.git("diff", "--name-only", f"main..{demo.branch}").splitlines()
    assert set(changed) == BUILT
    costs = [event["cost_usd"] for event in demo.events("dispatch.finished")]
    assert f"Total cost: ${sum(costs):.2f}" in report["text"]


@pytest.mark.long
def test_what_was_built_passes_its_tests_and_the_end_to_end_check(demo: Demo, tmp_path: Path) -> None:
    demo.git("worktree", "add", "--quiet", "--detach", str(tmp_path / "built"), demo.branch)
    for module in ("unittest", SCENE.test_module):
        done = subprocess.run([sys.executable, "-m", module], cwd=tmp_path / "built", capture_output=True, check=False)
        assert done.returncode == 0, done.stderr.decode()
    demo.git("worktree", "remove", "--force", str(tmp_path / "built"))


@pytest.mark.long
def test_each_stage_begins_with_the_line_of_stages(demo: Demo) -> None:
    lines = [line for line in demo.out.splitlines() if "EXPLORE" in line and "FINAL" in line]
    assert lines == [
        "▸ EXPLORE ○ PLAN ○ IMPLEMENT ○ TEST ○ FINAL",
        "✓ EXPLORE ▸ PLAN ○ IMPLEMENT ○ TEST ○ FINAL",
        "✓ EXPLORE ✓ PLAN ▸ IMPLEMENT ○ TEST ○ FINAL",
        "✓ EXPLORE ✓ PLAN ✓ IMPLEMENT ▸ TEST ○ FINAL",
        "✓ EXPLORE ✓ PLAN ▸ IMPLEMENT (restart 1 of 3) ✗ TEST ○ FINAL",
        "✓ EXPLORE ✓ PLAN ✓ IMPLEMENT (restart 1 of 3) ▸ TEST ○ FINAL",
        "✓ EXPLORE ✓ PLAN ✓ IMPLEMENT (restart 1 of 3) ✓ TEST ▸ FINAL",
    ]
    assert demo.out.count("▸ Task 3/3: Expiry over HTTP") == 2


@pytest.mark.long
def test_status_and_show_have_the_stages_and_the_restart(demo: Demo) -> None:
    for command in ("status", "show"):
        assert "✓ IMPLEMENT (restart 1 of 3)" in " ".join(demo.windlass(command).stdout.split())
    assert "Restarts\n  - IMPLEMENT restarted from TEST" in demo.windlass("show").stdout


@pytest.mark.long
def test_the_checkout_is_as_it_was(demo: Demo) -> None:
    assert demo.git("status", "--porcelain", "--ignored") == ""
    assert demo.git("symbolic-ref", "HEAD") == "refs/heads/main"


def test_only_the_sample_can_be_made(tmp_path: Path) -> None:
    folder = tmp_path / "sample"
    done = windlass(tmp_path, "demo", "--flow", "staged", "--no-run", "--into", str(folder), cwd=tmp_path)
    assert f"windlass run --flow staged '{SCENE.request}'" in done.stdout
    assert "[commands.test]" in (folder / ".windlass/config.toml").read_text()


@pytest.mark.long
def test_a_person_may_skip_the_phase_that_failed_and_the_reports_repeat_it(tmp_path: Path) -> None:
    folder = tmp_path / "sample"
    windlass(tmp_path, "demo", "--flow", "staged", "--no-run", "--into", str(folder), cwd=tmp_path)
    settings = ("--set", "retries.maxPerStage=0", SCENE.request)
    asked = windlass(tmp_path, "run", "--flow", "staged", *settings, cwd=folder)
    assert asked.returncode == 10, asked.stdout
    assert "?. " not in asked.stdout
    done = windlass(tmp_path, "skip", "--why", "known and accepted", cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "– 3.1 waived by windlass skip: known and accepted" in done.stdout
    assert "- 3.1: known and accepted (by windlass skip)" in done.stdout
    assert "Waivers\n  - 3.1: known and accepted (by windlass skip)" in windlass(tmp_path, "show", cwd=folder).stdout
