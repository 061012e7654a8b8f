"""`--repo URL`: a clone that Windlass keeps for itself, brought up to date, never at the cost of what is in it."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from front import NO_EXTRAS, Front
from front import basics as basics_of_a_plan
from gitrepo import commit, footprint, make_repo, sh
from team import Team, basics, subtask
from windlass.errors import UserError
from windlass.git.clones import clone_of, known_clone

ONE = basics(subtask("a"))


@pytest.fixture
def server(tmp_path: Path) -> Path:
    made = make_repo(tmp_path / "work", {"README.md": "hello\n"})
    sh(tmp_path, "clone", "-q", "--bare", str(made), "server.git")
    return tmp_path / "server.git"


def _environ(tmp_path: Path) -> dict[str, str]:
    return {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")}


def _push(tmp_path: Path, server: Path, *more: str, **files: str) -> str:
    root = tmp_path / "work"
    sha = commit(root, files, "newer")
    sh(root, "push", "-q", *more, str(server), "main")
    return sha


@pytest.mark.req("S2-20")
def test_a_run_from_anywhere_works_in_a_clone_and_pushes_from_there(tmp_path: Path, server: Path) -> None:
    team = Team(tmp_path / "t", remote=False)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    team.say(ONE)
    before = footprint(team.root)
    run = ("run", "Add a", "--flow", "team", "--set", "skip_clarification=true", "--script", str(team.script))
    done = team(*run, "--repo", str(server), cwd=elsewhere)
    assert done.code == 0, done
    assert footprint(team.root) == before
    branches = sh(server, "for-each-ref", "--format=%(refname:short)", "refs/heads").splitlines()
    assert any(name.startswith("swe-team/add-a-") for name in branches)
    assert '"state": "finished"' in team("--repo", str(server), "status", "--json", cwd=elsewhere).out
    assert team("status", cwd=elsewhere).code == 1
    assert team(*run, "--repo", str(server), cwd=elsewhere).code == 0
    assert len(list((tmp_path / "t" / "home" / "state" / "windlass" / "clones").glob("*/server"))) == 1


def _commands(text: str) -> list[str]:
    """Every command of ours that a person is told to type."""
    return re.findall(r"(?<!by )windlass (?:--repo \S+ )?(?:answer|resume|status|log|land|show|retry)\b", text)


@pytest.mark.long
def test_every_command_that_is_told_names_the_repository_again(tmp_path: Path, server: Path) -> None:
    front = Front(tmp_path / "t", NO_EXTRAS)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    front.say(basics_of_a_plan("One"))
    repo = ("--repo", "../server.git")
    run = ("run", "One", "--script", str(front.script), "--set", "execution_mode=checkpoint")
    said = [front(*run, *repo, cwd=elsewhere)]
    assert said[0].code == 10, said
    commands = (("status",), ("answer", "approve"), ("answer", "1"), ("show",), ("answer", "nonsense"))
    said += [front(*repo, *words, cwd=elsewhere) for words in commands]
    for done in said:
        told = _commands(done.out + done.err)
        assert told, done
        assert {command.split(" ")[1:3][-1] for command in told} <= {str(server), "../server.git"}, done
    following = json.loads(front(*repo, "status", "--json", cwd=elsewhere).out)["next"]
    assert following.startswith(f"windlass --repo {server} land ")
    assert said[-2].out.count("Take them:") == 1
    assert said[-1].code == 1


@pytest.mark.req("S2-20")
def test_an_existing_clone_is_brought_forward(tmp_path: Path, server: Path) -> None:
    environ = _environ(tmp_path)
    first = clone_of(str(server), tmp_path, environ)
    newer = _push(tmp_path, server, more="1\n")
    assert clone_of("server.git", tmp_path, environ) == first
    assert sh(first, "rev-parse", "HEAD") == newer
    assert sh(first, "branch", "--show-current") == "main"
    assert known_clone(str(server), tmp_path, environ) == first
    assert known_clone("work", tmp_path, environ) == tmp_path / "work"


def test_a_rewritten_branch_is_followed_and_what_was_committed_here_stays(tmp_path: Path, server: Path) -> None:
    environ = _environ(tmp_path)
    clone = clone_of(str(server), tmp_path, environ)
    mine = commit(clone, {"mine.txt": "1\n"}, "mine")
    theirs = _push(tmp_path, server, theirs="1\n")
    clone_of(str(server), tmp_path, environ)
    assert sh(clone, "rev-parse", "HEAD") == theirs
    assert sh(clone, "rev-parse", "main") == mine


def test_uncommitted_work_in_the_clone_is_never_discarded(tmp_path: Path, server: Path) -> None:
    environ = _environ(tmp_path)
    clone = clone_of(str(server), tmp_path, environ)
    (clone / "README.md").write_text("changed\n")
    with pytest.raises(UserError, match="uncommitted changes"):
        clone_of(str(server), tmp_path, environ)
    assert (clone / "README.md").read_text() == "changed\n"


def test_a_clone_that_was_cut_short_is_made_anew(tmp_path: Path, server: Path) -> None:
    environ = _environ(tmp_path)
    clone = clone_of(str(server), tmp_path, environ)
    clone.rename(clone.with_name("server.new"))
    assert clone_of(str(server), tmp_path, environ) == clone
    assert sh(clone, "status", "--porcelain") == ""


@pytest.mark.parametrize("url", ["", "  ", "-u", "--upload-pack=id", "ext::sh -c id", "https://x/\x1b[2Jy", "a\nb"])
def test_what_is_no_address_is_refused(url: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not an address"):
        clone_of(url, tmp_path, _environ(tmp_path))
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize("url", ["https://me:secret@host/x.git", "https://ghp_token@host/x.git"])
def test_an_address_with_a_login_in_it_is_refused_and_not_repeated(url: str, tmp_path: Path) -> None:
    with pytest.raises(UserError) as refused:
        clone_of(url, tmp_path, _environ(tmp_path))
    assert "secret" not in refused.value.message
    assert "ghp_token" not in refused.value.message


def test_an_address_that_leads_nowhere_is_the_users_to_fix(tmp_path: Path) -> None:
    front = Front(tmp_path)
    done = front("run", "x", "--repo", str(tmp_path / "gone.git"))
    assert done.code == 1
    assert "cannot be cloned" in done.err
    assert "git ls-remote" in done.err
