"""The demo, through the front door: a person without a home folder's worth of set-up sees a whole run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from demos import TITLES, Demo, windlass
from windlass.config.load import load_config
from windlass.runs.demo import make_sample


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Demo:
    base = tmp_path_factory.mktemp("demo")
    home, folder = base / "home", base / "sample"
    home.mkdir()
    done = windlass(home, "demo", "--into", str(folder), cwd=base)
    return Demo(folder, home, done.returncode, done.stdout, done.stderr)


def test_the_demo_finishes_by_itself(demo: Demo) -> None:
    assert (demo.code, demo.err) == (0, ""), demo.out + demo.err


def test_the_demo_leaves_the_samples_checkout_as_it_was(demo: Demo) -> None:
    began = demo.events("run.started")[0]
    index = (demo.folder / ".git" / "index").stat().st_mtime
    assert index <= began["at"]
    assert demo.git("status", "--porcelain", "--ignored") == ""
    assert demo.git("rev-parse", "HEAD", "main").split() == [began["base"]] * 2
    assert demo.git("symbolic-ref", "HEAD") == "refs/heads/main"
    assert demo.git("stash", "list") == ""


def test_three_tasks_are_landed_on_the_runs_branch(demo: Demo) -> None:
    line = "--format=%s|%(trailers:key=Windlass-Task,valueonly,separator=)"
    log = demo.git("log", "--first-parent", "--reverse", line, f"main..{demo.branch}")
    landed = [line.split("|") for line in log.splitlines() if not line.endswith("|")]
    assert landed == [[title, f"t{number}"] for number, title in enumerate(TITLES, 1)]
    assert [event["checks"] for event in demo.events("task.landed")] == ["passed"] * 3


def test_every_task_of_the_demo_is_proved_red_without_its_code(demo: Demo) -> None:
    assert [event["proof"] for event in demo.events("task.proved")] == ["proved"] * 3
    assert "- TDD: 3 proved" in demo.out
    assert "red by absence: tests.test_token_bucket" in demo.out


@pytest.mark.parametrize("runner", ["pytest", "unittest"])
def test_what_was_built_passes_its_own_tests(demo: Demo, tmp_path: Path, runner: str) -> None:
    demo.git("worktree", "add", "--quiet", "--detach", str(tmp_path / "built"), demo.branch)
    command = [sys.executable, "-m", runner, "-q"]
    done = subprocess.run(command, cwd=tmp_path / "built", capture_output=True, text=True, check=False)
    demo.git("worktree", "remove", "--force", str(tmp_path / "built"))
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert "27 passed" in said or "Ran 27 tests" in said


@pytest.mark.req("S0-52")
def test_the_review_that_failed_led_to_a_fix_and_passed(demo: Demo) -> None:
    specs = [e for e in demo.events("review.finished") if e["task"] == "t2" and e["role"] == "spec-reviewer"]
    assert [event["verdict"] for event in specs] == ["fail", "pass"]
    assert "missing IP extraction" in specs[0]["findings"][0]["message"]
    fixes = [event["key"] for event in demo.events("dispatch.finished") if ".fix#" in event["key"]]
    assert fixes == ["execute/t2/spec.fix#1"]


@pytest.mark.req("S0-72")
def test_the_report_tells_what_the_events_tell(demo: Demo) -> None:
    costs = [event["cost_usd"] for event in demo.events("dispatch.finished")]
    [report] = demo.events("report.written")
    assert round(sum(costs), 2) == 4.82
    assert "Total cost: $4.82" in report["text"]
    assert [title for title in TITLES if f"✅ {title}" in report["text"]] == list(TITLES)
    assert "3 completed" in report["text"]
    assert report["text"].strip() in demo.out


def test_it_ends_with_where_the_sample_is_and_what_to_try(demo: Demo) -> None:
    end = demo.out[demo.out.index("The sample repository is yours") :]
    wanted = (f"cd {demo.folder}", f"git diff main..{demo.branch}", "windlass land")
    assert [line for line in wanted if line not in end] == []


@pytest.mark.parametrize("command", ["status", "show", "log", "runs"])
def test_the_commands_to_try_work_in_the_sample(demo: Demo, command: str) -> None:
    done = demo.windlass(command)
    assert (done.returncode, done.stderr) == (0, "")
    assert "rate limiting" in done.stdout


def test_a_folder_with_something_in_it_is_refused_and_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    done = windlass(tmp_path, "demo", "--into", str(tmp_path), cwd=tmp_path)
    assert (done.returncode, [path.name for path in tmp_path.iterdir()]) == (1, ["mine.txt"])
    assert "is not empty" in done.stderr
    assert "hint: " in done.stderr


def test_a_second_demo_into_the_same_folder_is_refused(demo: Demo) -> None:
    done = windlass(demo.home, "demo", "--into", str(demo.folder), cwd=demo.folder)
    assert (done.returncode, "is not empty" in done.stderr) == (1, True)
    assert len(json.loads(demo.windlass("runs", "--json").stdout)) == 1


@pytest.mark.long
def test_with_ask_and_no_terminal_the_first_question_waits(tmp_path: Path) -> None:
    done = windlass(tmp_path, "demo", "--ask", "--into", str(tmp_path / "sample"), cwd=tmp_path)
    assert done.returncode == 10, done.stdout + done.stderr
    status = windlass(tmp_path, "status", cwd=tmp_path / "sample")
    assert "Approve this plan?" in status.stdout


def test_without_pytest_the_sample_checks_itself_with_unittest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("windlass.runs.demo.find_spec", lambda name: None)
    make_sample(tmp_path)
    config = load_config(tmp_path, tmp_path / "none", {})
    [command] = config.checks.commands
    assert command == (sys.executable, "-m", "unittest", "-q")
    assert subprocess.run(command, cwd=tmp_path, capture_output=True, check=False).returncode == 0


def test_a_real_agent_that_is_not_there_is_told_before_anything_is_made(tmp_path: Path) -> None:
    argv = ("demo", "--agent", "claude", "--bin", str(tmp_path / "nowhere"), "--into", str(tmp_path / "sample"))
    done = windlass(tmp_path, *argv, cwd=tmp_path)
    assert (done.returncode, (tmp_path / "sample").exists()) == (1, False)
    assert "hint: install claude, or give its path: --bin PATH" in done.stderr
