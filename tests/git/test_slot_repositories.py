"""Each slot is a repository of its own: what one agent does with git, no other agent and no person sees."""

from __future__ import annotations

from pathlib import Path

import pytest

from crews import Crewed, flow, meeting, plan_rule, rule
from gitrepo import sh

WHO = "-c user.name=Ada -c user.email=ada@example.org"


@pytest.fixture
def crew(tmp_path: Path) -> Crewed:
    return Crewed(tmp_path, "[retries]\ncrashed = 0\n")


@pytest.fixture
def retrying(tmp_path: Path) -> Crewed:
    return Crewed(tmp_path, '[retries]\ncrashed = 1\npauses = ["0s"]\n')


def tip_file(crew: Crewed, path: str) -> str:
    (branch,) = [line for line in sh(crew.root, "branch", "--format=%(refname:short)").splitlines() if "/" in line]
    return sh(crew.root, "show", f"{branch}:{path}", check=False)


def kept(crew: Crewed) -> list[str]:
    return sh(crew.root, "for-each-ref", "--format=%(refname)", "refs/windlass/keep").splitlines()


def kept_files(crew: Crewed) -> set[str]:
    return {name for ref in kept(crew) for name in sh(crew.root, "ls-tree", "-r", "--name-only", ref).splitlines()}


@pytest.mark.req("S2-27")
def test_two_agents_that_stash_side_by_side_each_get_their_own_work_back(crew: Crewed) -> None:
    def stash(mine: str) -> str:
        return f"echo {mine} > {mine}.txt && git add -A && git {WHO} stash -q"

    def pop(mine: str) -> str:
        return f"git stash pop -q && test -e {mine}.txt"

    def meet(place: str, mine: str, other: str) -> str:
        return meeting(crew.tmp / place, mine, other)

    first = [stash("t1"), meet("one", "t1", "t2"), meet("two", "t1", "t2"), pop("t1"), meet("three", "t1", "t2")]
    second = [meet("one", "t2", "t1"), stash("t2"), meet("two", "t2", "t1"), meet("three", "t2", "t1"), pop("t2")]
    rules = [rule("t1", {}, run=first), rule("t2", {}, run=second)]
    done = crew.go(flow(slots=2), [plan_rule([{"title": "A"}, {"title": "B"}]), *rules])
    assert done.code == 0, done.out
    assert (tip_file(crew, "t1.txt"), tip_file(crew, "t2.txt")) == ("t1", "t2")


def test_a_branch_that_an_agent_works_on_survives_the_end_of_another_task(crew: Crewed) -> None:
    on_branch = [
        meeting(crew.tmp / "begun", "t1", "t2"),
        "git checkout -q -b work",
        meeting(crew.tmp / "on", "t1", "t2"),
        crew.until("task.landed", '"t2"'),
        "git rev-parse --verify -q refs/heads/work",
        "echo one > t1.txt",
    ]
    rules = [
        rule("t1", {}, run=on_branch),
        rule(
            "t2",
            {"t2.txt": "two\n"},
            run=[meeting(crew.tmp / "begun", "t2", "t1"), meeting(crew.tmp / "on", "t2", "t1")],
        ),
    ]
    done = crew.go(flow(slots=2), [plan_rule([{"title": "A"}, {"title": "B"}]), *rules])
    assert done.code == 0, done.out
    assert (tip_file(crew, "t1.txt"), tip_file(crew, "t2.txt")) == ("one", "two")


def test_a_stash_and_a_branch_that_an_agent_left_are_kept_under_its_own_task(crew: Crewed) -> None:
    leave = [
        f"git checkout -q -b side && echo side > side.txt && git add -A && git {WHO} commit -qm side",
        "git checkout -q --detach HEAD~1",
        f"echo s > stashed.txt && git add -A && git {WHO} stash -q",
        "echo one > t1.txt",
    ]
    done = crew.go(flow(slots=1), [plan_rule([{"title": "A"}]), rule("t1", {}, run=leave)])
    assert done.code == 0, done.out
    of_task = [ref for ref in kept(crew) if ref.startswith("refs/windlass/keep/") and "/execute/t1/" in ref]
    found = {name for ref in of_task for name in sh(crew.root, "ls-tree", "-r", "--name-only", ref).splitlines()}
    assert {"side.txt", "stashed.txt"} <= found
    assert "side.txt" not in crew.landed


def test_half_done_work_of_a_crashed_try_is_kept_and_the_next_try_is_told_of_it(retrying: Crewed) -> None:
    crash = rule("t1", {"half.txt": "half\n", "src/a.py": "broken\n"}, when={"attempt": 1}, exit=7)
    crash.pop("commit")
    tidy = rule("t1", {"src/b.py": "whole\n"}, run=["rm half.txt src/a.py"])
    done = retrying.go(flow(slots=1), [plan_rule([{"title": "A"}]), crash, tidy])
    assert done.code == 0, done.out
    assert "uncommitted: 'half.txt', 'src/a.py'" in retrying.prompt("execute/t1/implement", 2)
    assert [tip_file(retrying, name) for name in ("src/b.py", "half.txt", "src/a.py")] == ["whole", "", ""]
    assert "half.txt" in kept_files(retrying)


def test_commits_of_a_crashed_try_are_named_to_the_next_one(retrying: Crewed) -> None:
    crash = rule("t1", {"half.txt": "half\n"}, when={"attempt": 1}, exit=7)
    done = retrying.go(flow(slots=1), [plan_rule([{"title": "A"}]), crash, rule("t1", {"src/b.py": "whole\n"})])
    assert done.code == 0, done.out
    assert "committed: '" in retrying.prompt("execute/t1/implement", 2)
    assert (tip_file(retrying, "src/b.py"), tip_file(retrying, "half.txt")) == ("whole", "half")


FILTER = """
git init -q nested && cd nested && git config filter.x.clean "{spy}" && git config core.fsmonitor "{spy}"
echo '* filter=x' > .gitattributes && echo a > a
git -c filter.x.clean=cat add -A && git {who} -c filter.x.clean=cat commit -qm n
cd .. && git add nested && git {who} commit -qm gitlink
cd nested && sleep 0.02 && echo b > a
"""


def test_a_nested_repositorys_filter_never_runs_in_the_drivers_git(crew: Crewed) -> None:
    log, spy = crew.tmp / "spied", crew.tmp / "spy.sh"
    spy.write_text(f"#!/bin/sh\necho ran >> {log}\ncat\n")
    spy.chmod(0o755)
    run = FILTER.format(spy=spy, who=WHO) + f"\nrm -f {log}"
    one = rule("t1", {"x.txt": "x\n"}, run=[run])
    one.pop("commit")
    done = crew.go(flow(slots=1), [plan_rule([{"title": "A"}]), one])
    assert done.code == 0, done.out
    assert not log.exists(), log.read_text()


def test_configuration_that_an_agent_writes_into_its_slot_never_runs_in_the_drivers_git(crew: Crewed) -> None:
    log, spy = crew.tmp / "spied", crew.tmp / "spy.sh"
    spy.write_text(f"#!/bin/sh\necho $* >> {log}\ncat\n")
    spy.chmod(0o755)
    settings = ["filter.x.clean", "filter.x.smudge", "core.fsmonitor", "diff.external", "core.alternateRefsCommand"]
    plant = "; ".join(f"git config {name} {spy}" for name in settings)
    dirty = f"{plant}; echo '* filter=x' > .gitattributes; echo new > new.txt; rm -f {log}"
    last = rule("t1", {}, run=[dirty])
    last.pop("commit")
    done = crew.go(flow(slots=1), [plan_rule([{"title": "A"}, {"title": "B"}]), last, rule("t2", {"t2.txt": "2\n"})])
    assert done.code == 0, done.out
    assert not log.exists(), log.read_text()


def test_a_filter_whose_program_lies_in_the_checkout_never_runs_in_the_drivers_git(crew: Crewed) -> None:
    """An agent can rewrite such a program; the driver would run it."""
    log = crew.tmp / "spied"
    (crew.root / "clean.sh").write_text("cat\n")
    (crew.root / ".gitattributes").write_text("*.txt filter=x\n")
    sh(crew.root, "config", "filter.x.clean", "sh ./clean.sh")
    sh(crew.root, "add", "-A")
    sh(crew.root, "commit", "-qm", "a filter of the repository's own")
    plant = f"printf 'echo ran >> {log}; cat' > clean.sh; echo x > new.txt; git add -A; git {WHO} commit -qm x"
    evil = f"{plant}; echo y >> new.txt; rm -f {log}"
    one = rule("t1", {}, run=[evil])
    one.pop("commit")
    done = crew.go(flow(slots=1), [plan_rule([{"title": "A"}, {"title": "B"}]), one, rule("t2", {"t2.txt": "2\n"})])
    assert done.code == 0, done.out
    assert not log.exists(), log.read_text()


def test_a_nested_repositorys_links_and_executable_files_land_as_they_are(crew: Crewed) -> None:
    make = (
        "git init -q inner && cd inner && echo '#!/bin/sh' > tool && chmod +x tool && ln -s tool link && mkdir d"
        f" && ln -s ../tool d/up && git add -A && git {WHO} commit -qm inner"
    )
    one = rule("t1", {}, run=[make])
    one.pop("commit")
    done = crew.go(flow(slots=1), [plan_rule([{"title": "A"}]), one])
    assert done.code == 0, done.out
    (branch,) = [line for line in sh(crew.root, "branch", "--format=%(refname:short)").splitlines() if "/" in line]
    listed = sh(crew.root, "ls-tree", "-r", branch, "inner").splitlines()
    assert {line.split("\t")[1]: line.split()[0] for line in listed} == {
        "inner/tool": "100755",
        "inner/link": "120000",
        "inner/d/up": "120000",
    }


def test_a_program_that_git_starts_finds_no_secret_of_the_person_in_its_environment(crew: Crewed) -> None:
    log, filter = crew.tmp / "environment", crew.tmp / "filter.sh"
    filter.write_text(f"#!/bin/sh\nenv >> {log}\ncat\n")
    filter.chmod(0o755)
    for name in ("GH_TOKEN", "ANTHROPIC_API_KEY", "AWS_SECRET_ACCESS_KEY", "SSH_AUTH_SOCK"):
        crew.env[name] = "a-secret-of-the-person"
    (crew.root / ".gitattributes").write_text("*.txt filter=own\n")
    sh(crew.root, "config", "filter.own.clean", str(filter))
    sh(crew.root, "config", "filter.own.smudge", str(filter))
    sh(crew.root, "add", "-A")
    sh(crew.root, "commit", "-qm", "a filter of the person's own")
    log.unlink(missing_ok=True)
    one = rule("t1", {"t1.txt": "1\n"})
    one.pop("commit")
    done = crew.go(flow(slots=1), [plan_rule([{"title": "A"}]), one])
    assert done.code == 0, done.out
    assert "PATH=" in log.read_text()
    assert "a-secret-of-the-person" not in log.read_text()
