"""What a fixer changed for the whole run joins the tip, as a task's work does: candidate, checks, swap."""

from __future__ import annotations

from typing import Protocol

from windlass.dispatch.workspace import Workspace
from windlass.engine.journal import Journal
from windlass.events import Event, FixLanded
from windlass.git import merge
from windlass.git.engine_repo import EngineRepo
from windlass.git.merge import Landing
from windlass.model import Json, Key
from windlass.tasks.checker import Checker

TRAILER, TITLE = "final-review", "Mend what the final review found"
MAX_OUTPUT = 1_500


class Emit(Protocol):
    def __call__(self, *events: Event, at: str = "") -> None: ...


async def join(
    journal: Journal, engine: EngineRepo, checker: Checker, key: Key, workspace: Workspace, emit: Emit
) -> tuple[str, str]:
    """The tip to go on from, and why the fix is not in it; '' when it is."""

    async def try_it(previous: Json) -> Json:
        """Repeated after a crash it finds its own commit in the tip and changes nothing."""
        date = float(int(journal.store.clock()))
        candidate = await merge.candidate(engine, journal.tips.now, TRAILER, TITLE, workspace.head, date)
        if candidate.kind is Landing.CONFLICT:
            return _refused(candidate.tip, candidate.reason)
        if candidate.kind is Landing.ALREADY:
            return {"tip": candidate.tip, "refused": "", "checks": "", "files": []}
        verdict = await checker.check(key, workspace, candidate.commit, candidate.tree)
        emit(*verdict.events, at=key.text)
        if not verdict.ok:
            return _refused(candidate.tip, f"the checks fail: {verdict.output.strip()[-MAX_OUTPUT:]}")
        files: list[Json] = [*candidate.files]
        return {"tip": candidate.commit, "refused": "", "checks": verdict.label, "files": files}

    def tip_of(result: Json) -> str:
        assert isinstance(result, dict)
        return str(result["tip"])

    def landed(result: Json) -> list[Event]:
        assert isinstance(result, dict)
        files = result["files"]
        assert isinstance(files, list)
        paths = [str(path) for path in files]
        return [FixLanded(key.text, str(result["tip"]), str(result["checks"]), paths)] if paths else []

    result = await journal.step(key, {"tree": workspace.tree}, try_it, tip=tip_of, events=landed)
    assert isinstance(result, dict)
    return str(result["tip"]), str(result["refused"])


def _refused(tip: str, why: str) -> Json:
    return {"tip": tip, "refused": why, "checks": "", "files": []}
