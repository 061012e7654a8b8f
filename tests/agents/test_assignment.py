"""Who plays which role: the command line before the config before the role's file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from front import LEAN, Front, basics, scripted
from windlass.agents.assignment import assign
from windlass.agents.roles import load_roles
from windlass.errors import UserError
from windlass.events import DispatchStarted, Warned
from windlass.flow.load import list_flows
from windlass.runs.project import Project
from windlass.runs.role_overrides import AS_CONFIGURED, RoleOverride, RoleOverrides, parse_part


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("claude", RoleOverride("claude")),
        ("claude:opus", RoleOverride("claude", "opus")),
        ("claude:opus:high", RoleOverride("claude", "opus", "high")),
        ("claude::high", RoleOverride("claude", "", "high")),
        ("opencode:ollama/llama3:8b", RoleOverride("opencode", "ollama/llama3:8b")),
        ("opencode:ollama/llama3:8b:max", RoleOverride("opencode", "ollama/llama3:8b", "max")),
        ("none", RoleOverride("none")),
    ],
)
def test_a_part_is_agent_model_effort(text: str, part: RoleOverride) -> None:
    assert parse_part("scout", text) == part


@pytest.mark.parametrize(
    ("text", "told"), [("", "names no agent"), (":opus", "names no agent"), ("a:b:hihg", "'hihg'")]
)
def test_what_is_no_part_is_refused(text: str, told: str) -> None:
    with pytest.raises(UserError, match=told):
        parse_part("scout", text)


def test_an_agent_for_every_role_takes_the_place_of_what_was_said_before() -> None:
    before = RoleOverrides("pi", {"scout": "claude"})
    assert before.changed_to(AS_CONFIGURED) == before
    assert before.changed_to(RoleOverrides(roles={"planner": "codex"})) == RoleOverrides(
        "pi", {"scout": "claude", "planner": "codex"}
    )
    assert before.changed_to(RoleOverrides("gemini", {"scout": "pi"})) == RoleOverrides("gemini", {"scout": "pi"})
    assert RoleOverrides.remembered(before.to_json()) == before
    assert RoleOverrides.remembered({}) == AS_CONFIGURED


# -- runs

ROLE = """---
name: scout
about: Looks around
tools: [read]
{settings}
---
You look.

## prompt: draft
Look around {{{{cwd}}}}.
"""
OTHER = '[agents.other]\nargv = ["echo", "A small program."]\n'


def cast_of(front: Front) -> dict[str, tuple[str, str]]:
    return {event.role: (event.agent, event.model) for event in front.events(DispatchStarted)}


def started(tmp_path: Path, config: str, *argv: str, role: str = "") -> Front:
    front = Front(tmp_path)
    front.configure(scripted(front) + LEAN + OTHER + config)
    if role:
        folder = front.root / ".windlass" / "roles"
        folder.mkdir(parents=True)
        (folder / "scout.md").write_text(ROLE.format(settings=role))
    front.say(basics("One"))
    done = front("run", *argv, "--", "Add it")
    assert done.code in (10, 12), done.out + done.err
    return front


FILE = "agent: other\nmodel: of-the-file"
CONFIG = '[roles.scout]\nagent = "scripted"\nmodel = "of-the-config"\n'


@pytest.mark.sweep(9)
@pytest.mark.parametrize(
    ("role", "config", "argv", "cast"),
    [
        ("", "", (), ("scripted", "")),
        (FILE, "", (), ("other", "of-the-file")),
        (FILE, CONFIG, (), ("scripted", "of-the-config")),
        (FILE, CONFIG, ("--role", "scout=scripted"), ("scripted", "of-the-config")),
        (FILE, CONFIG, ("--role", "scout=scripted:told"), ("scripted", "told")),
        (FILE, CONFIG, ("--role", "scout=other"), ("other", "of-the-file")),
        # a model is one agent's: what the config chose for another is not passed on
        ("", CONFIG, ("--role", "scout=other"), ("other", "")),
        ("agent: scripted\nmodel: of-the-file", "", ("--role", "scout=other"), ("other", "")),
        ("agent: scripted\nmodel: of-the-file", "", ("--agent", "other", "--role", "scout=scripted"), None),
    ],
)
def test_the_command_line_comes_before_the_config_before_the_roles_file(
    tmp_path: Path, role: str, config: str, argv: tuple[str, ...], cast: tuple[str, str] | None
) -> None:
    found = cast_of(started(tmp_path, config, *argv, role=role))
    assert found["scout"] == (cast or ("scripted", "of-the-file"))


def test_a_named_role_comes_before_the_agent_of_every_role(tmp_path: Path) -> None:
    front = started(tmp_path, "", "--agent", "scripted", "--role", "scout=other")
    assert cast_of(front)["scout"] == ("other", "")
    assert cast_of(front)["planner"] == ("scripted", "")


@pytest.mark.long
def test_a_role_is_remembered_with_the_run_and_can_be_changed_on_resume(tmp_path: Path) -> None:
    front = started(tmp_path, "", "--role", "spec-reviewer=other:told", "--role", "scout=other")
    assert front.service.run().options["roles"] == {"spec-reviewer": "other:told", "scout": "other"}
    done = front("resume", "--role", "quality-reviewer=scripted:sharp", "--yes")
    assert cast_of(front)["spec-reviewer"] == ("other", "told"), done.out + done.err
    told = {"spec-reviewer": "other:told", "scout": "other", "quality-reviewer": "scripted:sharp"}
    assert front.service.run().options["roles"] == told


@pytest.mark.sweep(4)
@pytest.mark.parametrize(
    ("told", "message", "hint"),
    [
        ("implmenter=scripted", "there is no such role", "did you mean 'implementer'?"),
        ("implementer=scriptd", "there is no agent 'scriptd'", "did you mean 'scripted'?"),
        ("implementer=scripted:x:hihg", "there is no effort 'hihg'", "did you mean 'high'?"),
        (
            "implementer=other:x:high",
            "agent 'other' has no such setting",
            "choose another agent",
        ),
        ("implementer", "does not have the form NAME=VALUE", "--role implementer=claude:opus:high"),
        ("implementer=none", "no agent is available for role 'implementer'", "--agent NAME"),
    ],
)
@pytest.mark.parametrize("command", ["run", "resume"])
def test_a_role_or_agent_that_does_not_exist_is_refused_before_anything_happens(
    tmp_path: Path, command: str, told: str, message: str, hint: str
) -> None:
    front = started(tmp_path, "") if command == "resume" else Front(tmp_path)
    front.configure(scripted(front) + LEAN + OTHER)
    front.say(basics("One"))
    before = front.records if command == "resume" else []
    done = front(command, "--role", told, *(["--", "Add it"] if command == "run" else []))
    assert done.code == 1
    said = " ".join(done.err.split())
    assert (message in said, hint in said) == (True, True), done.err
    assert (front.records if front.service.has_runs else []) == before


def test_a_role_of_another_flow_is_refused(tmp_path: Path) -> None:
    front = Front(tmp_path)
    front.configure(scripted(front))
    front.say(basics("One"))
    done = front("task", "--role", "planner=scripted", "Add it")
    assert (done.code, "flow 'task' has no such role" in done.err) == (1, True)


# -- versions


def claude_that_says(version: str) -> str:
    result: dict[str, Any] = {"type": "result", "subtype": "success", "is_error": False, "result": "Looked."}
    return f"[ \"$1\" = --version ] && echo {version} && exit 0\necho '{json.dumps(result)}'"


def test_a_cli_of_an_unversion_tried_is_said_once_per_run_and_works(tmp_path: Path) -> None:
    front = Front(tmp_path)
    front.configure(scripted(front) + LEAN)
    front.clis(claude=claude_that_says("0.0.1"))
    front.say(basics("One"))
    parts = [part for role in ("scout", "spec-reviewer") for part in ("--role", f"{role}=claude")]
    assert front("run", *parts, "--", "Add it").code == 10
    front("resume", "--yes")
    assert [role for role, (agent, _) in cast_of(front).items() if agent == "claude"] == ["scout", "spec-reviewer"]
    told = [event for event in front.events(Warned) if event.code == "agent"]
    assert [event.text for event in told] == ["claude 0.0.1 was not tested with Windlass; 2.1.325 was"]


def test_the_tokens_of_a_cli_that_tells_no_money_are_reckoned_and_the_date_of_the_prices_is_shown(
    tmp_path: Path,
) -> None:
    said = {"type": "item.completed", "item": {"id": "1", "type": "agent_message", "text": "Looked."}}
    turn = {"type": "turn.completed", "usage": {"input_tokens": 100_000, "output_tokens": 10, "cached_input_tokens": 0}}
    front = Front(tmp_path)
    front.configure(scripted(front) + LEAN)
    front.clis(codex=f"cat > /dev/null\necho '{json.dumps(said)}'\necho '{json.dumps(turn)}'")
    front.say(basics("One"))
    assert front("run", "--role", "scout=codex:gpt-5", "--", "Add it").code == 10
    cost = front.status["cost_by_role"]["scout"]
    assert cost["usd"] == pytest.approx(0.1251)
    assert cost["prices"] > "2025"
    assert f"at list prices of {cost['prices']}" in " ".join(front("status").out.split())
    assert front.status["cost_by_phase"]["plan-draft"]["usd"] == pytest.approx(0.1251)


# -- what is shown is what runs

PROFILED = '[roles.implementer]\nagent = "scripted"\nmodel = "builds"\n'


@pytest.mark.sweep(6)
@pytest.mark.parametrize(
    ("config", "argv", "cast"),
    [
        (PROFILED, (), ("scripted", "builds")),
        (PROFILED + '[roles.planner]\nmodel = "plans"\n', (), ("scripted", "plans")),
        (PROFILED, ("--role", "planner=scripted:told"), ("scripted", "told")),
        (PROFILED + '[roles.planner]\nagent = "other"\n', (), ("other", "")),
        (PROFILED, ("--role", "planner=other"), ("other", "")),
    ],
)
def test_the_planner_is_who_it_is_said_to_be_also_with_the_profile_of_another_role(
    tmp_path: Path, config: str, argv: tuple[str, ...], cast: tuple[str, str]
) -> None:
    assert cast_of(started(tmp_path, config, *argv))["planner"] == cast


def test_windlass_agents_shows_who_plays_every_role_of_every_flow(tmp_path: Path) -> None:
    """Every role an agent of its own, and one role that only lends: shown as the run's own assignment has it."""
    front = Front(tmp_path)
    roles = sorted(load_roles([]))
    agents = "".join(f'[agents."a-{role}"]\nargv = ["echo", "x"]\n' for role in roles)
    tables = "".join(f'[roles."{role}"]\nagent = "a-{role}"\n' for role in roles if role != "planner")
    front.configure(scripted(front) + agents + tables)
    shown = {one["name"]: one["roles"] for one in json.loads(front("agents", "--json").out)}
    kit = Project(front.service.host)
    config, loaded = kit.config(), kit.roles()
    walked = set()
    for source in list_flows([]):
        flow = kit.parse(source, loaded)
        for role, profile in flow.parts():
            agent = assign(config, loaded, role, profile).agent
            lent = f"{role} (in flow '{flow.flow}', as {profile})"
            assert {role, lent} & set(shown[agent]), (flow.flow, role, profile, agent)
            walked.add((flow.flow, role, agent))
    assert ("plan", "planner", "a-implementer") in walked
    assert ("brainstorm", "planner", "scripted") in walked
