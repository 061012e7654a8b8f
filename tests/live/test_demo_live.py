"""The whole plan demo through each real CLI: same tasks landed, same report, nothing of the user's touched."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from clis import CLIS, PATIENT, binary_of

from demos import TITLES, Demo

HEADINGS = ["## Tasks", "## Final Review", "## Decisions", "## Changed Files", "## Where The Code Is"]


def play(name: str, base: Path) -> tuple[int, str, str]:
    home, folder = base / "home", base / "sample"
    home.mkdir()
    command = [sys.executable, "-m", "windlass", "demo", "--agent", name, "--bin", str(binary_of(name))]
    env = {"PATH": os.environ["PATH"], "HOME": str(home), "LANG": "C.UTF-8"}
    done = subprocess.run(
        [*command, "--into", str(folder)],
        cwd=base,
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=5 * PATIENT,
    )
    return done.returncode, done.stdout, done.stderr


def it_finishes_by_itself(demo: Demo) -> None:
    assert (demo.code, demo.err) == (0, ""), demo.out + demo.err
    assert "3/3 tasks" in demo.out


def the_same_three_tasks_are_landed_and_checked(demo: Demo) -> None:
    line = "--format=%s|%(trailers:key=Windlass-Task,valueonly,separator=)"
    log = demo.git("log", "--first-parent", "--reverse", line, f"main..{demo.branch}")
    landed = [line.split("|") for line in log.splitlines() if not line.endswith("|")]
    assert landed == [[title, f"t{number}"] for number, title in enumerate(TITLES, 1)]
    assert [event["checks"] for event in demo.events("task.landed")] == ["passed"] * 3


def every_dispatch_was_the_real_clis_and_needed_one_attempt(demo: Demo) -> None:
    started = demo.events("dispatch.started")
    assert len({event["agent"] for event in started}) == 1
    assert len(started) == len({event["key"] for event in started})


def the_review_that_failed_led_to_a_fix(demo: Demo) -> None:
    specs = [e for e in demo.events("review.finished") if e["task"] == "t2" and e["role"] == "spec-reviewer"]
    assert [event["verdict"] for event in specs] == ["fail", "pass"]


def the_report_has_the_same_shape_and_tells_the_cost_or_that_it_is_unknown(demo: Demo) -> None:
    [report] = demo.events("report.written")
    assert [heading for heading in HEADINGS if heading not in report["text"]] == []
    costs = [event["cost_usd"] for event in demo.events("dispatch.finished")]
    total = next(line for line in report["text"].splitlines() if "Total cost:" in line)
    assert "assumed for" in total if None in costs else f"Total cost: ${sum(costs):.2f} " in total


def the_checkout_is_as_it_was(demo: Demo) -> None:
    assert demo.git("status", "--porcelain", "--ignored") == ""
    assert demo.git("symbolic-ref", "HEAD") == "refs/heads/main"
    assert demo.git("stash", "list") == ""


FACTS = (
    it_finishes_by_itself,
    the_same_three_tasks_are_landed_and_checked,
    every_dispatch_was_the_real_clis_and_needed_one_attempt,
    the_review_that_failed_led_to_a_fix,
    the_report_has_the_same_shape_and_tells_the_cost_or_that_it_is_unknown,
    the_checkout_is_as_it_was,
)


# One test for each CLI: as several, they would make both workers play or wait for the same demo.
@pytest.mark.parametrize("name", CLIS)
def test_the_same_three_tasks_are_landed_and_checked(name: str, tmp_path: Path) -> None:
    demo = Demo(tmp_path / "sample", tmp_path / "home", *play(name, tmp_path))
    for holds in FACTS:
        holds(demo)
