"""What becomes of the code: checks, proofs, landings, branches."""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct, field

from windlass.model import Json


class CommandFinished(Struct, frozen=True):
    """A check, set-up or command phase ended."""

    type: ClassVar[str] = "command.finished"
    key: str
    command: str
    ok: bool
    code: int | None
    seconds: float
    cached: bool = False
    tail: str = ""


class TaskLanded(Struct, frozen=True):
    """The run's tip contains the task's commits; `checks` says what was proved on that tree."""

    type: ClassVar[str] = "task.landed"
    task: str
    commit: str
    tip: str
    checks: str
    files: list[str]


class FixLanded(Struct, frozen=True):
    """What was mended for the whole run, after its final review, is part of the tip."""

    type: ClassVar[str] = "fix.landed"
    key: str
    tip: str
    checks: str
    files: list[str]


class TaskProved(Struct, frozen=True):
    """What the proof of test and code came to, with its evidence: the command, the trees, the tests it rests on."""

    type: ClassVar[str] = "task.proved"
    task: str
    proof: str
    ok: bool
    reason: str
    command: str
    trees: dict[str, Json]
    tests: dict[str, Json]


class LandingRefused(Struct, frozen=True):
    """Conflict, red or unproved: the task goes back with the facts."""

    type: ClassVar[str] = "landing.refused"
    task: str
    why: str
    detail: str
    files: list[str]


class BranchPublished(Struct, frozen=True):
    """The run's branch was moved to the tip, or could not be: then `commit`, where it is, is not the tip."""

    type: ClassVar[str] = "branch.published"
    branch: str
    commit: str
    note: str = ""
    tip: str = ""
    """'' is `commit`."""


class RunLanded(Struct, frozen=True):
    """A person took the run's tip into a branch of their own: where, and what the checks said of the result."""

    type: ClassVar[str] = "run.landed"
    branch: str
    before: str
    commit: str
    tip: str
    how: str
    """fast-forward | merge | squash"""
    checks: str
    """passed | known failures | unchecked | failed (taken by --force-red)"""


class PublishFinished(Struct, frozen=True):
    """A push, a pull request or a tag: done | already | left (no means for it here) | failed."""

    type: ClassVar[str] = "publish.finished"
    key: str
    what: str
    state: str
    detail: str = ""
    url: str = ""
    commands: list[str] = field(default_factory=list)
    """What a person can type to do it by hand."""
