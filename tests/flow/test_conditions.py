from __future__ import annotations

import pytest

from windlass.flow.conditions import ENSURES, FACTS, FactView, fact
from windlass.model import Json


def view(**artifacts: Json) -> FactView:
    return FactView(artifacts=artifacts)


def test_a_fact_is_a_function_the_mode_a_setting_a_task_field_or_an_artifact_field() -> None:
    seen = FactView({"strategy": "per-batch"}, "lean", {"intake": {"ui": True}}, {"title": "A"}, frozenset({"qa"}))
    names = ["meta.qa_due", "mode", "strategy", "task.title", "intake.ui", "intake.none", "nothing", "no.where"]
    assert [fact(name, seen) for name in names] == [False, "lean", "per-batch", "A", True, None, None, None]


@pytest.mark.req("S4-66", "S4-100")
@pytest.mark.parametrize("role", ["qa", "security"])
def test_the_meta_review_adds_whoever_has_not_run_yet(role: str) -> None:
    due = FACTS[f"meta.{role}_due"]
    assert due(FactView({"strategy": "per-batch"})) is True
    assert due(FactView({"strategy": "per-batch"}, roles_ran=frozenset({role}))) is False


@pytest.mark.req("S4-57")
def test_a_single_final_review_has_everybody() -> None:
    assert FACTS["meta.qa_due"](FactView({"strategy": "single-final"}, roles_ran=frozenset({"qa"}))) is True


@pytest.mark.req("S4-50")
@pytest.mark.parametrize(
    ("task", "needed"),
    [
        ({"concerns": ["behaviour"]}, True),
        ({"concerns": ["docs"]}, False),
        ({}, True),
        ({"concerns": ["logic"], "needs_qa": False}, False),
    ],
)
def test_qa_looks_at_behaviour_logic_and_acceptance(task: dict[str, Json], needed: bool) -> None:
    assert FACTS["task.needs_qa"](FactView(task=task)) is needed


@pytest.mark.req("S4-51")
@pytest.mark.parametrize(
    ("task", "needed"),
    [
        ({"risk_flags": ["security"]}, True),
        ({"touches": ["network"]}, True),
        ({"files": ["src/auth/login.py"]}, True),
        ({"files": ["src/author.py"], "risk_flags": []}, False),
        ({"needs_security": True}, True),
        ({}, False),
    ],
)
def test_security_looks_at_flagged_tasks_and_at_auth_input_and_network(task: dict[str, Json], needed: bool) -> None:
    assert FACTS["task.needs_security"](FactView(task=task)) is needed


@pytest.mark.req("S4-06", "S4-15", "S4-36", "S4-106")
@pytest.mark.parametrize(
    ("rule", "text", "seen", "missing"),
    [
        ("acceptance-criteria", "# Acceptance criteria\n- AC1: fast\n", view(), ""),
        (
            "acceptance-criteria",
            "# Goal\n- x\n# Acceptance criteria\n# Next\n- y\n",
            view(),
            "a list under 'Acceptance criteria'",
        ),
        ("names-criteria", "AC1 and AC2.", view(acceptance={"criteria": [{"id": "AC1"}, {"id": "AC2"}]}), ""),
        ("names-criteria", "AC12", view(acceptance={"criteria": [{"id": "AC1"}]}), "the criteria AC1"),
        ("risks-heading", "# Risks\n", view(), ""),
        ("risks-heading", "no risks\n", view(), "a heading 'Risks'"),
        (
            "checks-and-done-when",
            "",
            view(tasks=[{"id": "a", "depends_on": [], "acceptance_checks": ["x"], "done_when": "y"}]),
            "",
        ),
        (
            "checks-and-done-when",
            "",
            view(tasks=[{"id": "a", "depends_on": [], "acceptance_checks": []}]),
            "a: acceptance_checks, a: done_when",
        ),
        ("four-parts", "# Work done\n# Running it\n# Testing it\n# Known issues\n", view(), ""),
        ("four-parts", "# Work done\n# Running it\n", view(), "testing it, known issues"),
    ],
)
def test_a_rule_of_form_says_what_is_missing(rule: str, text: str, seen: FactView, missing: str) -> None:
    assert ENSURES[rule](text, seen) == missing
