"""The port to where agents run: a second site, without a process and without a folder, carries a whole run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from crews import Crewed, flow
from front import plan_text
from windlass.agents.base import AgentResult, Job, Said
from windlass.dispatch.recovery import Recovered
from windlass.dispatch.site import DispatchListener, InterruptedAttempt, Leftovers, SiteAddress, SiteResult
from windlass.events import DispatchFinished, TaskLanded
from windlass.git.engine_repo import EngineRepo
from windlass.git.slots import Slots
from windlass.git.trees import commit_artifacts
from windlass.model import RunFacts, Usage

DIRECTORY = "/work"
Answer = Callable[[Job, EngineRepo], SiteResult]


class TableCheckout:
    """Nothing is checked out: the answers are commits already."""

    name, directory = "table", DIRECTORY

    def __init__(self) -> None:
        self.uses: list[str] = []

    async def ready(self, head: str, key: str, n: int, *, moved: bool) -> None:
        self.uses.append(f"ready {key}@{n}")

    async def leave(self, head: str, key: str) -> None:
        self.uses.append(f"leave {key}")

    async def keep(self, key: str, n: int) -> None:
        self.uses.append(f"keep {key}@{n}")

    async def half_done(self, head: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        return (), ()

    def resume(self, name: str, head: str) -> None:
        raise AssertionError("no session goes on here")

    harvest = undo = check_out = reserve = setup_hash = check = resume


class TableSite:
    """Answers from a table, by role. Each answer is used once; the last one of a role is used again."""

    table: dict[str, list[Answer]] = {}
    jobs: list[Job] = []
    checkouts: list[TableCheckout] = []

    def __init__(self, facts: RunFacts, folder: Path, slots: Slots, *more: Any) -> None:
        self.address = SiteAddress("somewhere", "once")
        self._engine = slots.engine

    def checkout(self) -> TableCheckout:
        self.checkouts.append(TableCheckout())
        return self.checkouts[-1]

    def interrupted(self, key: str) -> InterruptedAttempt | None:
        return None

    def attempt_name(self, key: str, n: int) -> str:
        return f"table/{key}@{n}"

    async def run(self, job: Job, checkout: TableCheckout, listener: DispatchListener) -> SiteResult:
        self.jobs.append(job)
        listener.on_event(Said(f"{job.role} looks at it"))
        answers = self.table[job.role]
        return (answers.pop(0) if len(answers) > 1 else answers[0])(job, self._engine)

    async def agent_warning(self, agent: str) -> str:
        return ""

    async def close(self) -> None: ...

    def recover(self, *given: Any, **more: Any) -> Recovered:
        return Recovered(0, {})

    def redact(self, attempt: str) -> None: ...


def plans(job: Job, engine: EngineRepo) -> SiteResult:
    return SiteResult(AgentResult("planned", usage=Usage(10, 1, cost_usd=0.5)), Leftovers(job.base), {"plan": PLAN})


def builds(job: Job, engine: EngineRepo) -> SiteResult:
    head = commit_artifacts(engine, job.base, {f"src/{job.task_id}.py": "y = 1\n"}, "feat", 0.0)
    return SiteResult(AgentResult("built", usage=Usage(10, 1, cost_usd=0.25)), Leftovers(head))


def says_nothing(job: Job, engine: EngineRepo) -> SiteResult:
    return SiteResult(AgentResult("", usage=Usage(10, 1, cost_usd=0.25)), Leftovers(job.base))


PLAN = plan_text(["One", "Two"])


@pytest.fixture
def crew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Crewed:
    def refuse(*given: Any, **more: Any) -> None:
        raise AssertionError("this site has no processes and no slots")

    monkeypatch.setattr("windlass.runs.drive.LocalSite", TableSite)
    monkeypatch.setattr("windlass.runs.drive.warm_up", lambda: None)
    monkeypatch.setattr("windlass.dispatch.local_site.supervise", refuse)
    monkeypatch.setattr("windlass.dispatch.commands.supervise", refuse)
    monkeypatch.setattr(Slots, "take", refuse)
    monkeypatch.setattr(TableSite, "jobs", [])
    monkeypatch.setattr(TableSite, "checkouts", [])
    return Crewed(tmp_path)


def go(crew: Crewed, **table: Sequence[Answer]) -> Any:
    TableSite.table = {role: list(answers) for role, answers in table.items()}
    return crew.go(flow(), [])


def test_a_whole_run_goes_through_a_site_without_processes_and_folders(crew: Crewed) -> None:
    done = go(crew, planner=[plans], implementer=[builds])
    assert done.code == 0, done.out + done.err
    assert crew.landed >= {"docs/plan.md", "src/t1.py", "src/t2.py"}
    assert {event.task for event in crew.events(TaskLanded)} == {"t1", "t2"}
    assert [job.role for job in TableSite.jobs] == ["planner", "implementer", "implementer"]
    assert [event.cost_usd for event in crew.events(DispatchFinished)] == [0.5, 0.25, 0.25]
    assert list((crew.folder / "attempts").rglob("*")) == []


def test_a_job_is_plain_data_that_names_no_folder_of_this_machine(crew: Crewed, tmp_path: Path) -> None:
    go(crew, planner=[plans], implementer=[builds])
    for job in TableSite.jobs:
        assert (job.cwd, job.folder) == (Path(), Path())
        assert str(tmp_path) not in repr(job)
        assert job.base
    assert DIRECTORY in TableSite.jobs[0].prompt or "{cwd}" not in TableSite.jobs[0].prompt


def test_an_answer_of_the_site_is_judged_and_asked_for_again(crew: Crewed) -> None:
    done = go(crew, planner=[plans], implementer=[says_nothing, builds])
    assert done.code == 0, done.out + done.err
    first = next(event for event in crew.events(DispatchFinished) if event.error)
    assert (first.error, first.reason) == ("bad_output", "it ended without a last message")
    assert sum(job.attempt == 2 for job in TableSite.jobs) == 1


def test_a_checkout_is_made_ready_for_each_attempt_and_given_back(crew: Crewed) -> None:
    go(crew, planner=[plans], implementer=[builds])
    used = [use for checkout in TableSite.checkouts for use in checkout.uses]
    ready = [use for use in used if use.startswith("ready ")]
    assert sorted(ready) == ["ready execute/t1/implement@1", "ready execute/t2/implement@1", "ready plan/planner@1"]
    assert {use for use in used if use.startswith("leave ")} >= {"leave execute/t1", "leave execute/t2", "leave driver"}
