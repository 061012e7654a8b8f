"""`windlass flow`: list, show, check, graph, simulate, new."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from front import Front
from windlass.flow.load import template

ROLE = """\
---
name: carpenter
about: Builds.
tools: [read, write]
writes: code
---
You build.

## prompt: draft
Do {{request}}
"""


@pytest.fixture
def front(tmp_path: Path) -> Front:
    return Front(tmp_path)


def own_flow(front: Front, text: str, name: str = "mine") -> Path:
    path = front.root / ".windlass" / "flows" / f"{name}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_the_list_names_every_flow_with_its_origin_and_what_it_does(front: Front) -> None:
    own_flow(front, template("mine"))
    done = front("flow", "list")
    assert done.code == 0
    # a long path is wrapped
    assert f"mine({front.root}/.windlass/flows)" in "".join(done.out.split())
    assert "plan (built-in)" in done.out
    assert "Scout the code, write a plan" in done.out


def test_a_flow_that_does_not_load_is_listed_with_the_way_to_its_problems(front: Front) -> None:
    own_flow(front, "flow: mine\n")
    rows = {row["name"]: row for row in json.loads(front("flow", "list", "--json").out)}
    assert rows["mine"]["about"] == ""
    assert rows["plan"]["origin"] == "built-in"
    assert "does not load: windlass flow check mine" in front("flow", "list").out


def test_show_prints_the_yaml_as_it_is(front: Front) -> None:
    path = own_flow(front, template("mine"))
    assert front("flow", "show", "mine").out == path.read_text()


def test_an_unknown_flow_is_answered_with_the_near_match(front: Front) -> None:
    done = front("flow", "show", "paln")
    assert done.code == 1
    assert done.err == "error: there is no flow 'paln'\nhint: did you mean 'plan'?\n"


def test_check_says_ok_for_every_flow_that_ships(front: Front) -> None:
    done = front("flow", "check")
    assert done.code == 0
    assert {"plan: ok", "task: ok"} <= set(done.out.splitlines())


def test_check_names_every_problem_with_file_and_line(front: Front) -> None:
    text = template("mine").replace("max: $max_cycles", "max: $max_cycle").replace("role: planner", "role: planer")
    path = own_flow(front, text)
    done = front("flow", "check", str(path))
    assert done.code == 1
    lines = done.out.splitlines()
    assert len(lines) == 2
    assert all(line.startswith(f"{path}:") and line.split(":")[1].isdigit() for line in lines)
    found = json.loads(front("flow", "check", "mine", "--json").out)
    assert [one["ok"] for one in found] == [False]
    assert sorted(p["line"] for p in found[0]["problems"]) == sorted(int(line.split(":")[1]) for line in lines)


def test_a_file_elsewhere_may_use_the_roles_beside_it(front: Front, tmp_path: Path) -> None:
    flows, roles = tmp_path / "shared" / "flows", tmp_path / "shared" / "roles"
    flows.mkdir(parents=True)
    path = flows / "mine.yaml"
    path.write_text(template("mine").replace("role: planner", "role: carpenter"))
    assert "carpenter" in front("flow", "check", str(path)).out
    roles.mkdir()
    (roles / "carpenter.md").write_text(ROLE)
    assert front("flow", "check", str(path)).out == "mine: ok\n"


def test_a_terminal_escape_in_a_flow_file_does_not_reach_the_terminal(front: Front) -> None:
    path = own_flow(front, 'flow: mine\n"a\\e[2Jb": 1\n')
    done = front("flow", "check", str(path))
    assert done.code == 1
    assert "\x1b" not in done.out + done.err


def test_a_missing_file_is_the_users_to_fix(front: Front) -> None:
    done = front("flow", "check", "nowhere.yaml")
    assert (done.code, "nowhere.yaml" in done.err) == (1, True)


def test_the_graph_is_text_or_mermaid(front: Front) -> None:
    assert "plan-draft  produce" in front("flow", "graph", "plan").out
    assert front("flow", "graph", "plan", "--mermaid").out.startswith("flowchart TD\n")


def test_simulate_grows_with_the_tasks_and_obeys_settings(front: Front) -> None:
    def most(*more: str) -> int:
        return int(json.loads(front("flow", "simulate", "plan", "--json", *more).out)["max_dispatches"])

    assert most("--tasks", "1") < most("--tasks", "4")
    assert most("--set", "max_task_review_cycles=1") < most("--set", "max_task_review_cycles=4")
    front.configure("[settings]\nmax_task_review_cycles = 1\n")
    assert most() == most("--set", "max_task_review_cycles=1")


def test_simulate_says_what_a_person_can_repeat(front: Front) -> None:
    done = front("flow", "simulate", "plan", "--tasks", "2")
    assert done.code == 0
    assert "plan with 2 tasks:" in done.out
    assert "more if a person chooses to repeat: approve" in done.out


@pytest.mark.parametrize("given", ["max_task_review_cycle=2", "max_task_review_cycles=many", "nothing"])
def test_simulate_refuses_a_setting_that_does_not_fit(front: Front, given: str) -> None:
    done = front("flow", "simulate", "plan", "--set", given)
    assert (done.code, "hint: " in done.err) == (1, True)


def test_a_new_flow_passes_the_check_and_is_never_overwritten(front: Front) -> None:
    assert front("flow", "new", "mine").code == 0
    path = front.root / ".windlass" / "flows" / "mine.yaml"
    assert front("flow", "check", "mine").out == "mine: ok\n"
    path.write_text("# my work\n")
    again = front("flow", "new", "mine")
    assert again.code == 1
    assert "already exists" in again.err
    assert path.read_text() == "# my work\n"


def test_a_new_flow_says_which_one_it_hides(front: Front) -> None:
    assert "it replaces 'plan' (built-in)" in front("flow", "new", "plan").err


@pytest.mark.parametrize("name", ["../evil", "a/b", "-x y", ""])
def test_a_new_flow_stays_in_its_folder(front: Front, name: str) -> None:
    assert front("flow", "new", "--", name).code == 1
    assert not (front.root / ".windlass").exists()
