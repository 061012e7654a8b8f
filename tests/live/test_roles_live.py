"""What a real CLI does when its model tells it to do what its role may not: refused by the CLI, or caught by us (P9)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from clis import left_behind
from runs_live import CODE, GOOD, PASS, build, front_of

from front import Front, planner
from gitrepo import sh
from windlass.testing.scripted_model import ScriptedModel

Model = Callable[..., ScriptedModel]
Note = Callable[[str, object], None]
AS_SOMEBODY = "git -c user.name=x -c user.email=x@example.org"


def finished(front: Front, *argv: str) -> list[str]:
    """The warnings of a run that came to its end all the same."""
    done = front("task", "--yes", *argv, "Add add")
    assert done.code == 0, done.out + done.err
    assert set(CODE) <= front.landed
    assert left_behind(front.run) == []
    return front.warnings


def answers(server: ScriptedModel) -> str:
    """What the tools of the CLI told the model."""
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
    told = [text for text in finished(front) if "was changed by a role that may not" in text]
    assert not {"planted.py", "too.py"} & front.landed
    assert not list(front.root.glob("*too.py"))
    record_property("a reviewer told to write", "undone and reported" if told else "refused by the CLI")


def test_a_scout_that_is_told_to_write_by_its_shell_is_refused_or_undone_and_reported(
    name: str, tmp_path: Path, model: Model, record_property: Note
) -> None:
    server = model({"when": {"role": "scout"}, "run": ["echo x > planted.py"], "say": "Looked."}, planner("One"), GOOD)
    front = front_of(tmp_path, name, server)
    assert front("run", "Add add").code == 10
    told = [text for text in front.warnings if "planted.py was changed by a role that may not; undone" in text]
    refused = "ead-only file system" in answers(server) or "ermission denied" in answers(server)
    assert bool(told) != refused, front.warnings
    kept = front.git("for-each-ref", "--format=%(refname)", "refs/windlass/keep").splitlines()
    assert bool(kept) == bool(told)
    record_property("a scout told to write by its shell", "undone and reported" if told else "refused by the CLI")


# -- roles that write, beyond their bounds


@pytest.mark.parametrize(
    ("what", "command", "told"),
    [
        ("to work on a branch of its own", "git checkout -q -b mine", ""),
        (
            "to commit on another branch",
            f"git checkout -q -b mine && {AS_SOMEBODY} commit -q --allow-empty -m x && git checkout -q --detach HEAD~1",
            "refs/heads/mine was changed; put back",
        ),
        ("to stash its work", f"echo y > src/add.py && git add -A && {AS_SOMEBODY} stash -q", "refs/stash was changed; put back"),
        ("to make a tag", "git tag mine", "refs/tags/mine was changed; put back"),
    ],
)  # fmt: skip
def test_an_implementer_told_to_leave_its_bounds_in_the_slot_is_put_back_and_reported(
    name: str, tmp_path: Path, model: Model, record_property: Note, what: str, command: str, told: str
) -> None:
    again = {"when": {"role": "implementer"}, "files": CODE, "say": "Built."}
    server = model(build(f"{command}; cp -r . /dev/null 2>/dev/null; true", times=1), again, GOOD)
    front = front_of(tmp_path, name, server)
    warnings = finished(front) if "stash" not in command else worked_through(front)
    assert "refs/heads/mine" not in front.git("for-each-ref")
    assert front.git("stash", "list") == ""
    caught = [text for text in warnings if "put back" in text]
    record_property(f"an implementer told {what}", "put back and reported" if caught else "refused by the CLI")
    if name != "codex" and told:
        assert any(told in text for text in warnings), warnings


def worked_through(front: Front) -> list[str]:
    """Without its work the task may fail; that it was caught is what counts."""
    assert front("task", "--yes", "Add add").code in (0, 12)
    return front.warnings


@pytest.mark.parametrize(
    ("what", "command", "told"),
    [
        ("to write into the user's checkout", "echo x > {user}/planted.py", "planted.py of your own repository"),
        ("to change a file of the user's checkout", "echo x >> {user}/README.md", "README.md of your own repository"),
        ("to stage in the user's checkout", "cd {user} && echo x > s.py && git add s.py", "index of your own repository"),
        ("to make a branch in the user's repository", "git -C {user} branch mine", "refs/heads/mine of your own repository"),
        ("to push into the user's repository", "git push -q {user} HEAD:refs/heads/mine", "refs/heads/mine of your own"),
    ],
)  # fmt: skip
def test_an_implementer_told_to_touch_the_users_repository_is_refused_or_reported_and_nothing_is_undone(
    name: str, tmp_path: Path, model: Model, record_property: Note, what: str, command: str, told: str
) -> None:
    front = Front(tmp_path)
    server = model(build(command.format(user=front.root)), GOOD)
    front.configure(configured(tmp_path, name, server))
    before = seen(front)
    warnings = finished(front)
    changed = seen(front) != before
    assert changed == any(told in text and "left as it is" in text for text in warnings), warnings
    record_property(f"an implementer told {what}", "reported, left as it is" if changed else "refused by the CLI")
    assert changed or name == "codex"


def configured(tmp_path: Path, name: str, server: ScriptedModel) -> str:
    return (
        Path(front_of(tmp_path / "other", name, server).env["XDG_CONFIG_HOME"]) / "windlass/config.toml"
    ).read_text()


def seen(front: Front) -> tuple[str, str, str]:
    refs = front.git("for-each-ref", "--format=%(refname)", "refs/heads/mine", "refs/stash")
    return sh(front.root, "status", "--porcelain"), refs, (front.root / "README.md").read_text()
