"""Lands a change of the whole run on the tip, in the steps of a task's landing: candidate, checks, swap."""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct

from windlass.dispatch.workspace import Workspace
from windlass.engine.journal import Journal
from windlass.events import Event, FixLanded
from windlass.git import merge
from windlass.git.engine_repo import EngineRepo
from windlass.git.merge import Landing
from windlass.kinds.spec import PhaseSpec
from windlass.model import Json, Key
from windlass.tasks.checker import Checker

MAX_OUTPUT = 1_500


class NamedChange(Struct, frozen=True):
    """How the commit of a change is named: its trailer and its title."""

    trailer: str
    title: str


def named_change(phase: PhaseSpec) -> NamedChange:
    if phase.HAS_FINDINGS and phase.id == "finalize":
        return NamedChange("final-review", "Fix the findings of the final review")
    return NamedChange(phase.id, f"Fix the findings of {phase.id}" if phase.HAS_FINDINGS else f"Changes of {phase.id}")


class Emit(Protocol):
    def __call__(self, *events: Event, at: str = "") -> None: ...


async def join(
    journal: Journal,
    engine: EngineRepo,
    checker: Checker,
    key: Key,
    change: NamedChange,
    workspace: Workspace,
    emit: Emit,
) -> tuple[str, str]:
    """The tip to continue from, and why the fix is not in it; '' when it is."""

    async def land(previous: Json) -> Json:
        """If it is repeated after a crash, it finds its commit in the tip and changes nothing."""
        date = float(int(journal.store.clock()))
        tip, head = journal.tips.now, workspace.head
        candidate = await merge.candidate(engine, tip, change.trailer, change.title, head, date)
        if candidate.kind is Landing.CONFLICT:
            return _refusal(candidate.tip, candidate.reason)
        if candidate.kind is Landing.ALREADY:
            return {"tip": candidate.tip, "refused": "", "checks": "", "files": []}
        verdict = await checker.check(key, workspace, candidate.commit, candidate.tree)
        emit(*verdict.events, at=key.text)
        if not verdict.ok:
            return _refusal(candidate.tip, f"the checks fail: {verdict.output.strip()[-MAX_OUTPUT:]}")
        files: list[Json] = [*candidate.files]
        return {"tip": candidate.commit, "refused": "", "checks": verdict.label, "files": files}

    def tip_of(result: Json) -> str:
        assert isinstance(result, dict)
        return str(result["tip"])

    def landing_events(result: Json) -> list[Event]:
        assert isinstance(result, dict)
        files = result["files"]
        assert isinstance(files, list)
        paths = [str(path) for path in files]
        return [FixLanded(key.text, str(result["tip"]), str(result["checks"]), paths)] if paths else []

    result = await journal.step(key, {"tree": workspace.tree}, land, tip=tip_of, events=landing_events)
    assert isinstance(result, dict)
    return str(result["tip"]), str(result["refused"])


def _refusal(tip: str, why: str) -> Json:
    return {"tip": tip, "refused": why, "checks": "", "files": []}
