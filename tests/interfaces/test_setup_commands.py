"""`windlass doctor`, `init` and `agents`: whether a run could start here, and how to get there."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from front import Front, basics
from gitrepo import commit, footprint, sh, write
from windlass.agents.installed import known_version
from windlass.app import compose
from windlass.config.load import load_config
from windlass.git import user_repo
from windlass.git.engine_repo import EngineRepo
from windlass.git.slots import Slots
from windlass.interfaces.cli import setup
from windlass.interfaces.exit import run as command_line
from windlass.paths import state_dir
from windlass.runs.doctor import UNSEEN
from windlass.runs.init import ConfigProposal, propose, render

AGENT = f'[agents]\ndefault = "mine"\n[agents.mine]\nargv = ["{sys.executable}", "{{prompt_file}}"]\n'
VERSION = "echo 1.2.3"
CHECKED = '[checks]\ncommands = ["true"]\n'


def findings(front: Front, cwd: Path | None = None, *, try_too: bool = False) -> dict[str, list[str]]:
    """Texts by level."""
    found: dict[str, list[str]] = {}
    for one in json.loads(front("doctor", "--json", *(["--try"] if try_too else []), cwd=cwd).out)["findings"]:
        found.setdefault(one["level"], []).append(one["text"])
    return found


# -- doctor


def test_a_repository_with_an_agent_and_checks_is_well(tmp_path: Path) -> None:
    front = Front(tmp_path, AGENT + CHECKED)
    done = front("doctor")
    assert done.code == 0, done.out
    assert "A run can start here." in done.out
    assert "fix" not in findings(front)
    assert "warn" not in findings(front)


def test_the_doctor_changes_nothing(tmp_path: Path) -> None:
    front = Front(tmp_path)
    before = footprint(front.root)
    front("doctor")
    assert footprint(front.root) == before
    assert not front.service.host.place.home.exists()
    assert list(state_dir(front.env).iterdir()) == []


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ('blockOnSeverity = "urgent"', "'urgent' is not a value of 'blockOnSeverity'"),
        ('blockOnSeverty = "high"', "[settings] in config.toml: no flow has 'blockOnSeverty'"),
        ('bugFixer = "nobody"', "'bugFixer' is 'nobody', and there is no such role"),
        ("stages.PLAN.enabled = false", "stage IMPLEMENT carries out 'plan', which the disabled stage PLAN makes"),
    ],
)
def test_settings_that_a_run_refuses_must_be_fixed(tmp_path: Path, settings: str, problem: str) -> None:
    front = Front(tmp_path, f'flow = "staged"\n[settings]\n{settings}\n{AGENT}{CHECKED}')
    assert findings(front)["fix"] == [problem]
    refused = front("run", "x")
    assert refused.code == 1
    assert problem in refused.err
    assert not front.service.has_runs


def test_settings_of_another_flow_are_well_and_those_of_no_flow_are_named(tmp_path: Path) -> None:
    front = Front(tmp_path, f'[settings]\nblockOnSeverity = "high"\nzzz = "x"\n{AGENT}{CHECKED}')
    assert findings(front)["warn"] == ["no flow has the setting 'zzz' of the config"]
    assert front("doctor").code == 0


def test_what_cannot_be_known_is_said(tmp_path: Path) -> None:
    assert set(UNSEEN) <= set(findings(Front(tmp_path))["blind"])


def test_roles_without_an_agent_must_be_fixed(tmp_path: Path) -> None:
    front = Front(tmp_path)
    front.clis()
    done = front("doctor")
    assert done.code == 1
    assert "no agent for implementer, planner" in " ".join(done.out.split())
    assert "to fix before a run can start" in done.out


def test_an_agent_that_is_not_installed_must_be_fixed(tmp_path: Path) -> None:
    front = Front(tmp_path, AGENT.replace(sys.executable, "no-such-program"))
    assert "mine: 'no-such-program' is not installed" in findings(front)["fix"]


def test_missing_checks_are_a_warning(tmp_path: Path) -> None:
    front = Front(tmp_path, AGENT)
    assert any("unchecked" in text for text in findings(front)["warn"])
    assert front("doctor").code == 0


def test_outside_a_repository_the_doctor_still_answers(tmp_path: Path) -> None:
    front = Front(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    done = front("doctor", cwd=tmp_path / "elsewhere")
    assert done.code == 1
    assert "is not in a git repository" in " ".join(done.out.split())
    assert "git: version" in done.out


def test_a_repository_without_a_commit_must_be_fixed_and_is_named_once(tmp_path: Path) -> None:
    front = Front(tmp_path)
    sh(tmp_path, "init", "-q", "empty")
    assert findings(front, tmp_path / "empty")["fix"].count("the repository has no commit yet") == 1


def test_a_bare_repository_must_be_fixed(tmp_path: Path) -> None:
    front = Front(tmp_path)
    sh(tmp_path, "init", "-q", "--bare", "bare.git")
    done = front("doctor", cwd=tmp_path / "bare.git")
    assert (done.code, "bare repository" in " ".join(done.out.split())) == (1, True)


def test_submodules_and_lfs_are_refused_with_the_reason(tmp_path: Path) -> None:
    front = Front(tmp_path, AGENT)
    commit(front.root, {".gitmodules": "", ".gitattributes": "*.bin filter=lfs\n"})
    fix = " ".join(findings(front)["fix"])
    assert "not supported: submodules: they stay empty" in fix
    assert "not supported: Git LFS" in fix


def test_a_shallow_clone_is_refused(tmp_path: Path) -> None:
    front = Front(tmp_path, AGENT)
    commit(front.root, {"more.txt": "x"})
    sh(tmp_path, "clone", "-q", "--depth=1", f"file://{front.root}", "shallow")
    assert any("shallow clone" in text for text in findings(front, tmp_path / "shallow")["fix"])


def test_a_dirty_tree_and_a_detached_head_are_noted_but_no_illness(tmp_path: Path) -> None:
    front = Front(tmp_path, AGENT)
    front.git("checkout", "-q", "--detach")
    write(front.root, {"new.txt": "x"})
    notes = " ".join(findings(front)["note"])
    assert "uncommitted changes" in notes
    assert "windlass land needs a branch" in notes
    assert front("doctor").code == 0


def test_a_bad_config_is_named_with_its_line(tmp_path: Path) -> None:
    front = Front(tmp_path, "[checks]\ncomands = []\n")
    done = front("doctor")
    assert done.code == 1
    assert "comands" in done.out


def test_an_unreadable_database_is_reported_and_kept(tmp_path: Path) -> None:
    front = Front(tmp_path, AGENT)
    database = front.service.host.place.database
    database.parent.mkdir(parents=True)
    database.write_bytes(b"this is no database, " * 100)
    assert any("cannot be read" in text for text in findings(front)["fix"])
    assert database.read_bytes().startswith(b"this is no database")


def test_a_database_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    front = Front(tmp_path, AGENT)
    front.start(basics("One"))
    with contextlib.closing(sqlite3.connect(front.root / ".git" / "windlass" / "windlass.db")) as database:
        database.execute("PRAGMA user_version = 999")
    assert any("newer Windlass" in text for text in findings(front)["fix"])


def test_a_folder_that_cannot_be_written_must_be_fixed(tmp_path: Path) -> None:
    front = Front(tmp_path, AGENT)
    (tmp_path / "file").write_text("in the way")
    front.env["XDG_STATE_HOME"] = str(tmp_path / "file" / "state")
    assert any("is not writable" in text for text in findings(front)["fix"])


def test_slots_of_runs_that_are_gone_are_noted(tmp_path: Path) -> None:
    front = Front(tmp_path, AGENT)
    slots = Slots(EngineRepo.open(user_repo.discover(front.root), state_dir(front.env)))
    slots.take("gone", "execute/t1", front.git("rev-parse", "HEAD"))
    assert "1 slot of finished or aborted runs" in findings(front)["note"]


def test_a_process_that_an_attempt_left_behind_is_named(tmp_path: Path) -> None:
    front = Front(tmp_path, AGENT)
    front.start(basics("One"))
    marker = f"{front.run}:execute/t1/implement@1"
    attempt = front.folder / "attempts" / "execute" / "t1" / "implement" / "@1"
    env = {**os.environ, "WINDLASS_ATTEMPT": marker, "WINDLASS_FOLDER": str(attempt)}
    with subprocess.Popen([sys.executable, "-c", "input()"], env=env, stdin=subprocess.PIPE) as left:
        found = findings(front)["warn"]
        left.kill()
    assert f"process {left.pid} is a leftover of {marker}" in found


def test_the_diagnosis_fits_sixty_columns(tmp_path: Path) -> None:
    front = Front(tmp_path)
    front.env["COLUMNS"] = "60"
    assert max(map(len, front("doctor").out.splitlines())) <= 60


# -- init


@pytest.mark.parametrize(
    ("files", "checks", "setup"),
    [
        ({}, (), ()),
        ({"pyproject.toml": "[tool.pytest.ini_options]\n"}, ("python -m pytest -q",), ()),
        ({"tests/test_x.py": ""}, ("python -m pytest -q",), ()),
        ({"tests/test_x.py": "", "uv.lock": ""}, ("uv run pytest -q",), ("uv sync",)),
        ({"package.json": '{"scripts": {"test": "jest"}}', "package-lock.json": "{}"}, ("npm test",), ("npm ci",)),
        ({"package.json": '{"scripts": {"test": "jest"}}'}, ("npm test",), ("npm install",)),
        ({"package.json": '{"scripts": {"test": "echo \\"Error: no test specified\\" && exit 1"}}'}, (), ()),
        ({"package.json": "not json"}, (), ()),
        ({"package.json": "[]"}, (), ()),
        ({"Cargo.toml": ""}, ("cargo test",), ()),
        ({"go.mod": "", "Cargo.toml": ""}, ("cargo test", "go test ./..."), ()),
        ({"Makefile": "build:\n\ntest: build\n\tpytest\n", "tests/test_x.py": ""}, ("make test",), ()),
        ({"Makefile": "test := 1\n"}, (), ()),
    ],
)
def test_checks_are_proposed_from_what_is_there(
    tmp_path: Path, files: dict[str, str], checks: tuple[str, ...], setup: tuple[str, ...]
) -> None:
    write(tmp_path, files)
    proposal = propose(tmp_path)
    assert (proposal.checks, proposal.setup) == (checks, setup)


@pytest.mark.parametrize(
    ("files", "run_files"),
    [
        ({"tests/test_x.py": ""}, "python -m pytest -q --junitxml={junit} {files}"),
        ({"tests/test_x.py": "", "uv.lock": ""}, "uv run pytest -q --junitxml={junit} {files}"),
        (
            {"package.json": '{"scripts": {"test": "vitest run"}}'},
            "npx vitest run --reporter=junit --outputFile={junit} {files}",
        ),
        ({"package.json": '{"scripts": {"test": "vitest run"}}', "tests/test_x.py": ""}, ""),
        ({"go.mod": ""}, "go test -json -count=1 {folders}"),
    ],
)
def test_how_some_tests_are_run_is_proposed_where_it_is_plain(
    tmp_path: Path, files: dict[str, str], run_files: str
) -> None:
    write(tmp_path, files)
    proposal = propose(tmp_path)
    assert " ".join(proposal.run_files) == run_files
    write(tmp_path, {".windlass/config.toml": render(proposal)})
    assert (load_config(tmp_path, tmp_path / "none", {}).tests.run_files or ()) == proposal.run_files


@pytest.mark.parametrize("proposal", [ConfigProposal(), ConfigProposal(('pytest -k "a b"',), ("npm ci",), "claude")])
def test_every_proposal_is_a_config_that_loads(tmp_path: Path, proposal: ConfigProposal) -> None:
    write(tmp_path, {".windlass/config.toml": render(proposal)})
    config = load_config(tmp_path, tmp_path / "none", {})
    assert config.agents.default == proposal.agent
    assert [" ".join(argv) for argv in config.checks.commands] == [text.replace('"', "") for text in proposal.checks]
    assert len(config.workspace.setup) == len(proposal.setup)


def test_every_commented_example_in_the_file_loads_too(tmp_path: Path) -> None:
    lines = render(ConfigProposal()).splitlines()
    switched_on = [line.removeprefix("# ") if _is_example(line) else line for line in lines]
    write(tmp_path, {".windlass/config.toml": "\n".join(switched_on)})
    assert load_config(tmp_path, tmp_path / "none", {}).roles["implementer"].agent == "NAME"


def _is_example(line: str) -> bool:
    return line.startswith("# [") or (line.startswith("# ") and " = " in line)


def test_init_writes_once_and_only_replaces_when_told(tmp_path: Path) -> None:
    front = Front(tmp_path, files={"tests/test_x.py": "def test_x(): pass\n"})
    path = front.root / ".windlass" / "config.toml"
    assert front("init", "--yes").code == 0
    assert 'commands = ["python -m pytest -q"]' in path.read_text()
    path.write_text("# mine\n")
    again = front("init", "--yes")
    assert (again.code, "--force" in again.err) == (1, True)
    assert path.read_text() == "# mine\n"
    assert front("init", "--yes", "--force").code == 0
    assert path.read_text() != "# mine\n"


def test_init_proposes_an_agent_that_is_installed(tmp_path: Path) -> None:
    front = Front(tmp_path, AGENT.replace('default = "mine"\n', ""))
    front("init", "--yes")
    assert 'default = "mine"' in (front.root / ".windlass" / "config.toml").read_text()


def interactive_init(front: Front, typed: str) -> int:
    with (
        front.inside(front.root),
        mock.patch.object(setup, "is_interactive", return_value=True),
        mock.patch.object(sys, "stdin", io.StringIO(typed)),
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        return command_line(["init"], compose())


@pytest.mark.parametrize(
    ("typed", "written"),
    [
        ("\n", 'commands = ["cargo test"]'),
        ("a -q; b\n", 'commands = ["a -q", "b"]'),
        ("none\n", '# commands = ["pytest'),
    ],
)
def test_init_asks_one_question_and_takes_the_answer(tmp_path: Path, typed: str, written: str) -> None:
    front = Front(tmp_path, files={"Cargo.toml": ""})
    front.clis()
    assert interactive_init(front, typed) == 0
    assert written in (front.root / ".windlass" / "config.toml").read_text()


def test_init_refuses_what_needs_a_shell(tmp_path: Path) -> None:
    front = Front(tmp_path)
    front.clis()
    assert interactive_init(front, "a && b\n") == 1
    assert not (front.root / ".windlass").exists()


@pytest.mark.parametrize(
    ("typed", "chosen"), [("\n\n", "codex"), ("gemini\n\n", "gemini"), ("pi\nopencode\n\n", "opencode")]
)
def test_init_asks_who_works_when_there_is_a_choice(tmp_path: Path, typed: str, chosen: str) -> None:
    front = Front(tmp_path)
    front.clis(opencode=VERSION, gemini=VERSION, codex=VERSION)
    assert interactive_init(front, typed) == 0
    text = (front.root / ".windlass" / "config.toml").read_text()
    assert f'default = "{chosen}"' in text
    assert "Found here: codex, gemini, opencode." in text


def test_init_prefers_an_agent_that_somebody_logged_in_to(tmp_path: Path) -> None:
    front = Front(tmp_path)
    front.clis(claude=VERSION, codex=VERSION)
    front.env["OPENAI_API_KEY"] = "sk-something"
    said = front("init", "--yes")
    assert 'default = "codex"' in (front.root / ".windlass" / "config.toml").read_text()
    assert "agent: codex (also here: claude)" in said.err


# -- agents


def listed(front: Front) -> dict[str, Any]:
    return {one["name"]: one for one in json.loads(front("agents", "--json").out)}


def test_an_installed_cli_is_shown_with_path_version_login_and_roles(tmp_path: Path) -> None:
    front = Front(tmp_path)
    folder = front.clis(claude=f"echo '{known_version('claude')} (Claude Code)'", codex="echo codex-cli 0.0.1")
    front.env["ANTHROPIC_API_KEY"] = "sk-ant-something"
    found = listed(front)
    claude, codex = found["claude"], found["codex"]
    assert (claude["path"], claude["version"], claude["warning"]) == (
        str(folder / "claude"),
        known_version("claude"),
        "",
    )
    assert claude["login"] == "found: ANTHROPIC_API_KEY"
    assert "implementer" in claude["roles"]
    assert codex["warning"] == f"codex 0.0.1 was not tested with Windlass; {known_version('codex')} was"
    assert codex["login"].startswith("no login found (")
    assert (found["pi"]["usable"], found["pi"]["problem"]) == (False, "'pi' is not installed")
    said = " ".join(front("agents").out.split())
    assert "sk-ant-something" not in said
    assert "login: found: ANTHROPIC_API_KEY" in said
    assert codex["warning"] in said


def test_a_server_of_your_own_needs_no_login(tmp_path: Path) -> None:
    front = Front(tmp_path, '[agents.claude]\nbase_url = "http://127.0.0.1:1"\napi_key = "secret-word"\n')
    front.clis(claude=VERSION)
    assert listed(front)["claude"]["login"] == "api_key in the config"
    assert "secret-word" not in front("agents", "--json").out


def test_looking_at_a_cli_does_not_let_it_write_at_home(tmp_path: Path) -> None:
    front = Front(tmp_path)
    front.clis(claude="echo x > $HOME/trace; echo 1.2.3")
    assert listed(front)["claude"]["version"] == "1.2.3"
    assert not (Path(front.env["HOME"]) / "trace").exists()


@pytest.mark.parametrize(
    ("there", "first"),
    [
        (("opencode", "gemini"), "gemini"),
        (("gemini", "pi", "codex"), "codex"),
        (("claude", "codex"), "claude"),
        ((), ""),
    ],
)
def test_without_a_default_the_first_cli_that_is_installed_works(
    tmp_path: Path, there: tuple[str, ...], first: str
) -> None:
    front = Front(tmp_path)
    front.clis(**dict.fromkeys(there, VERSION))
    assert [name for name, one in listed(front).items() if "implementer" in one["roles"]] == ([first] if first else [])


def test_the_doctor_warns_of_an_unversion_tried_and_a_missing_login(tmp_path: Path) -> None:
    front = Front(tmp_path)
    front.clis(pi="echo 0.0.1")
    found = findings(front)
    assert f"pi 0.0.1 was not tested with Windlass; {known_version('pi')} was" in found["warn"]
    assert any(text.startswith("pi: no login found") for text in found["note"])
    assert front("doctor").code == 0


# -- doctor --try


def test_an_agent_that_answers_is_well(tmp_path: Path) -> None:
    front = Front(tmp_path, '[agents]\ndefault = "mine"\n[agents.mine]\nargv = ["echo", "ready"]\n')
    done = front("doctor", "--try")
    assert done.code == 0, done.out
    assert re.search(r"\[ok\] try: mine: answered in [\d.]+ s, cost unknown", done.out)


def test_without_being_asked_the_doctor_starts_no_agent(tmp_path: Path) -> None:
    front = Front(tmp_path, f'[agents]\ndefault = "mine"\n[agents.mine]\nargv = ["sh", "-c", "touch {tmp_path}/ran"]\n')
    front("doctor")
    assert not (tmp_path / "ran").exists()
    front("doctor", "--try")
    assert (tmp_path / "ran").exists()


def test_an_agent_that_fails_is_named_with_its_class_and_the_way_out(tmp_path: Path) -> None:
    told = "echo 'HTTP 401: invalid api key sk-ant-abcdefgh01234567' >&2; exit 1"
    front = Front(tmp_path, f'[agents]\ndefault = "mine"\n[agents.mine]\nargv = ["sh", "-c", "{told}"]\n')
    done = front("doctor", "--try", "--json")
    [tried] = [one for one in json.loads(done.out)["findings"] if one["topic"] == "try"]
    assert (done.code, tried["level"], "auth after" in tried["text"]) == (1, "fix", True)
    assert "log in" in tried["hint"]
    assert "sk-ant" not in done.out


def test_an_agent_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    front = Front(tmp_path, '[agents]\ndefault = "claude"\n[agents.claude]\napi_key_env = "NOT_SET"\n')
    assert (
        "claude: agent 'claude' takes its key from 'NOT_SET', which is not set" in findings(front, try_too=True)["fix"]
    )


def test_trying_leaves_nothing_behind(tmp_path: Path) -> None:
    front = Front(tmp_path, '[agents]\ndefault = "mine"\n[agents.mine]\nargv = ["echo", "ready"]\n')
    before = footprint(front.root)
    front("doctor", "--try")
    assert footprint(front.root) == before
    assert list(state_dir(front.env).iterdir()) == []


# -- all agents


def test_agents_are_listed_with_what_they_can_and_who_uses_them(tmp_path: Path) -> None:
    front = Front(tmp_path, AGENT + '[roles.scout]\nagent = "command"\n')
    found = {one["name"]: one for one in json.loads(front("agents", "--json").out)}
    assert {"scripted", "command", "mine"} <= set(found)
    assert found["mine"]["usable"] is True
    assert "implementer" in found["mine"]["roles"]
    assert found["command"]["roles"] == ["scout"]
    assert "needs 'argv'" in found["command"]["problem"]
    said = front("agents")
    assert said.code == 0
    assert "cost: none" in said.out
    assert "not usable" in said.out
