"""dialogue: who speaks when, what is stored, what counts as a yes, and how it ends without one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from team import Team, asks, basics, ready, subtask
from windlass.events import ArtifactStored, RunSaid
from windlass.kinds.dialogue import is_affirmative

ONE = basics(subtask("a"))


def _log(team: Team) -> dict[str, object]:
    stored = [event for event in team.events(ArtifactStored) if event.name == "clarification_log"]
    return dict(json.loads(team.service.store.blobs.get(stored[-1].sha)))


def _answer(team: Team, text: str) -> int:
    return int(team("answer", text).code)


@pytest.mark.req("S2-03", "S2-04", "S2-05", "S2-06", "S2-07", "S2-11", "S2-17", "S2-23", "S2-55")
def test_the_agent_asks_until_it_is_ready_and_each_round_is_stored_before_the_next(tmp_path: Path) -> None:
    team = Team(tmp_path)
    first = team.go([asks("Per user,\n  or per address?", 1), asks("How many?", 2), *ONE], clarify=True)
    assert first.code == 10, first
    assert team.status["step"] == "CLARIFYING"
    assert [event.text for event in team.events(RunSaid)] == [
        "Clarifying the request for 'repo': the architect may ask you questions."
    ]
    assert team.view.questions["clarify/round#1!clarify"].detail == "Per user,\n  or per address?"
    assert "  Per user,\n    or per address?\n? The architect asks. What do you answer?\n" in first.out
    assert _answer(team, "per user") == 10
    told = [{"role": "assistant", "text": "Per user,\n  or per address?"}, {"role": "user", "text": "per user"}]
    assert _log(team) == {"confirmed": False, "history": told}
    prompt = team.prompt("clarify/turn#2")
    for wanted in ("Add add and mul", "user: per user", "assistant: Per user,", "/slots/"):
        assert wanted in prompt
    assert _answer(team, "ten a second") == 10
    assert team.keys == ["clarify/turn#1", "clarify/turn#2", "clarify/turn#3"]
    assert team.view.questions["clarify/round#3!clarify-confirm"].detail == "Add the functions, each with a test."


@pytest.mark.long
@pytest.mark.req("S2-08", "S2-09", "S2-10", "S2-24")
def test_anything_but_a_plain_yes_goes_back_and_a_yes_replaces_the_request(tmp_path: Path) -> None:
    team = Team(tmp_path)
    assert (
        team.go([ready("Add add.", cycle=1), ready("Add add and mul, tested.", cycle=2), *ONE], clarify=True).code == 10
    )
    question = team.view.questions["clarify/round#1!clarify-confirm"]
    assert "yes to proceed" in question.text
    assert _answer(team, "yes, but mul is missing") == 10
    assert "yes, but mul is missing" in team.prompt("clarify/turn#2")
    assert _answer(team, "Looks good!") == 0
    assert _log(team)["confirmed"] is True
    assert "Add add and mul, tested." in team.prompt("plan/architect#1")
    assert "CLARIFIED" in team.steps


@pytest.mark.req("S2-12", "S2-13")
def test_when_the_rounds_are_used_up_the_request_stays_as_it_was_and_that_is_said(tmp_path: Path) -> None:
    team = Team(tmp_path)
    rules = [{**asks("And?", 1), "when": {"role": "architect", "purpose": "clarify"}}, *ONE]
    done = team.go(rules, "--set", "max_clarification_rounds=2", "--answer", "clarify*=hm", clarify=True)
    assert done.code == 0, done
    assert [key for key in team.keys if key.startswith("clarify")] == ["clarify/turn#1", "clarify/turn#2"]
    assert _log(team)["confirmed"] is False
    assert any("All 2 rounds were used" in event.text for event in team.events(RunSaid))
    assert "CLARIFIED" in team.steps
    assert "Add add and mul" in team.prompt("plan/architect#1")
    assert team.service.run().settings == {"max_clarification_rounds": "2"}


@pytest.mark.req("S2-14")
def test_it_can_be_skipped(tmp_path: Path) -> None:
    team = Team(tmp_path)
    assert team.go(ONE).code == 0
    assert not any(key.startswith("clarify") for key in team.keys)
    assert team.asked == []


@pytest.mark.req("S2-15")
def test_an_aborted_run_asks_nobody_again(tmp_path: Path) -> None:
    team = Team(tmp_path)
    assert team.go([asks("Which?", 1), *ONE], clarify=True).code == 10
    assert team("abort").code == 0
    assert team("answer", "this one").code == 1
    assert team.keys == ["clarify/turn#1"]
    assert team.status["step"] == "CLARIFYING"


@pytest.mark.req("S2-56")
def test_an_answer_reaches_only_the_run_it_is_for(tmp_path: Path) -> None:
    team = Team(tmp_path)
    team.go([asks("Which?", 1), *ONE], clarify=True)
    first = team.run
    team.go([asks("Which?", 1), *ONE], "--new", clarify=True)
    second = next(row.id for row in team.service.runs() if row.id != first)
    assert team("answer", second, "clarify", "the second").code == 10
    told = {run: [row.answer for row in team.service.store.questions.all(run)] for run in (first, second)}
    assert told[first] == [""]
    assert told[second][0] == "the second"


def test_an_agent_that_never_meets_the_contract_fails_the_run(tmp_path: Path) -> None:
    team = Team(tmp_path)
    mute = {"when": {"role": "architect", "purpose": "clarify"}, "say": "status: ready"}
    assert team.go([mute, *ONE], clarify=True).code == 12
    assert team.steps[-1] == "FAILED"
    assert team.asked == []


@pytest.mark.parametrize(
    "reply",
    ["yes", "Y", "ok.", "Okay!", "sure", "approve", "Approved.", "proceed", "go ahead", "Looks good", "LGTM :)"],
)
def test_a_plain_yes(reply: str) -> None:
    assert is_affirmative(reply)


@pytest.mark.parametrize(
    "reply",
    [
        "",
        "no",
        "yes, but",
        "ok except mul",
        "yesterday",
        "not ok",
        "go",
        "looks bad",
        "is it ok?",
        "yes?",
        "👍",
        "okay no",
    ],
)
def test_no_plain_yes(reply: str) -> None:
    assert not is_affirmative(reply)
