from __future__ import annotations

import os
from pathlib import Path

import pytest

from jobs import PythonAgent, make_job, run
from windlass.agents.base import AgentEvent, Limits, UsageFileNames
from windlass.agents.process import supervise as processes
from windlass.agents.process import usage_files as ledger
from windlass.agents.process.usage_files import UsageFiles
from windlass.model import ErrorClass

HOME = UsageFileNames("home/sessions", "*/log-*.jsonl")


class Notebook:
    """A CLI's folder, and what was read of it."""

    def __init__(self, tmp_path: Path) -> None:
        self.attempt = tmp_path / "attempt"
        self.lines: list[str] = []
        self.path = self.attempt / "home/sessions/day/log-1.jsonl"

    def write(self, text: str, path: Path | None = None) -> None:
        place = path or self.path
        place.parent.mkdir(parents=True, exist_ok=True)
        with place.open("a") as file:
            file.write(text)

    def follow(self) -> UsageFiles:
        return UsageFiles(self.attempt, HOME, self.lines.append)


@pytest.fixture
def notebook(tmp_path: Path) -> Notebook:
    return Notebook(tmp_path)


def read(files: UsageFiles) -> None:
    while files.pull():
        pass


def test_a_file_that_comes_later_is_read_from_its_beginning_and_each_line_once(notebook: Notebook) -> None:
    files = notebook.follow()
    assert not files.pull()
    notebook.write("one\ntwo\n")
    read(files)
    notebook.write("three\n")
    read(files)
    assert notebook.lines == ["one", "two", "three"]


def test_what_stood_there_before_is_not_read(notebook: Notebook) -> None:
    notebook.write("old\n")
    files = notebook.follow()
    notebook.write("new\n")
    read(files)
    assert notebook.lines == ["new"]


def test_half_a_line_waits_for_its_other_half(notebook: Notebook) -> None:
    files = notebook.follow()
    notebook.write('{"a":')
    read(files)
    assert notebook.lines == []
    notebook.write(" 1}\nx")
    read(files)
    assert notebook.lines == ['{"a": 1}']


def test_a_line_of_5_mb_is_cut_and_the_next_one_is_whole(notebook: Notebook) -> None:
    files = notebook.follow()
    notebook.write("x" * (5 << 20) + "\nnext\n")
    read(files)
    assert len(notebook.lines[0]) <= ledger.MAX_LINE + processes.CHUNK
    assert notebook.lines[1:] == ["next"]


def test_other_files_are_left_alone(notebook: Notebook) -> None:
    files = notebook.follow()
    for name in ("other.jsonl", "deep/log-2.jsonl", "log-3.jsonl.d/x"):
        notebook.write("no\n", notebook.path.parent / name)
    notebook.write("no\n", notebook.path.parent.parent / "log-4.jsonl")
    read(files)
    assert notebook.lines == []


def test_no_link_leads_out_of_it(notebook: Notebook, tmp_path: Path) -> None:
    notebook.write("", notebook.path)
    files = notebook.follow()
    outside = tmp_path / "outside"
    notebook.write("secret\n", outside / "log-1.jsonl")
    (notebook.path.parent / "log-2.jsonl").symlink_to(outside / "log-1.jsonl")
    (notebook.path.parent.parent / "linked").symlink_to(outside, target_is_directory=True)
    read(files)
    assert notebook.lines == []


def test_a_folder_that_is_exchanged_for_a_link_is_no_longer_read(notebook: Notebook, tmp_path: Path) -> None:
    files = notebook.follow()
    notebook.write("secret\n", tmp_path / "outside/day/log-1.jsonl")
    (notebook.attempt / "home").mkdir(parents=True)
    (notebook.attempt / "home/sessions").symlink_to(tmp_path / "outside", target_is_directory=True)
    read(files)
    assert notebook.lines == []


def test_our_own_link_to_an_earlier_attempts_sessions_is_followed_from_where_they_end(
    notebook: Notebook, tmp_path: Path
) -> None:
    earlier = tmp_path / "earlier"
    notebook.write("old\n", earlier / "day/log-1.jsonl")
    (notebook.attempt / "home").mkdir(parents=True)
    (notebook.attempt / "home/sessions").symlink_to(earlier, target_is_directory=True)
    files = notebook.follow()
    notebook.write("new\n", earlier / "day/log-1.jsonl")
    read(files)
    assert notebook.lines == ["new"]


def test_a_pipe_in_the_place_of_a_file_holds_nobody_up(notebook: Notebook) -> None:
    notebook.path.parent.mkdir(parents=True)
    os.mkfifo(notebook.path)
    read(notebook.follow())
    assert notebook.lines == []
    # put there after the look at the folder
    assert ledger._bytes(str(notebook.path), 0) == b""


def test_a_file_that_shrinks_or_goes_away_is_survived(notebook: Notebook) -> None:
    files = notebook.follow()
    notebook.write("one\ntwo\n")
    read(files)
    notebook.path.write_text("x\n")
    read(files)
    notebook.path.unlink()
    read(files)
    assert notebook.lines == ["one", "two"]


# -- in a dispatch


class Secretive(PythonAgent):
    """Tells in its stream nothing of what it spends, but in a file of its own."""

    def ledger(self) -> UsageFileNames:
        return HOME

    def parse_ledger(self, line: str) -> list[AgentEvent]:
        return self.parse(line)


def spends(*costs: float) -> str:
    lines = "".join(f'{{"type": "usage", "input": 10, "cost_usd": {cost}}}\n' for cost in costs)
    return (
        "import os, pathlib, sys, time\n"
        f"place = pathlib.Path({{folder!r}}, 'home/sessions/day'); place.mkdir(parents=True)\n"
        f"(place / 'log-1.jsonl').write_text({lines!r} + 'no JSON\\n' + '[]\\n' + 'half')\n"
    )


def secretive(tmp_path: Path, program: str) -> Secretive:
    return Secretive(program.replace("{folder!r}", repr(str(tmp_path / "attempt"))))


def test_what_it_writes_down_stops_it_in_the_middle_of_its_work(tmp_path: Path) -> None:
    agent = secretive(tmp_path, spends(0.4, 1.2) + "time.sleep(300)\n")
    result = run(agent, make_job(tmp_path, limits=Limits(60.0, usd=1.0)))
    assert (result.error, result.usage.cost_usd) == (ErrorClass.OVER_BUDGET, 1.2)


def test_what_it_wrote_down_last_counts_when_it_dies(tmp_path: Path) -> None:
    agent = secretive(tmp_path, spends(0.4, 0.7) + "sys.exit(1)\n")
    result = run(agent, make_job(tmp_path, limits=Limits(60.0, usd=1.0)))
    assert (result.error, result.usage.cost_usd) == (ErrorClass.CRASHED, 0.7)


def test_work_that_is_complete_stands_though_its_last_response_passed_the_limit(tmp_path: Path) -> None:
    done = 'print(\'{"type": "done", "text": "Done."}\', flush=True)\n'
    agent = secretive(tmp_path, done + spends(1.2))
    result = run(agent, make_job(tmp_path, limits=Limits(60.0, usd=1.0)))
    assert (result.error, result.text, result.usage.cost_usd) == (None, "Done.", 1.2)


def test_what_it_writes_down_after_it_was_stopped_counts(tmp_path: Path) -> None:
    """It announces a wait that is too long, and is stopped; its last response stands in its file only then."""
    wait = 'print(\'{"type": "retrying", "text": "503 busy", "wait_s": 20000}\', flush=True)\n'
    late = "import signal\ndef late(*_):\n"
    late += (
        '    open(place / \'log-1.jsonl\', \'a\').write(\'\\n{"type": "usage", "input": 20, "cost_usd": 0.7}\\n\')\n'
    )
    late += "    sys.exit(1)\nsignal.signal(signal.SIGTERM, late)\n"
    agent = secretive(tmp_path, spends(0.4) + late + wait + "time.sleep(300)\n")
    result = run(agent, make_job(tmp_path), patience_s=10_000.0)
    assert (result.error, result.reason) == (ErrorClass.OVERLOADED, "503 busy")
    assert (result.usage.input, result.usage.cost_usd) == (20, 0.7)
