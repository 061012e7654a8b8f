"""Every refusal, with its line and its way out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from windlass.flow.load import parse_flow
from windlass.flow.problem import FlowError

BASE = """\
flow: small
about: A small flow.
settings:
  rounds: {type: int, default: 2}
  style: {options: {iterative: a, single-pass: b}, default: iterative}
artifacts:
  notes: {kind: text}
  plan: {kind: file, path: "docs/{date}-{slug}.md", contract: tasks}
  changes: {kind: diff}
questions:
  go:
    text: "Go on with {plan.count} tasks?"
    options: {yes: next, back: draft, end: stop}
    yes: yes
  stuck:
    text: "{task.title}: {reason}"
    options: {again: redo, skip: skip}
    per: task
phases:
  - id: draft
    kind: produce
    calls: [{role: scout, out: notes}, {role: planner, in: [request, notes], out: plan}]
    on: {failed: stop, empty: stop}
  - {id: approve, kind: ask, question: go, bound: person}
  - id: build
    kind: tasks
    needs: [answered go yes]
    from: plan
    steps:
      - id: code
        kind: produce
        calls: [{role: coder, in: [task]}]
        on: {failed: ask stuck}
      - id: look
        kind: review
        of: changes
        reviewers: [{role: critic}]
        fixer: {role: coder}
        mode: $style
        max: $rounds
        on: {pass: next, noted: next, exhausted: ask stuck, inconclusive: fail}
    land: {on: {conflict: fail, red: fail}}
    on: {stopped: stop}
  - id: end
    kind: report
    template: plan
    on: {ok: finish}
"""
ROLES = {"scout", "planner", "coder", "critic"}
CONTRACTS = {"tasks", "review"}

REFUSALS = yaml.safe_load((Path(__file__).parents[1] / "flow_refusals.yaml").read_text(encoding="utf-8"))


def problems(text: str) -> list[str]:
    try:
        parse_flow(text, "f", roles=ROLES, contracts=CONTRACTS)
    except FlowError as error:
        return [problem.at("f")[2:] for problem in error.problems]
    return []


def test_the_flow_that_the_refusals_start_from_is_sound() -> None:
    assert problems(BASE) == []


@pytest.mark.parametrize("case", REFUSALS, ids=[f"{case['change']}=>{case['into']}" for case in REFUSALS])
def test_a_flow_that_is_wrong_is_refused_with_line_and_way_out(case: dict[str, Any]) -> None:
    assert case["change"] in BASE
    assert problems(BASE.replace(case["change"], case["into"], 1)) == case["told"]


def test_all_problems_are_told_at_once() -> None:
    text = (
        BASE.replace("role: critic", "role: critc").replace("max: $rounds", "max: $round").replace("{slug}", "{slog}")
    )
    assert [line.partition(":")[0] for line in problems(text)] == ["8", "37", "40"]


STAGED = """\
flow: staged
about: Two stages.
settings:
  second: {type: bool, default: true}
stages:
  - id: ONE
    phases:
      - {id: check, kind: command, on: {failed: ROUTE}}
  - id: TWO
    when: {second: true}
    phases:
      - {id: again, kind: command, on: {failed: stop}}
"""


@pytest.mark.parametrize(
    ("route", "told"),
    [
        ("restart ONE", "8: a restart needs a bound (add `restarts: {max: 3, then: stop}` to the flow)"),
        ("restart OEN", "8: there is no stage 'OEN' (did you mean 'ONE'?)"),
        ("restart previous", "8: a restart needs a bound (add `restarts: {max: 3, then: stop}` to the flow)"),
    ],
)
def test_a_restart_names_a_stage_and_is_bounded(route: str, told: str) -> None:
    text = STAGED.replace("ROUTE", route).replace("id: again", "id: more")
    assert problems(text) == [told]


def test_a_bounded_restart_of_a_stage_that_is_always_there_is_allowed() -> None:
    text = STAGED.replace("ROUTE", "restart ONE").replace("id: again", "id: more")
    assert problems(text + "restarts: {max: 3, then: stop}\n") == []


def test_a_stage_that_can_be_off_can_be_restarted() -> None:
    text = STAGED.replace("id: again", "id: more") + "restarts: {max: 3, then: stop}\n"
    assert problems(text.replace("ROUTE", "restart TWO")) == []
    assert problems(text.replace("ROUTE", "restart TWO else ONE")) == []


def test_what_follows_the_last_restart_cannot_restart() -> None:
    text = STAGED.replace("ROUTE", "stop").replace("id: again", "id: more")
    told = "13: 'restart ONE' does not fit 'then' (stop, abort, block, waive or ask QUESTION)"
    assert problems(text + "restarts: {max: 3, then: restart ONE}\n") == [told]


def test_terminal_escapes_of_a_flow_file_are_not_shown() -> None:
    told = problems(BASE.replace("role: critic", 'role: "\\e[31mred"'))
    assert told == ["37: there is no role ' [31mred' (known: coder, critic, planner, scout)"]
