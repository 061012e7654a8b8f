"""publish: once, never by force, and with words that help where it cannot be done."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import pytest

from bench import Bench, make_bench
from gitrepo import sh, write
from team import URL, Team, basics, created, engineer, make_gh, make_remote, subtask
from windlass.agents.process.supervise import agent_env
from windlass.errors import UserError
from windlass.events import PublishFinished
from windlass.git import remote
from windlass.git import run as git
from windlass.git.github import GhOutput, first_url

ONE = basics(subtask("a"))
SECRETS = {"GH_TOKEN": "ghp_0123456789abcdefghijABCDEFGHIJ", "SSH_AUTH_SOCK": "/nowhere/agent", "GIT_ASKPASS": "ask-me"}


def _found(team: Team) -> dict[str, PublishFinished]:
    return {event.what: event for event in team.events(PublishFinished)}


def test_without_a_remote_the_branch_stays_and_the_commands_are_shown(tmp_path: Path) -> None:
    team = Team(tmp_path, remote=False)
    done = team.go(ONE)
    assert done.code == 0, done
    found = _found(team)
    assert {what: event.state for what, event in found.items()} == {"push": "left", "pr": "left"}
    assert found["push"].commands == ["git remote add origin URL", f"git push origin {team.branch}"]
    create = found["pr"].commands[-1]
    assert create.startswith(f"gh pr create --head {team.branch} --title 'Add add and mul' --body-file ")
    assert (team.root / create.split()[-1]).read_text().startswith("## Request")
    for shown in (done.out, team.report):
        assert create in shown
    assert team.created == []
    assert "src/a.py" in team.landed


def test_where_nothing_landed_nothing_is_published(tmp_path: Path) -> None:
    team = Team(tmp_path)
    done = team.go([engineer(files={}, json={"nothing_to_change": True, "reason": "it is there"}), *ONE])
    assert done.code == 0, done
    assert {event.detail for event in _found(team).values()} == {"nothing has landed, so there is nothing to publish"}
    assert team.created == []
    assert list(team.pushed()) == ["refs/heads/main"]


def test_without_gh_the_branch_is_pushed_and_the_command_is_shown(tmp_path: Path) -> None:
    team = Team(tmp_path, gh=False)
    team.clis(python3=f'exec {sys.executable} "$@"')
    done = team.go(ONE)
    assert done.code == 0, done
    assert {what: event.state for what, event in _found(team).items()} == {"push": "done", "pr": "left"}
    assert "gh is not installed" in team.report
    assert f"refs/heads/{team.branch}" in team.pushed()


def test_a_remote_that_is_not_on_github_is_no_failure(tmp_path: Path) -> None:
    team = Team(tmp_path)
    team.gh_does(
        "echo 'none of the git remotes configured for this repository point to a known GitHub host' >&2; exit 1\n"
    )
    assert team.go(ONE).code == 0
    assert "not on GitHub" in _found(team)["pr"].detail


@pytest.mark.req("S2-37")
def test_a_remote_that_refuses_fails_the_run_with_its_own_words_and_a_retry_pushes(tmp_path: Path) -> None:
    team = Team(tmp_path)
    hook = team.remote / "hooks" / "pre-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\necho 'branches of that name are not allowed' >&2\nexit 1\n")
    hook.chmod(0o755)
    done = team.go(ONE)
    assert done.code == 12, done
    assert team.steps[-1] == "FAILED"
    for shown in (done.out, team.report, done.err):
        assert "branches of that name are not allowed" in shown
    assert f"git push origin {team.branch}" in team.report
    assert team.created == []
    hook.unlink()
    assert team("retry").code == 0
    assert len(team.created) == 1
    assert team.keys.count("execute/a/implement") == 1


def test_gh_that_is_not_logged_in_fails_the_run_and_says_the_way_out(tmp_path: Path) -> None:
    team = Team(tmp_path)
    team.gh_does("echo 'To get started with GitHub CLI, please run:  gh auth login' >&2; exit 4\n")
    done = team.go(ONE)
    assert done.code == 12, done
    assert "gh is not logged in; gh auth login, then windlass retry" in team.report
    assert f"refs/heads/{team.branch}" in team.pushed()
    team.gh_does("")
    assert team("retry").code == 0
    assert _found(team)["push"].state == "already"
    assert _found(team)["pr"].url == URL
    assert len(team.created) == 1


def test_a_branch_that_somebody_else_moved_on_the_remote_is_never_overwritten(tmp_path: Path) -> None:
    team = Team(tmp_path, files={"block.sh": "exit 0\n"})
    team.configure('[checks]\ncommands = [["sh", "block.sh"]]\n')
    hook = team.remote / "hooks" / "pre-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\nexit 1\n")
    hook.chmod(0o755)
    assert team.go(ONE).code == 12
    hook.unlink()
    sh(tmp_path, "clone", "-q", str(team.remote), "other")
    sh(tmp_path / "other", "commit", "-q", "--allow-empty", "-m", "theirs")
    sh(tmp_path / "other", "push", "-q", "origin", f"HEAD:refs/heads/{team.branch}")
    theirs = team.pushed()[f"refs/heads/{team.branch}"]
    assert team("retry").code == 12
    assert team.pushed()[f"refs/heads/{team.branch}"] == theirs
    assert "rejected" in team.report


def test_credentials_reach_git_and_gh_but_no_agent(tmp_path: Path) -> None:
    team = Team(tmp_path)
    team.env |= SECRETS
    spy = {"run": ["env | sort > env.txt"]}
    rules = [rule | spy if rule["when"].get("role") == "swe" else rule for rule in ONE]
    assert team.go(rules).code == 0
    seen = team.show("env.txt")
    assert not any(name in seen or value in seen for name, value in SECRETS.items())
    assert f"GH_TOKEN={SECRETS['GH_TOKEN']}" in (tmp_path / "gh.env").read_text()
    assert remote.credentials(SECRETS | {"GIT_DIR": "/x", "GIT_INDEX_FILE": "/y"}) == SECRETS
    assert agent_env(SECRETS) == {}


def test_a_secret_in_the_remotes_address_is_not_recorded(tmp_path: Path) -> None:
    team = Team(tmp_path)
    team.git("remote", "set-url", "origin", "http://me:s3cret-value@127.0.0.1:9/none.git")
    assert team.go(ONE).code == 12
    assert "s3cret-value" not in team("show", team.run).out + team.report + "".join(team.warnings)
    assert "s3cret-value" not in json.dumps([str(recorded.event) for recorded in team.records])


# -- killed in between

KILLS = [
    ("windlass.git.remote:Remote.push", "before"),
    ("windlass.git.remote:Remote.push", "after"),
    ("windlass.git.github:Gh.open_pull_request", "before"),
    ("windlass.git.github:Gh.open_pull_request", "after"),
]


@pytest.mark.sweep(4)
@pytest.mark.parametrize(("place", "when"), KILLS)
def test_killed_around_a_push_or_a_pull_request_it_happens_once(place: str, when: str, tmp_path: Path) -> None:
    bench = make_bench(tmp_path, script=ONE, config="[budget]\nstop_usd = 20\n")
    make_remote(bench.root, tmp_path)
    bench = Bench(tmp_path, {"PATH": f"{make_gh(tmp_path)}{os.pathsep}{os.environ['PATH']}"})
    args = ("run", "Add a", "--flow", "team", "--set", "skip_clarification=true", "--script", str(bench.script))
    said = bench.killed_at(place, when, 1, *args)
    assert said.code == -signal.SIGKILL, str(said)
    assert bench.windlass("resume").code == 0
    assert len(created(tmp_path)) == 1
    events = [json.loads(row["data"]) for row in bench.rows("SELECT data FROM event WHERE type = 'publish.finished'")]
    assert [event["what"] for event in events] == ["push", "pr"]
    assert events[1]["url"] == URL


# -- a tag, and other remotes

TAGGING = """
flow: tagged
about: One task, then a tag.
settings: {where: {default: upstream}}
artifacts: {plan: {kind: file, path: plan.md, contract: tasks, given: true}}
phases:
  - id: execute
    kind: tasks
    from: plan
    steps: [{id: implement, kind: produce, calls: [{role: swe, in: [task]}], on: {failed: fail}}]
    land: {on: {conflict: fail, red: fail}}
    on: {done: next, stopped: stop}
  - {id: out, kind: publish, do: [tag], remote: $where, tag: "v-{slug}", on: {ok: next, failed: stop}}
  - {id: report, kind: report, template: pull-request, on: {ok: finish}}
"""


def _tagged(tmp_path: Path) -> Team:
    team = Team(tmp_path)
    write(tmp_path / "home" / "config" / "windlass", {"flows/tagged.yaml": TAGGING})
    return team


def test_a_tag_is_set_on_the_remote_alone_and_an_existing_one_is_not_moved(tmp_path: Path) -> None:
    team = _tagged(tmp_path)
    team.git("remote", "rename", "origin", "upstream")
    assert team.start(ONE, "--flow", "tagged", request="One").code == 0
    assert team.pushed()["refs/tags/v-one"] == team.git("rev-parse", team.branch)
    assert team.git("tag") == ""
    # Another change: the same one within the same second would be the same commit.
    other = engineer(files={"src/a.py": "def a(): return 2\n"})
    again = team.start([other, *ONE], "--flow", "tagged", request="One")
    assert again.code == 12
    assert "it exists with another commit" in again.out


def test_a_remote_that_does_not_exist_is_named_with_the_nearest(tmp_path: Path) -> None:
    team = _tagged(tmp_path)
    done = team.start(ONE, "--flow", "tagged", "--set", "where=orgin", request="One")
    assert done.code == 12
    assert "there is no remote 'orgin'; did you mean 'origin'?" in done.out


def test_the_remote_is_the_one_git_would_push_to(tmp_path: Path) -> None:
    root = tmp_path / "repo"
    sh(tmp_path, "init", "-q", "-b", "main", "repo")
    assert remote.choose(root, "main") == ""
    sh(root, "remote", "add", "zeta", "/nowhere")
    assert remote.choose(root, "main") == "zeta"
    sh(root, "remote", "add", "origin", "/nowhere")
    assert remote.choose(root, "main") == "origin"
    git.run(["config", "remote.pushDefault", "zeta"], root)
    assert remote.choose(root, "main") == "zeta"
    git.run(["config", "branch.main.pushRemote", "origin"], root)
    assert remote.choose(root, "main") == "origin"
    with pytest.raises(UserError, match="no remote 'zta'"):
        remote.choose(root, "main", "zta")


def test_what_gh_says_is_read_by_its_meaning() -> None:
    assert first_url(f'[{{"url": "{URL}"}}]') == URL
    assert [first_url(text) for text in ("", "[]", "{}", "no json", "[3]")] == [""] * 5
    there = GhOutput(1, "", f"a pull request for branch 'x' into branch 'main' already exists:\n{URL}")
    assert (there.url, there.needs_login, there.not_github) == (URL, False, False)
    assert GhOutput(4, "", "").needs_login
    assert GhOutput(1, "", "").why == "gh ended with 1"
