"""Golden histories: what an earlier Windlass recorded, this one replays without a step twice, to the same end."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from bench import Said
from recorded_runs import (
    ARCHIVE,
    HISTORIES,
    PRINTED,
    History,
    Opened,
    difference,
    end_of,
    histories,
    printed,
    read_records,
    unpack,
)

Rows = Iterable[Mapping[str, Any]]
PROSE = ("waiting_for", "hint")
"""Fields of `--json` that are sentences: a later version may say it better."""


def named(found: list[History]) -> Any:
    return pytest.mark.parametrize("history", found, ids=[one.name for one in found])


# -- the three ways a run can rest


@named(histories("finished"))
def test_a_finished_run_is_told_as_it_was_and_a_resume_adds_nothing(history: History, tmp_path: Path) -> None:
    opened = unpack(history, tmp_path)
    report = (opened.run_folder / "report.md").read_bytes()
    opened.resume()
    assert_kept(history, opened)
    now = read_records(opened)
    for name, rows in opened.recorded["records"].items():
        assert len(now[name]) == len(rows), f"{history.name}: a resume added to {name}: {now[name][len(rows) :]}"
    assert_same_end(history, opened, history.about["end"]["exit"])
    assert_told(history, opened, "status", "show")
    assert_printed(history, opened)
    assert (opened.run_folder / "report.md").read_bytes() == report


@pytest.mark.req("S0-02", "S0-09")
@named(histories("waiting"))
def test_a_run_that_waits_takes_its_answer_and_comes_to_the_end_it_would_have_come_to(
    history: History, tmp_path: Path
) -> None:
    answer_and_resume(history, tmp_path)


@pytest.mark.sweep(2)
@pytest.mark.req("S0-02", "S0-09", "S0-67")
@named(histories("killed"))
def test_a_killed_run_repeats_no_recorded_step_and_comes_to_the_end_it_would_have_come_to(
    history: History, tmp_path: Path
) -> None:
    opened = unpack(history, tmp_path)
    assert_told(history, opened, "status")
    assert_replayed(history, opened, opened.resume())


# -- what is kept


def test_every_flow_has_a_history_of_each_kind() -> None:
    kept = {(one.about["scenario"].partition("-")[0], one.about["rests"]) for one in histories()}
    flows, kinds = ("plan", "brainstorm", "team", "task"), ("finished", "waiting", "killed")
    assert kept >= {(flow, kind) for flow in flows for kind in kinds}


def test_the_histories_stay_small() -> None:
    sizes = {path.parent.name: path.stat().st_size for path in HISTORIES.glob(f"*/{ARCHIVE}")}
    assert max(sizes.values()) < 200_000, sizes
    assert sum(sizes.values()) < 4_000_000, sizes


@pytest.mark.long
def test_a_history_that_is_made_now_replays_and_is_never_replaced(tmp_path: Path) -> None:
    into, name = tmp_path / "into", "task-waiting-for-the-baseline"
    make = [sys.executable, HISTORIES / "make.py", name, "--into", into, "--at", tmp_path / "at"]
    made = subprocess.run(make, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    again = subprocess.run(make, capture_output=True, text=True, check=False)
    assert again.returncode == 1
    assert "never replaced" in again.stderr
    answer_and_resume(History(into / name), tmp_path / "replay")


# -- what must hold


def answer_and_resume(history: History, folder: Path) -> None:
    opened, about = unpack(history, folder), history.about
    assert_told(history, opened, "status")
    (_, first), *others = about["answers"].items()
    answered = opened.windlass("answer", "--no-resume", about["question"], first)
    assert answered.code == 0, f"{history.name}: {answered}"
    given = [word for name, value in others for word in ("--answer", f"{name}={value}")]
    assert_replayed(history, opened, opened.resume(*given))
    shown = opened.windlass("show", "--json")
    assert (shown.code, shown.json["state"]) == (0, about["end"]["state"]), f"{history.name}: {shown}"


def assert_replayed(history: History, opened: Opened, said: Said) -> None:
    assert_kept(history, opened)
    assert_no_other_steps(history, opened)
    want = history.about["end"]
    assert said.code == want["exit"], f"{history.name}: it ended with code {said.code}: {said.err}\n{said.out}"
    assert_same_end(history, opened, said.code)


def assert_kept(history: History, opened: Opened) -> None:
    """What was recorded is there as it was, and no agent was asked for it again."""
    old, now = opened.recorded["records"], read_records(opened)
    assert now["superseded"] == old["superseded"], f"{history.name}: recorded steps were given up: {now['superseded']}"
    _assert_steps_kept(history, old["steps"], now["steps"])
    asked = now["dispatches"][len(old["dispatches"]) :]
    _assert_rows(history, "dispatch", old["dispatches"], now["dispatches"])
    done = {row["key"] for row in old["steps"]}
    for dispatch in asked:
        assert dispatch["key"] not in done, f"{history.name}: the agent was asked again for '{dispatch['key']}'"
    _assert_attempts_kept(history, old["attempts"], now["attempts"])
    _assert_rows(history, "event", old["events"], now["events"])
    answered = [row for row in old["questions"] if row["state"] != "pending"]
    _assert_rows(history, "question", answered, now["questions"])


def _assert_steps_kept(history: History, old: Rows, now: Rows) -> None:
    by_key = {row["key"]: row for row in now}
    for row in old:
        assert row["key"] in by_key, f"{history.name}: step '{row['key']}' was recorded as {row['result']!r}, is gone"
        found = difference(row, by_key[row["key"]])
        assert not found, f"{history.name}: step '{row['key']}': {found}"


def _assert_attempts_kept(history: History, old: Rows, now: Rows) -> None:
    by_key = {(row["key"], row["n"]): row for row in now}
    for row in old:
        place = f"{history.name}: attempt '{row['key']}@{row['n']}'"
        found = by_key.get((row["key"], row["n"]))
        assert found, f"{place} is gone"
        if row["state"] == "running":
            assert found["state"] == "interrupted", f"{place} was running when the driver died, is {found['state']}"
        else:
            assert not difference(row, found), f"{place}: {difference(row, found)}"


def _assert_rows(history: History, what: str, old: list[Any], now: list[Any]) -> None:
    """The recorded ones come first, in their order."""
    assert len(now) >= len(old), f"{history.name}: {len(old)} of {what} were recorded, there are {len(now)}"
    for n, (was, has) in enumerate(zip(old, now, strict=False), 1):
        found = difference(was, has)
        assert not found, f"{history.name}: {what} {n} '{was.get('type') or was['key']}': {found}"


def assert_no_other_steps(history: History, opened: Opened) -> None:
    """Every step that the run has now is one of the uninterrupted run, with the same result."""
    want, got = opened.recorded["end"]["steps"], end_of(opened, 0, read_records(opened)).steps
    for key, result in got.items():
        if key not in want:
            alike = next((f"; '{old}' has that result on record" for old, was in want.items() if was == result), "")
            pytest.fail(f"{history.name}: step '{key}' does not happen without interruption: {result!r}{alike}")
        found = difference(want[key], result)
        assert not found, f"{history.name}: step '{key}': without interruption {found}"


def assert_same_end(history: History, opened: Opened, code: int) -> None:
    """As if it had never been interrupted."""
    assert_no_other_steps(history, opened)
    want, got = opened.recorded["end"], asdict(end_of(opened, code, read_records(opened)))
    for key, result in want["steps"].items():
        assert key in got["steps"], f"{history.name}: step '{key}' never came; it gives {result!r} without interruption"
    for who, story in want["story"].items():
        lines = zip([*story, "(the end)"], [*got["story"].get(who, []), "(the end)"], strict=False)
        other = next((f"{old!r}, now {new!r}" for old, new in lines if old != new), "")
        assert not other, f"{history.name}: in the story of '{who or 'the run'}' it was {other}"
    for name in ("exit", "state", "tree"):
        assert got[name] == want[name], f"{history.name}: {difference(want[name], got[name], name) or got[name]}"


def assert_told(history: History, opened: Opened, *commands: str) -> None:
    """They say of the recorded events what they said when it was recorded, or more."""
    for command in commands:
        said = opened.windlass(command, "--json")
        assert said.code == 0, f"{history.name}: '{command} --json' ended with code {said.code}: {said.err}"
        want = {name: value for name, value in opened.recorded[command].items() if name not in PROSE}
        found = difference(want, said.json)
        assert not found, f"{history.name}: '{command} --json': {found}"


def assert_printed(history: History, opened: Opened) -> None:
    """If the words were changed on purpose: `tests/histories/make.py --words NAME` writes them down anew."""
    was, now = (history.folder / PRINTED).read_text(), printed(opened)
    pairs = zip([*was.splitlines(), "(the end)"], [*now.splitlines(), "(the end)"], strict=False)
    differing = next((f"{old!r} was printed, now {new!r}" for old, new in pairs if old != new), "")
    assert not differing, f"{history.name}: {differing}"
