"""A whole made-up session as events: three tasks, one fix, two checkpoints, a final review, a report."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

from windlass import events as e
from windlass.events import Event, Recorded
from windlass.model import Json

RUN = "r7f3a2c"
START = 1770472320.0  # 2026-02-07 13:52:00 UTC
BASE = "1111111111111111111111111111111111111111"
PLAN = "docs/plans/2026-02-07-rate-limiting.md"
BRANCH = "windlass/rate-limiting-r7f3a2c"
TITLES = ("Token bucket implementation", "Rate limit middleware", "Configuration and tests")
FILES = (["src/bucket.py", "tests/test_bucket.py"], ["src/limit.py"], ["src/config.py", "src/limit.py"])
MISSING: dict[str, Json] = {"message": "missing IP extraction", "severity": "high", "file": "src/limit.py", "line": 12}


def commit(n: int) -> str:
    return f"{n:x}" * 40


def task_json(n: int) -> Json:
    return {"id": f"t{n}", "title": TITLES[n - 1], "description": f"Do {TITLES[n - 1]}", "files": list(FILES[n - 1])}


def dispatch(key: str, role: str, purpose: str, usd: float | None, task: str = "", cycle: int = 0) -> Iterator[Event]:
    cycles = 3 if cycle else 0
    yield e.DispatchStarted(key, 1, role, "claude", "sonnet", purpose, task, cycle, cycles, 1.0)
    yield e.Activity(key, role, "tool.started", "reading src/app.py", task=task)
    yield e.DispatchFinished(key, 1, role, "claude", cost_usd=usd, input=1000, output=200, seconds=30.0, task=task)


def review(key: str, role: str, verdict: str, *findings: Json, task: str = "", cycle: int = 1) -> Iterator[Event]:
    yield from dispatch(f"{key}/{role}#{cycle}", role, "review", 0.1, task, cycle)
    yield e.ReviewFinished(f"{key}/{role}#{cycle}", role, verdict, list(findings), task=task, cycle=cycle)


def ask(key: str, id: str, text: str, answer: str, *options: str) -> Iterator[Event]:
    choices: list[Json] = [{"key": option, "label": option.capitalize(), "about": ""} for option in options]
    yield e.QuestionAsked(f"{key}!{id}", id, text, choices, options[0])
    yield e.QuestionAnswered(f"{key}!{id}", id, answer, "terminal")


def planning() -> Iterator[Event]:
    yield e.RunStarted("Add rate limiting with token bucket algorithm", "plan", BASE, BRANCH, 20.0, 5.0)
    yield e.PhaseEntered("plan-draft", "plan-draft", "produce")
    yield from dispatch("plan-draft/scout", "scout", "draft", 0.05)
    yield e.ArtifactStored("scout", "plan-draft/scout", "aa" * 32, note="42 files mapped")
    yield from dispatch("plan-draft/planner", "planner", "draft", 0.2)
    yield e.ArtifactStored("plan", "plan-draft/planner", "bb" * 32, PLAN)
    yield e.TasksListed("plan-draft", [task_json(n) for n in (1, 2, 3)])
    yield e.PhaseFinished("plan-draft", "plan-draft", "ok")
    yield e.PhaseEntered("plan-review", "plan-review", "review")
    yield from review("plan-review", "architect", "pass")
    yield from review("plan-review", "spec-reviewer", "pass")
    yield e.ReviewFinished("plan-review#1", "", "pass", [])
    yield e.PhaseFinished("plan-review", "plan-review", "pass")


def approval() -> Iterator[Event]:
    yield e.PhaseEntered("plan-approval", "plan-approval", "ask")
    yield from ask("plan-approval", "approve", "Approve this plan?", "approve", "approve", "revise")
    yield e.PhaseFinished("plan-approval", "plan-approval", "approve")
    yield e.PhaseEntered("configure", "configure", "ask")
    yield from ask("configure", "review_mode", "How shall reviews work?", "iterative", "single-pass", "iterative")
    yield from ask("configure", "execution_mode", "When shall I pause?", "checkpoint", "auto", "checkpoint", "batch")
    yield e.PhaseFinished("configure", "configure", "ok")


def begin(n: int) -> Iterator[Event]:
    id = f"t{n}"
    yield e.TaskChanged(id, "implementing", base=BASE if n == 1 else commit(n))
    yield from dispatch(f"execute/{id}/implement", "implementer", "implement", 0.5, id)
    yield e.TaskChanged(id, "reviewing")


def land(n: int, checks: str = "passed") -> Iterator[Event]:
    yield e.CommandFinished(f"execute/t{n}/land", "pytest -q", True, 0, 12.0)
    yield e.TaskLanded(f"t{n}", commit(n + 1), commit(n + 1), checks, list(FILES[n - 1]))
    yield e.TaskChanged(f"t{n}", "complete")


def checkpoint(epoch: int) -> Iterator[Event]:
    yield e.RunEnded("paused", "checkpoint")
    yield e.RunResumed(epoch)


def first_task() -> Iterator[Event]:
    yield e.PhaseEntered("execute", "execute", "tasks")
    yield from begin(1)
    yield from review("execute/t1/spec", "spec-reviewer", "pass", task="t1")
    note: Json = {"message": "a name could be clearer", "severity": "low", "file": "src/bucket.py"}
    yield from review("execute/t1/quality", "quality-reviewer", "pass_with_notes", note, task="t1")
    yield from land(1)


def second_task() -> Iterator[Event]:
    yield from begin(2)
    yield from review("execute/t2/spec", "spec-reviewer", "fail", MISSING, task="t2")
    yield e.TaskChanged("t2", "fixing")
    yield from dispatch("execute/t2/spec.fix#1", "implementer", "fix", None, "t2", 1)
    yield e.TaskChanged("t2", "reviewing")
    yield from review("execute/t2/spec", "spec-reviewer", "pass", task="t2", cycle=2)
    yield from review("execute/t2/quality", "quality-reviewer", "pass", task="t2")
    yield from land(2)


def ending() -> Iterator[Event]:
    yield from begin(3)
    yield from review("execute/t3/spec", "spec-reviewer", "pass", task="t3")
    yield from review("execute/t3/quality", "quality-reviewer", "pass", task="t3")
    yield from land(3, "unchecked")
    yield e.PhaseFinished("execute", "execute", "done")
    yield e.PhaseEntered("finalize", "finalize", "review")
    yield from dispatch("finalize/quality-reviewer#1", "quality-reviewer", "review", 0.1)
    summary = "Good overall implementation. Clean code, tests cover edge cases."
    yield e.ReviewFinished("finalize/quality-reviewer#1", "quality-reviewer", "pass", [], summary)
    yield e.PhaseFinished("finalize", "finalize", "pass")
    yield e.PhaseEntered("report", "report", "report")


def closing(report: str = "# Workflow Complete") -> Iterator[Event]:
    yield e.ReportWritten("plan", "report.md", report)
    yield e.PhaseFinished("report", "report", "ok")
    yield e.BranchPublished(BRANCH, commit(4))
    yield e.RunEnded("finished")


def building() -> Iterator[Event]:
    yield from first_task()
    yield from checkpoint(2)
    yield from second_task()
    yield from checkpoint(3)
    yield from ending()


def recorded(events: Iterator[Event], step: float = 10.0) -> list[Recorded]:
    return [Recorded(n, RUN, START + n * step, event) for n, event in enumerate(events, 1)]


def session() -> Iterator[Event]:
    for part in (planning(), approval(), building(), closing()):
        yield from part


HOSTILE = (
    "", "t1", "t2", "implementing", "complete", "pending", "skipped", "finished", "paused", "waiting", "review", "fix",
    "pass", "fail", "plan-review", "execute/t1/spec#1", "plan-approval!approve", "tool.started", "usage", "tasks",
    "\x1b[31mred\x1b[0m", "\x1b]0;title\x07", "a\u202eb\u2066c", "\x9b2J", "x\r\ny\rz", "\ud800", "\u200bhid\ufeffden",
    "word " * 60, "w" * 300,
)  # fmt: skip
texts = st.one_of(st.sampled_from(HOSTILE), st.text(max_size=12))
numbers = st.floats(min_value=-1e9, max_value=1e9)
json_values = st.one_of(
    texts,
    st.none(),
    st.integers(),
    st.fixed_dictionaries({}, optional=dict.fromkeys(("id", "title", "message", "severity", "key", "file"), texts)),
)
BY_ANNOTATION: dict[str, st.SearchStrategy[Any]] = {
    "str": texts,
    "bool": st.booleans(),
    "int": st.integers(-5, 50),
    "float": numbers,
    "float | None": st.none() | numbers,
    "int | None": st.none() | st.integers(0, 255),
    "list[Json]": st.lists(json_values, max_size=4),
    "dict[str, Json]": st.dictionaries(st.text(max_size=8), json_values, max_size=4),
    "list[str]": st.lists(texts, max_size=4),
}


def _builder(cls: type[Event]) -> st.SearchStrategy[Event]:
    return st.builds(cls, **{name: BY_ANNOTATION[cls.__annotations__[name]] for name in cls.__struct_fields__})


any_event: st.SearchStrategy[Event] = st.one_of([_builder(cls) for cls in e.TYPES.values()])


@st.composite
def any_log(draw: st.DrawFn) -> list[Recorded]:
    """Any events whatever, sometimes after the start of a real session, so that they meet a filled view."""
    real = list(session())[: draw(st.sampled_from([0, 0, 12, 24, 40, 70]))]
    return recorded(iter([*real, *draw(st.lists(any_event, max_size=15))]))
