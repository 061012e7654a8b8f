from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from flow_files import CONTRACTS, FILES, load, roles_named
from windlass.errors import UserError
from windlass.flow.document import load_strict
from windlass.flow.graph import graph, mermaid
from windlass.flow.load import find_flow, list_flows, parse_flow, parse_recorded_flow, template
from windlass.flow.problem import FlowError
from windlass.flow.simulate import simulate

PLAN = FILES["plan"].read_text(encoding="utf-8")
ROLES = roles_named(PLAN, "plan")


def test_built_in_flows_are_listed() -> None:
    assert {source.name: source.origin for source in list_flows([])}.items() >= {
        "plan": "built-in",
        "task": "built-in",
    }.items()


def test_the_first_folder_wins_and_built_ins_come_last(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "plan.yaml").write_text(f"flow: {folder}")
    folders = [tmp_path / "a", tmp_path / "b"]
    assert find_flow("plan", folders).text == "flow: a"
    assert [source.name for source in list_flows(folders)].count("plan") == 1


def test_a_flow_is_found_by_its_path(tmp_path: Path) -> None:
    path = tmp_path / "mine.yml"
    path.write_text("flow: mine")
    assert (find_flow(str(path), []).name, find_flow(str(path), []).path) == ("mine", path)


def test_an_unknown_name_gets_its_near_match() -> None:
    with pytest.raises(UserError, match="there is no flow 'plam'") as caught:
        find_flow("plam", [])
    assert caught.value.hint == "did you mean 'plan'?"


def test_a_file_that_cannot_be_read_is_the_users_to_fix(tmp_path: Path) -> None:
    (tmp_path / "latin.yaml").write_bytes(b"flow: \xff")
    with pytest.raises(FlowError, match="not UTF-8 at byte 6"):
        find_flow(str(tmp_path / "latin.yaml"), [])
    with pytest.raises(UserError, match="cannot read the flow"):
        find_flow(str(tmp_path / "none.yaml"), [])


def test_the_starter_flow_passes_the_check() -> None:
    flow = parse_flow(template("mine"), "f", roles={"planner", "implementer", "quality-reviewer"}, contracts={"tasks"})
    assert flow.flow == "mine"


def test_a_starter_flow_needs_a_name_that_can_be_an_id() -> None:
    with pytest.raises(UserError, match="cannot be a flow's name"):
        template("../evil")


def test_what_is_no_mapping_is_no_flow() -> None:
    with pytest.raises(FlowError, match="f:1: a flow is a mapping"):
        parse_flow("- a", "f", roles=(), contracts=())


@given(data=st.data())
def test_a_mutated_flow_loads_or_is_refused_but_never_crashes(data: st.DataObject) -> None:
    lines = PLAN.splitlines()
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(lines) - 1))
        lines[at] = data.draw(st.sampled_from(_mutations(lines, at, data)))
    _load_and_use("\n".join(lines))


def _mutations(lines: list[str], at: int, data: st.DataObject) -> list[str]:
    line = lines[at]
    cut = data.draw(st.integers(0, len(line)))
    word = data.draw(st.sampled_from(WORDS))
    return [
        "",
        line[:cut] + line[cut + 1 :],
        line[:cut] + word + line[cut:],
        lines[data.draw(st.integers(0, len(lines) - 1))],
    ]


WORDS = [
    "next",
    "redo",
    "again",
    "ask approve",
    "$review_mode",
    "{x}",
    "[]",
    "{}",
    ",",
    ": ",
    "restart here",
    "mode x",
    "via: route",
    "\u00e9",
]


def _load_and_use(text: str) -> None:
    try:
        flow = parse_flow(text, "f", roles=ROLES, contracts=CONTRACTS)
    except FlowError as error:
        assert all(problem.line >= 1 for problem in error.problems)
        return
    assert graph(flow)
    assert mermaid(flow)
    simulate(flow, 3, {})


@given(data=st.data())
def test_a_flow_whose_values_are_swapped_loads_or_is_refused(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(FILES)))
    document = yaml.load(FILES[name].read_text(encoding="utf-8"), Loader=yaml.BaseLoader)
    _swap(document, data)
    _load_and_use(yaml.safe_dump(document, default_style='"', sort_keys=False))


def _swap(value: object, data: st.DataObject) -> None:
    """Walk down at random, then put something else in that place."""
    while isinstance(value, dict | list) and value:
        key = data.draw(st.sampled_from(sorted(value))) if isinstance(value, dict) else data.draw(_index(value))
        inner = value[key]
        if not isinstance(inner, dict | list) or not inner or data.draw(st.integers(0, 5)) == 0:
            value[key] = data.draw(
                st.sampled_from([*WORDS, [], {}, ["next"], {"to": "again", "max": "2", "then": "stop"}])
            )
            return
        value = inner


def _index(value: list[object]) -> st.SearchStrategy[int]:
    return st.integers(0, len(value) - 1)


ids = st.from_regex(r"[a-z][a-z0-9]{0,6}", fullmatch=True).filter(
    lambda word: word not in {"next", "stop", "abort", "fix", "mode"}
)


@given(st.lists(ids, min_size=1, max_size=4, unique=True), st.data())
def test_a_chain_of_commands_with_counted_ways_back_loads_as_it_was_written(
    names: list[str], data: st.DataObject
) -> None:
    phases, backs = [], {}
    for at, name in enumerate(f"p-{name}" for name in names):
        back = f"p-{data.draw(st.sampled_from(names[: at + 1]))}"
        count = data.draw(st.integers(1, 3))
        backs[name] = (back, count)
        phases.append(
            {"id": name, "kind": "command", "on": {"failed": {"to": back, "max": str(count), "then": "stop"}}}
        )
    text = yaml.safe_dump({"flow": "chain", "about": "A chain.", "phases": phases})
    flow = parse_flow(text, "f", roles=(), contracts=())
    found = {phase.id: (str(phase.on["failed"].target), phase.on["failed"].max) for phase in flow.phases}
    assert found == backs
    assert simulate(flow, 0, {}).max_dispatches == 0


@pytest.mark.parametrize("name", sorted(FILES))
def test_a_flow_survives_being_written_and_read_again(name: str) -> None:
    text = FILES[name].read_text(encoding="utf-8")
    again = json.dumps(load_strict(text, name).value)
    assert parse_flow(again, name, roles=roles_named(text, name), contracts=CONTRACTS) == load(name)


def test_a_run_that_has_begun_goes_on_without_the_keys_that_are_refused_by_now() -> None:
    before = PLAN.replace("tdd: ", "commit: agent\ntdd: ", 1).replace("    yes: ", "    cancel: stop\n    yes: ", 1)
    told = r"`commit` is not supported yet: remove it.*\n.*`cancel` is not supported yet: remove it"
    with pytest.raises(FlowError, match=told):
        parse_flow(before, "f", roles=ROLES, contracts=CONTRACTS)
    assert parse_recorded_flow(before, "f", roles=ROLES, contracts=CONTRACTS) == load("plan")
    with pytest.raises(FlowError, match="unknown key 'comit'"):
        parse_recorded_flow(before.replace("commit: agent", "comit: x"), "f", roles=ROLES, contracts=CONTRACTS)
