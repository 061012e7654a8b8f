"""A branch that goes to a fork: the pull request is for the repository it was forked from, and is found again there."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from bench import Bench, make_bench
from gitrepo import sh
from team import URL, Team, basics, created, make_gh, make_remote, subtask
from windlass.events import PublishFinished
from windlass.git import remote
from windlass.git.github import Repo, first_url, repo_of

ONE = basics(subtask("a"))
BASE, FORK = "https://github.com/Acme/calc.git", "git@github.com:ada/calc.git"
OTHERS = "https://github.example/acme/calc/pull/3"


def fork_it(root: Path, folder: Path) -> Path:
    """`origin` is the repository of others, `fork` one's own; both lie here and have the addresses of a server."""
    sh(folder, "clone", "-q", "--bare", str(folder / "remote.git"), "fork.git")
    sh(root, "remote", "add", "fork", FORK)
    sh(root, "remote", "set-url", "origin", BASE)
    for url, place in ((BASE, "remote.git"), (FORK, "fork.git")):
        sh(root, "config", f"url.{folder / place}.insteadOf", url)
    sh(root, "config", "branch.main.remote", "origin")
    sh(root, "config", "remote.pushDefault", "fork")
    return folder / "fork.git"


def pull_request(team: Team) -> PublishFinished:
    return next(event for event in team.events(PublishFinished) if event.what == "pr")


def heads(place: Path) -> list[str]:
    return sh(place, "for-each-ref", "--format=%(refname:short)", "refs/heads").splitlines()


@pytest.mark.req("S2-35")
def test_the_branch_goes_to_the_fork_and_the_pull_request_to_where_it_was_forked_from(tmp_path: Path) -> None:
    team = Team(tmp_path)
    fork = fork_it(team.root, tmp_path)
    assert team.go(ONE).code == 0
    assert (team.branch in heads(fork), heads(team.remote)) == (True, ["main"])
    (asked,) = team.created
    assert asked.startswith(f"pr create --repo=Acme/calc --head=ada:{team.branch} --base=main --title=")
    listing = (tmp_path / "gh.log").read_text().splitlines()[0]
    # gh's list takes no owner: the answer tells it.
    assert listing.startswith(f"pr list --repo=Acme/calc --head={team.branch} --state=all ")
    assert listing.endswith("--json=url,headRepositoryOwner")


@pytest.mark.sweep(2)
@pytest.mark.parametrize(("login", "state", "url"), [("bob", "done", URL), ("Ada", "already", OTHERS)])
def test_a_pull_request_counts_only_if_it_is_of_this_fork(login: str, state: str, url: str, tmp_path: Path) -> None:
    team = Team(tmp_path)
    fork_it(team.root, tmp_path)
    listed = [{"url": OTHERS, "headRepositoryOwner": {"login": login}}]
    (tmp_path / "gh.open").write_text(json.dumps(listed))
    assert team.go(ONE).code == 0
    assert (pull_request(team).state, pull_request(team).url) == (state, url)


@pytest.mark.sweep(2)
@pytest.mark.parametrize("when", ["before", "after"])
def test_killed_around_a_pull_request_from_a_fork_it_is_opened_once(when: str, tmp_path: Path) -> None:
    bench = make_bench(tmp_path, script=ONE, config="[budget]\nstop_usd = 20\n")
    make_remote(bench.root, tmp_path)
    fork_it(bench.root, tmp_path)
    bench = Bench(tmp_path, {"PATH": f"{make_gh(tmp_path)}{os.pathsep}{os.environ['PATH']}"})
    args = ("run", "Add a", "--flow", "team", "--set", "skip_clarification=true", "--script", str(bench.script))
    said = bench.killed_at("windlass.git.github:Gh.open_pull_request", when, 1, *args)
    assert said.code == -signal.SIGKILL, str(said)
    assert bench.windlass("resume").code == 0
    assert len(created(tmp_path)) == 1


def test_without_gh_the_command_to_type_names_fork_and_base(tmp_path: Path) -> None:
    team = Team(tmp_path)
    fork_it(team.root, tmp_path)
    team.gh_does("echo 'gh auth login' >&2; exit 4\n")
    assert team.go(ONE).code == 12
    assert f"gh pr create --repo Acme/calc --head ada:{team.branch} --base main" in team.report
    assert f"git push fork {team.branch}" in team.report


def test_what_changes_are_proposed_to_is_said_by_the_person_and_never_taken_from_a_name(tmp_path: Path) -> None:
    root = tmp_path / "repo"
    sh(tmp_path, "init", "-q", "-b", "main", "repo")
    for name in ("origin", "upstream", "mine"):
        sh(root, "remote", "add", name, f"https://github.com/{name}/calc")
    assert remote.proposal_remote(root, "main", "mine") == "mine"
    sh(root, "config", "branch.main.remote", "origin")
    assert remote.proposal_remote(root, "main", "mine") == "origin"
    sh(root, "config", "remote.upstream.gh-resolved", "base")
    assert remote.proposal_remote(root, "main", "mine") == "upstream"
    sh(root, "config", "remote.mine.pushurl", "git@github.com:mine/other.git")
    assert remote.addresses(root, "mine", push=True)[0] == "git@github.com:mine/other.git"


ADDRESSES = {
    "https://github.com/acme/calc.git": "acme/calc",
    "https://me:secret@github.com/acme/calc": "acme/calc",
    "git@github.com:acme/calc.git": "acme/calc",
    "ssh://git@github.com:22/acme/calc.git/": "acme/calc",
    "git@work:acme/calc.git": "acme/calc",
    "https://git.acme.example/team/calc": "git.acme.example/team/calc",
}


@pytest.mark.parametrize("url", ADDRESSES)
def test_an_address_tells_the_servers_own_name(url: str) -> None:
    found = repo_of(url)
    assert found
    assert found.slug == ADDRESSES[url]


@pytest.mark.parametrize("url", ["", "/srv/calc.git", "../calc.git", "file:///srv/a/b.git", "host:/a/b", "a b:c/d e"])
def test_other_addresses_tell_none(url: str) -> None:
    assert repo_of(url) is None


def test_small_letters_and_capitals_are_the_same_repository() -> None:
    assert Repo("github.com", "Acme", "Calc").is_same(Repo("github.com", "acme", "calc"))
    assert first_url('[{"url": "x", "headRepositoryOwner": null}]', "ada") == "x"
