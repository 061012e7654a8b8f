"""One route walker: each move of the machine and of a task is an edge of the static graph, and each edge is a move."""

from __future__ import annotations

from collections.abc import Coroutine, Iterator, Mapping
from itertools import product
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from fake_facts import FakeFacts
from windlass.conversion import convert
from windlass.engine import machine
from windlass.engine.machine import AskQuestion, End, RunPhase, SkipPhase
from windlass.flow.route_graph import RouteEdge, phase_edges, step_edges
from windlass.flow.schema import Flow
from windlass.kinds.base import Outcome
from windlass.kinds.routes import Target, To
from windlass.kinds.tasks import TasksSpec
from windlass.kinds.walker import END, FINISH, LAND, RouteNode, RouteTable, WalkState, task_table
from windlass.model import RunState
from windlass.tasks import task as task_module
from windlass.tasks.context import Landed
from windlass.tasks.task import TaskVisit

Moves = set[tuple[RouteNode, str, str, str, RouteNode]]
"""Source, outcome, the last question and its answer, where it leads."""

FACTS = ("f0", "f1", "f2")
HEAD = {"flow": "small", "about": "For the walker.", "artifacts": {"text": {"kind": "text"}}}
CALL = {"role": "worker"}
ENDS = ["stop", "abort", "block it"]


def edge_moves(edges: list[RouteEdge]) -> Moves:
    return {(edge.source, edge.outcome, edge.question, edge.answer, to) for edge in edges for to in edge.to}


@st.composite
def routes(draw: st.DrawFn, outcomes: list[str], targets: list[str]) -> dict[str, Any]:
    """A route for some of the outcomes, counted or not."""
    found: dict[str, Any] = {}
    for outcome in outcomes:
        target = draw(st.sampled_from(targets))
        if draw(st.booleans()):
            found[outcome] = target
        elif draw(st.booleans()):
            found[outcome] = {"to": target, "max": "1", "then": draw(st.sampled_from(targets))}
    return found


@st.composite
def steps(draw: st.DrawFn, id: str, targets: list[str]) -> dict[str, Any]:
    """A produce or a review; the names of facts may repeat, and then mean the same fact."""
    spec: dict[str, Any] = {"id": id, "when": draw(conditions())}
    if draw(st.booleans()):
        on = draw(routes(["ok", "failed", "rejected"], targets))
        return {**spec, "kind": "produce", "calls": [CALL], "on": on}
    on = draw(routes(["pass", "noted", "inconclusive", "hard_stop"], targets))
    return {**spec, "kind": "review", "of": "text", "mode": "single-pass", "reviewers": [CALL], "on": on}


def conditions() -> st.SearchStrategy[dict[str, bool]]:
    # Only ever `true`: that two conditions contradict each other is more than the graph knows.
    return st.sampled_from([*({fact: True} for fact in FACTS), *({} for _ in range(5))])


@st.composite
def flows(draw: st.DrawFn) -> Flow:
    ids = [f"p{n}" for n in range(draw(st.integers(1, 4)))]
    shape = draw(st.sampled_from(["plain", "stages", "modes"]))
    data: dict[str, Any] = dict(HEAD)
    targets = ["next", "again", "waive", "fix", "finish", *ENDS, *ids, "ask q0", "ask q1"]
    answers = ["next", "again", "waive", *ENDS, *ids]
    if shape == "modes":
        cut = draw(st.integers(1, len(ids)))
        data["modes"] = {"short": ids[:cut], "long": ids}
        answers.append("mode long")
    if shape == "stages":
        answers += ["restart here", "restart previous", "restart s0", "restart s1 else s0"]
        data["restarts"] = {"max": "1", "then": draw(st.sampled_from(["stop", "waive", "ask q1"]))}
    targets += answers
    made = []
    for n, id in enumerate(ids):
        if draw(st.integers(0, 4)) == 0:
            made.append({"id": id, "kind": "ask", "question": "q0", "bound": draw(st.sampled_from(["", "person"]))})
        else:
            made.append(draw(steps(id, targets)))
        if n and draw(st.integers(0, 3)) == 0:
            made[-1]["via"] = "route"
    data["questions"] = {
        "q0": {"text": "?", "options": {"a": draw(st.sampled_from(answers)), "b": draw(st.sampled_from(answers))}},
        # The question that is asked when the restarts are used up: its answers restart nothing.
        "q1": {"text": "?", "options": {"c": "next", "d": draw(st.sampled_from(["waive", *ENDS]))}},
    }
    if shape != "stages":
        return convert({**data, "phases": made}, Flow)
    cut = draw(st.integers(0, len(ids) - 1))
    stages = [{"id": f"s{n}", "phases": part} for n, part in enumerate((made[:cut], made[cut:])) if part]
    for stage in stages:
        stage["when"] = draw(conditions())
    return convert({**data, "stages": stages}, Flow)


# -- phases


def fact_values() -> Iterator[dict[str, Any]]:
    for values in product((True, False), repeat=len(FACTS)):
        yield dict(zip(FACTS, values, strict=True))


def machine_moves(flow: Flow, source: RouteNode, outcome: str) -> Moves:
    """All that the machine can do after an outcome, whatever the facts are and whichever counts are used up."""
    found: Moves = set()
    stages = {stage.id for stage in flow.stages}
    for facts, taken, restarted in product(fact_values(), (0, 1), (0, 1) if stages else (0,)):
        state = machine.State(
            source.id,
            mode=source.mode,
            visits={source.id: 1},
            taken={f"{source.id}.{outcome}": taken},
            restarts=dict.fromkeys(stages, restarted),
        )
        question = flow.phase(source.id).asked_question()
        world = FakeFacts(facts)
        after = machine.after_outcome(flow, state, world, outcome)
        found |= set(_ends(flow, after, world, (source, outcome, question, outcome if question else "")))
    return found


def _ends(
    flow: Flow, state: machine.State, world: FakeFacts, made: tuple[RouteNode, str, str, str]
) -> Iterator[tuple[RouteNode, str, str, str, RouteNode]]:
    """Where it comes to rest, for each answer to what it asks."""
    match machine.decide(flow, state, world):
        case AskQuestion(question=question):
            for option in flow.questions[question].options:
                yield from _ends(
                    flow, machine.after_answer(flow, state, world, option), world, (*made[:2], question, option)
                )
        case SkipPhase():
            yield from _ends(flow, machine.after_skip(flow, state, world), world, made)
        case RunPhase(phase=phase):
            yield (*made, RouteNode(phase.id, state.mode))
        case End(state=end):
            yield (*made, RouteNode(FINISH if end is RunState.FINISHED else END))


def nowhere(flow: Flow, target: Target) -> bool:
    """A target that the check of flow files refuses: a phase or a stage that its mode or its flow does not have."""
    stages = {stage.id for stage in flow.stages}
    if target.to is To.RESTART:
        wanted = target.otherwise or target.arg
        when = next((stage.when for stage in flow.stages if stage.id == wanted), {})
        return bool({target.arg, target.otherwise} - stages - {"", "here", "previous"}) or bool(when)
    return target.to is To.GOTO and any(target.arg not in ids for ids in flow.modes.values())


@settings(phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(flows())
def test_the_machine_makes_exactly_the_moves_of_the_static_graph(flow: Flow) -> None:
    edges = phase_edges(flow)
    usable = [edge for edge in edges if not nowhere(flow, edge.target)]
    expected, found = Moves(), Moves()
    for source, outcome in {(edge.source, edge.outcome) for edge in edges}:
        here = [edge for edge in edges if (edge.source, edge.outcome) == (source, outcome)]
        if all(edge in usable for edge in here) and all(edge.to for edge in here) and _routed(flow, source, outcome):
            expected |= edge_moves(here)
            found |= machine_moves(flow, source, outcome)
    assert found == expected


def _routed(flow: Flow, source: RouteNode, outcome: str) -> bool:
    """No target of this route is one that the check refuses: those have no edge, and the machine stops."""
    phase = flow.phase(source.id)
    question = phase.asked_question()
    route = phase.on.get(outcome) or phase.on.get("inconclusive")
    targets = [flow.questions[question].options[outcome]] if question else []
    targets += [one for one in (route.target, route.then) if one] if route else []
    asked = [option for one in targets if one.to is To.ASK for option in flow.questions[one.arg].options.values()]
    return not any(nowhere(flow, target) for target in [*targets, *asked])


# -- the steps of a task


class ReachedError(Exception):
    def __init__(self, node: str) -> None:
        super().__init__(node)
        self.node = RouteNode(node)


class FakeTask:
    """A task context in which the first step or landing ends as it is told, and the next one ends the test."""

    task = SimpleNamespace(id="t", visit=1)
    head = ""

    def __init__(self, flow: Flow, facts: Mapping[str, Any], outcome: str, answer: str) -> None:
        self.flow, self.facts, self.outcome, self.answer = flow, facts, outcome, answer
        # it stands for the parts of a context too
        self.values = self.place = self
        self.asked = ("", "")

    def next_outcome(self, node: str) -> str:
        if not self.outcome:
            raise ReachedError(node)
        outcome, self.outcome = self.outcome, ""
        return outcome

    def fact(self, name: str) -> Any:
        # The first step is at work whatever its conditions are afterwards.
        return bool(self.outcome) or self.facts[name]

    def setting(self, value: int | str) -> str:
        return str(value)

    def step_scope(self, id: str, **_: Any) -> FakeTask:
        return self

    def id(self, *_: str) -> str:
        return "id"

    def ended(self, *_: Any) -> None: ...

    def emit(self, *_: Any, **__: Any) -> None: ...

    def question(self, id: str, *_: Any) -> str:
        return id

    async def ask(self, question: str) -> Any:
        options = self.flow.questions[question].options
        self.asked = (question, self.answer if self.answer in options else next(iter(options)))
        return SimpleNamespace(value=self.asked[1], by="somebody", comment="")

    def option(self, question: str, key: str) -> Target:
        return self.flow.questions[question].options[key]

    async def land(self, *_: Any, waived: bool = False, **__: Any) -> Landed:
        return Landed("landed" if waived else self.next_outcome(LAND))

    async def catch_up(self, *_: Any) -> None: ...

    async def to_land(self) -> None: ...

    async def to_work(self) -> None: ...


async def _run_step(step: Any, ctx: FakeTask) -> Outcome:
    return Outcome(ctx.next_outcome(step.id))


def finish(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """The result of a coroutine that never waits."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("it waits")


def task_moves(flow: Flow, spec: TasksSpec, table: RouteTable, source: RouteNode, outcome: str) -> Moves:
    found: Moves = set()
    for facts, taken, answer in product(fact_values(), (0, 1), ("a", "b")):
        ctx = FakeTask(flow, facts, outcome, answer)
        state = WalkState(source.id, taken={f"{source.id}.{outcome}": taken})
        to = _visit(spec, ctx, state)
        if to is None:
            ctx.outcome = ""
            to = _visit(spec, ctx, WalkState(table.first().id))
            assert to is not None
        found.add((source, outcome, *ctx.asked, to))
    return found


def _visit(spec: TasksSpec, ctx: FakeTask, state: WalkState) -> RouteNode | None:
    """Where it goes on; None when the task is done again."""
    visit = TaskVisit(spec, cast("Any", ctx), cast("Any", ctx))
    visit._state = state
    try:
        target, _ = finish(visit.run())
    except ReachedError as reached:
        return reached.node
    return None if target.to is To.REDO else RouteNode(END)


@st.composite
def task_flows(draw: st.DrawFn) -> Flow:
    ids = [f"s{n}" for n in range(draw(st.integers(1, 4)))]
    ends = ["fail", "skip", "escape", "redo", *ENDS]
    answers = ["next", "again", "waive", *ends, *ids]
    targets = [*answers, "fix", "ask q0"]
    made = [draw(steps(id, targets)) for id in ids]
    for one in made[1:]:
        one.update({"via": "route"} if draw(st.integers(0, 3)) == 0 else {})
    land = {"on": draw(routes(["conflict", "red", "unproved"], [*answers, "ask q0"]))}
    options = {"a": draw(st.sampled_from(answers)), "b": draw(st.sampled_from(answers))}
    phase = {"id": "execute", "kind": "tasks", "from": "text", "steps": made, "land": land, "on": {}}
    return convert({**HEAD, "questions": {"q0": {"text": "?", "options": options}}, "phases": [phase]}, Flow)


@settings(phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(task_flows())
def test_a_task_makes_exactly_the_moves_of_the_static_graph(flow: Flow) -> None:
    spec = flow.phases[0]
    assert isinstance(spec, TasksSpec)
    edges, table, found = step_edges(flow, spec, ()), task_table(spec), Moves()
    kinds = dict.fromkeys(("produce", "review"), SimpleNamespace(run=_run_step))
    with mock.patch.object(task_module, "KINDS", kinds), mock.patch.object(task_module, "record_label"):
        for source, outcome in {(edge.source, edge.outcome) for edge in edges}:
            found |= task_moves(flow, spec, table, source, outcome)
    assert found == edge_moves(edges)
