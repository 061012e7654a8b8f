"""The flow files that tests read, with the names they may use."""

from __future__ import annotations

from pathlib import Path

import windlass
from windlass.flow.document import load_strict
from windlass.flow.fault import places, role_names
from windlass.flow.load import parse_flow
from windlass.flow.route_graph import RouteEdge, phase_edges, step_edges
from windlass.flow.schema import Flow
from windlass.flow.shape import read_shape
from windlass.kinds import review, tasks
from windlass.kinds.spec import routes_of

HERE = Path(__file__).parent
SHIPPED = Path(windlass.__file__).parent / "flow" / "builtin"
FILES = {path.stem: path for folder in (SHIPPED, HERE / "flows") for path in sorted(folder.glob("*.yaml"))}
CONTRACTS = frozenset(
    {
        "acceptance",
        "approaches",
        "contract-tasks",
        "docs-result",
        "final-review",
        "intake-facts",
        "questions",
        "sections",
        "staged-review",
        "subtasks",
        "tasks",
        "test-result",
    }
)


def roles_named(text: str, where: str) -> set[str]:
    flow = read_shape(load_strict(text, where))
    return {name for place in places(flow) for _, name in role_names(place)}


def load(name: str) -> Flow:
    text = FILES[name].read_text(encoding="utf-8")
    return parse_flow(text, name, roles=roles_named(text, name), contracts=CONTRACTS)


def by_outcome(flow: Flow, phase: str) -> dict[str, str]:
    return {outcome: str(route) for outcome, route in routes_of(flow, flow.phase(phase)).items()}


def tasks_of(flow: Flow) -> tasks.TasksSpec:
    return next(phase for phase in flow.all_phases() if isinstance(phase, tasks.TasksSpec))


def step(flow: Flow, id: str) -> review.ReviewSpec:
    found = next(step for step in tasks_of(flow).steps if step.id == id)
    assert isinstance(found, review.ReviewSpec)
    return found


def review_of(flow: Flow, id: str) -> review.ReviewSpec:
    phase = flow.phase(id)
    assert isinstance(phase, review.ReviewSpec)
    return phase


def labels(flow: Flow, mode: str = "") -> list[str]:
    """The checkpoint names of a run that goes straight through, each once where it repeats in a row."""
    seen: list[str] = []
    for phase in flow.sequence(mode):
        for name in (phase.label.enter or phase.id, phase.label.done):
            if name and seen[-1:] != [name]:
                seen.append(name)
    return seen


def ways_by(flow: Flow, question: str) -> dict[str, RouteEdge]:
    inner = tasks_of(flow)
    found = [*phase_edges(flow), *step_edges(flow, inner, ())]
    return {way.answer: way for way in found if way.question == question}
