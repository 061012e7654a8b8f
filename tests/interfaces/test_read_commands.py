"""Reading and steering runs through the front door: status, runs, show, log, answer, pause, abort."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from front import LEAN, Front, basics, scout
from gitrepo import footprint, sh
from windlass.locks import driver_lock

WORDS = "run task resume retry status runs show log answer pause abort fork land gc check doctor init agents"
FLOW_WORDS = "list show check graph simulate new"
READING = [["status"], ["runs"], ["show"], ["log"]]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Front:
    front = Front(tmp_path_factory.mktemp("finished"), LEAN)
    assert front.start(basics("One"), "--yes").code == 0
    return front


@pytest.fixture
def waiting(tmp_path: Path) -> Front:
    front = Front(tmp_path, LEAN)
    assert front.start(basics("One")).code == 10
    return front


# -- where there is nothing to read


@pytest.mark.parametrize("argv", [*READING, ["answer", "x"], ["pause"], ["abort"], ["land"], ["gc"], ["resume"], []])
def test_outside_a_repository_every_command_says_so(tmp_path: Path, argv: list[str]) -> None:
    front = Front(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    done = front(*argv, cwd=tmp_path / "elsewhere")
    assert done.code == 1
    assert "is not in a git repository" in done.err
    assert "hint: " in done.err
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_bare_repository_is_named_as_what_it_is(tmp_path: Path) -> None:
    sh(tmp_path, "init", "-q", "--bare", "bare.git")
    done = Front(tmp_path)("status", cwd=tmp_path / "bare.git" / "refs")
    assert (done.code, "is a bare repository" in done.err) == (1, True)


def test_a_repository_without_a_commit_can_be_read_but_not_run(tmp_path: Path) -> None:
    front = Front(tmp_path)
    sh(tmp_path, "init", "-q", "empty")
    assert front("status", cwd=tmp_path / "empty").code == 0
    front.say(basics("One"))
    done = front("run", "--script", str(front.script), "x", cwd=tmp_path / "empty")
    assert done.code == 1
    assert "no commit yet" in done.err


@pytest.mark.parametrize("argv", READING[:2])
def test_a_repository_without_runs_says_how_to_start_one(tmp_path: Path, argv: list[str]) -> None:
    front = Front(tmp_path)
    done = front(*argv)
    assert (done.code, done.out) == (0, 'No runs here yet. Start one: windlass run "what to build"\n')
    assert not front.service.host.place.home.exists()
    assert json.loads(front(*argv, "--json").out) in ({"runs": 0}, [])


def test_a_bare_windlass_without_a_run_says_so(tmp_path: Path) -> None:
    done = Front(tmp_path)()
    assert (done.code, "No run is active here" in done.out) == (0, True)


@pytest.mark.parametrize("command", ["stauts", "flwo", "nonsense"])
def test_an_unknown_command_is_usage_with_the_near_match(tmp_path: Path, command: str) -> None:
    done = Front(tmp_path)(command)
    assert done.code == 2
    assert "did you mean" in done.err or "known: " in done.err


def test_a_wrong_option_is_usage(tmp_path: Path) -> None:
    assert Front(tmp_path)("status", "--jsno").code == 2


# -- reading


@pytest.mark.req("S0-03")
@pytest.mark.parametrize("argv", READING)
def test_reading_changes_nothing(finished: Front, argv: list[str]) -> None:
    before = footprint(finished.root)
    assert finished(*argv).code == 0
    assert footprint(finished.root) == before


@pytest.mark.req("S0-03")
def test_status_tells_the_state_and_the_next_command(finished: Front, waiting: Front) -> None:
    assert finished.status["state"] == "finished"
    assert f"windlass land {finished.run}" in finished("status").out
    said = waiting("status").out
    assert "waiting" in said
    assert "windlass answer" in said


def test_status_takes_the_start_of_an_id(finished: Front) -> None:
    said = json.loads(finished("status", finished.run[:4], "--json").out)
    assert said["run"] == finished.run


def test_an_unknown_run_is_answered_with_the_near_match(finished: Front) -> None:
    wrong = finished.run[:-1] + ("0" if finished.run[-1] != "0" else "1")
    done = finished("status", wrong)
    assert (done.code, done.err) == (
        1,
        f"error: there is no run '{wrong}'\nhint: did you mean '{finished.run}'?\n",
    )
    said = json.loads(finished("status", wrong, "--json").out)
    assert (said["exit"], said["hint"]) == (1, f"did you mean '{finished.run}'?")


def test_runs_are_listed_newest_first(waiting: Front) -> None:
    first = waiting.run
    assert waiting.start(basics("Two"), "--new").code == 10
    rows = json.loads(waiting("runs", "--json").out)
    assert [row["run"] for row in rows][1] == first
    assert len(waiting("runs").out.splitlines()) == 3


def test_show_tells_where_the_files_are(finished: Front) -> None:
    said = finished("show")
    assert finished.branch in said.out
    assert str(finished.folder) in said.out


def test_the_log_is_one_line_per_event_also_as_json(finished: Front) -> None:
    lines = [json.loads(line) for line in finished("log", "--json").out.splitlines()]
    assert [line["seq"] for line in lines] == [record.seq for record in finished.records]
    assert lines[0]["type"] == "run.started"
    assert len(finished("log").out.splitlines()) == len(lines)


def test_following_the_log_of_a_run_at_rest_ends(finished: Front) -> None:
    assert finished("log", "--follow").out == finished("log").out


def test_what_an_agent_said_reaches_the_terminal_without_escapes(tmp_path: Path) -> None:
    front = Front(tmp_path, LEAN)
    front.start([scout(say="\x1b]0;owned\x07\x1b[2J red"), *basics("\x1b[31mOne")[1:]])
    for argv in READING:
        assert "\x1b" not in front(*argv).out


@pytest.mark.parametrize("argv", READING[:3])
def test_the_pages_fit_sixty_columns(finished: Front, argv: list[str]) -> None:
    finished.env["COLUMNS"] = "60"
    prose = [line for line in finished(*argv).out.splitlines() if not line.startswith(("  ", "Files:"))]
    finished.env["COLUMNS"] = "100"
    assert max(map(len, prose)) <= 60


# -- steering


def test_an_answer_is_stored_and_the_run_goes_on(waiting: Front) -> None:
    done = waiting("answer", "approve")
    assert done.code == 10
    assert waiting.answers["plan-approval!approve"] == "approve"


@pytest.mark.parametrize("words", [["1"], ["approve"], ["approve", "approve"]])
def test_an_answer_is_a_number_or_a_key_for_a_named_question(waiting: Front, words: list[str]) -> None:
    said = waiting("answer", *words, "--no-resume", "--json")
    assert said.code == 0
    assert json.loads(said.out)["answer"] == "approve"


def test_an_answer_that_is_no_option_changes_nothing(waiting: Front) -> None:
    done = waiting("answer", "aprove", "--no-resume")
    assert done.code == 1
    assert "approve" in done.err
    assert len(waiting.service.questions.pending(waiting.run)) == 1


def test_a_question_that_is_not_open_is_refused(waiting: Front) -> None:
    done = waiting("answer", "aprove", "yes", "--no-resume")
    assert done.code == 1
    assert "no question 'aprove' is open" in done.err


def test_the_second_answer_is_told_who_was_first(waiting: Front) -> None:
    assert waiting("answer", "approve", "--no-resume").code == 0
    again = waiting("answer", "approve", "approve", "--no-resume")
    assert again.code == 1
    assert "already answered with 'approve' by windlass answer" in again.err


def test_pausing_a_run_at_rest_says_so(waiting: Front) -> None:
    done = waiting("pause")
    assert (done.code, "is not running" in done.out) == (0, True)


def test_pausing_a_driven_run_is_asked_of_its_driver(waiting: Front) -> None:
    run = waiting.run
    with driver_lock(waiting.service.host.place.lock(run), run):
        assert "will pause when its running agents finish" in waiting("pause").out
    assert waiting.service.run(run).wanted == "pause"


@pytest.mark.req("S0-04")
def test_an_aborted_run_is_over_for_good(waiting: Front) -> None:
    assert waiting("abort").code == 0
    assert waiting.service.run().state == "aborted"
    assert "No run is active here" in waiting().out
    again = waiting("abort")
    assert (again.code, "aborted already" in again.err) == (1, True)
    assert waiting("resume").code == 1


def test_a_finished_run_cannot_be_paused_retried_or_resumed(finished: Front) -> None:
    for command in ("pause", "retry", "resume", "abort"):
        done = finished(command, finished.run)
        assert (done.code, "hint: " in done.err) == (1, True), command


def test_a_driven_run_is_not_driven_twice(waiting: Front) -> None:
    run = waiting.run
    with driver_lock(waiting.service.host.place.lock(run), run):
        done = waiting("resume")
    assert done.code == 1
    assert f"run {run} is driven by process" in done.err


@pytest.mark.parametrize("command", [*WORDS.split(), *(f"flow {name}" for name in FLOW_WORDS.split())])
def test_every_command_has_an_example_in_its_help(tmp_path: Path, command: str) -> None:
    done = Front(tmp_path)(*command.split(), "--help")
    assert done.code == 0
    assert f"\n    windlass {command}" in done.out
