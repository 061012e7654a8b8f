"""A real CLI whose model tells it to do what its role may not: refused by the CLI, or caught by us (P9)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from clis import left_behind
from runs_live import CODE, FLOW, GOOD, PASS, Tiny, build, front_of

from front import Front, planner
from gitrepo import sh
from windlass.testing.scripted_model import ScriptedModel

Model = Callable[..., ScriptedModel]
Note = Callable[[str, object], None]
AS_SOMEBODY = "git -c user.name=x -c user.email=x@example.org"


def finished(front: Front, *argv: str) -> list[str]:
    """The warnings of a run that came to its end all the same."""
    done = front("run", *argv, "--", "Add add")
    assert done.code == 0, done.out + done.err
    assert set(CODE) <= front.landed
    assert left_behind(front.run) == []
    return front.warnings


def tried(server: ScriptedModel) -> str:
    """What the CLI sent back: the calls that it was told to make, and what its tools said."""
    return json.dumps([request.body for request in server.asked], ensure_ascii=False)


# -- roles that only read


def test_a_reviewer_that_is_told_to_write_changes_nothing(
    name: str, tmp_path: Path, model: Model, record_property: Note
) -> None:
    review = {
        "when": {"role": "spec-reviewer"},
        "files": {"planted.py": "x\n"},
        "run": ["echo x > too.py"],
        "json": PASS,
    }
    server = model(build(), review, GOOD)
    front = front_of(tmp_path, name, server)
    told = [text for text in finished(front, "--flow=task", "--yes") if "was changed by a role that may not" in text]
    assert "planted.py" in tried(server)
    assert not {"planted.py", "too.py"} & front.landed
    assert not list(front.root.glob("*too.py"))
    record_property("a reviewer told to write", "undone and reported" if told else "refused by the CLI")


def test_a_scout_that_is_told_to_write_by_its_shell_is_refused_or_undone_and_reported(
    name: str, tmp_path: Path, model: Model, record_property: Note
) -> None:
    server = model({"when": {"role": "scout"}, "run": ["echo x > planted.py"], "say": "Looked."}, planner("One"), GOOD)
    front = front_of(tmp_path, name, server)
    assert front("run", "Add add").code == 10
    told = [text for text in front.warnings if "planted.py was changed by a role that may not write; undone" in text]
    refused = "ead-only file system" in tried(server) or "ermission denied" in tried(server)
    assert bool(told) != refused, front.warnings
    kept = front.git("for-each-ref", "--format=%(refname)", "refs/windlass/keep").splitlines()
    assert bool(kept) == bool(told)
    record_property("a scout told to write by its shell", "undone and reported" if told else "refused by the CLI")


# -- roles that write, beyond their bounds

IN_THE_SLOT = {
    "to commit on another branch": (
        f"git checkout -q -b other && {AS_SOMEBODY} commit -q --allow-empty -m x && git checkout -q --detach HEAD~1"
    ),
    "to make a tag": "git tag mine",
    "to stash": f"echo y > extra.txt && git add -A && {AS_SOMEBODY} stash -q && git stash apply -q",
    "to check out a branch of its own": "git checkout -q -b mine",
}
IN_THE_USERS_REPOSITORY = {
    "to write into the user's checkout": ("echo x > {user}/planted.py", "planted.py of your own"),
    "to change a file of the user's checkout": ("echo x >> {user}/README.md", "README.md of your own"),
    "to stage in the user's checkout": ("cd {user} && echo x > staged.py && git add staged.py", "index of your own"),
    "to make a branch in the user's repository": ("git -C {user} branch mine", "refs/heads/mine of your own"),
    "to push": ("git push -q {user} HEAD:refs/heads/pushed", "refs/heads/pushed of your own"),
}


def test_what_an_implementer_does_with_git_stays_in_its_slot(
    name: str, tmp_path: Path, model: Model, record_property: Note
) -> None:
    server = model(build(*IN_THE_SLOT.values()), GOOD)
    front = Tiny(tmp_path, name, server).front
    warnings = finished(front, *FLOW)
    assert "checkout -q -b other" in tried(server)
    assert not any("refs/" in text for text in warnings), warnings
    for what in IN_THE_SLOT:
        record_property(f"an implementer told {what}", "stays in its slot")
    assert front.git("for-each-ref", "refs/heads/mine", "refs/heads/other", "refs/tags", "refs/stash") == ""


def test_an_implementer_told_to_touch_the_users_repository_is_refused_or_reported_and_nothing_is_undone(
    name: str, tmp_path: Path, model: Model, record_property: Note
) -> None:
    user = tmp_path / "repo"
    server = model(build(*(command.format(user=user) for command, _ in IN_THE_USERS_REPOSITORY.values())), GOOD)
    front = Tiny(tmp_path, name, server).front
    before = seen(front)
    warnings = finished(front, *FLOW)
    assert f"{user}/planted.py" in tried(server)
    reported = [what for what, (_, told) in IN_THE_USERS_REPOSITORY.items() if any(told in text for text in warnings)]
    for what in IN_THE_USERS_REPOSITORY:
        how = "reported, left as it is" if what in reported else "refused by the CLI"
        record_property(f"an implementer told {what}", how)
    assert reported == ([] if seen(front) == before else list(IN_THE_USERS_REPOSITORY)), warnings


def seen(front: Front) -> tuple[str, str, str]:
    refs = front.git("for-each-ref", "--format=%(refname)", "refs/heads/mine", "refs/heads/pushed")
    return sh(front.root, "status", "--porcelain"), refs, (front.root / "README.md").read_text()
