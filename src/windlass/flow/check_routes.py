"""Routes: every outcome has one, every target is allowed at its place, everything is reached, every loop ends."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from windlass.conversion import Path
from windlass.errors import near
from windlass.flow.fault import FlowFault, PhasePlace, phases_of, places
from windlass.flow.route_graph import (
    RouteEdge,
    all_edges,
    leads_back,
    phase_edges,
    reachable_nodes,
    starts,
    step_edges,
    task_starts,
)
from windlass.flow.schema import Flow
from windlass.kinds.routes import PHASE_ONLY, TASK_ONLY, Route, Target, To
from windlass.kinds.spec import DEFAULTED
from windlass.kinds.walker import LAND, RouteNode

RESTART_ENDS = frozenset({To.ASK, To.STOP, To.ABORT, To.BLOCK, To.WAIVE})


def wrong_outcomes(flow: Flow) -> Iterator[FlowFault]:
    for place in places(flow):
        phase, path = place.phase, place.path
        if phase.asked_question():
            continue
        needed = phase.outcomes(flow)
        known = (*needed, *phase.optional_outcomes(flow))
        yield from _impossible_outcomes(phase.id, (*path, "on"), phase.on, known, phase.OUTCOMES)
        yield from _unrouted_outcomes(phase.id, path, phase.on, needed)
        land = phase.landing()
        if land:
            needed, name = land.outcomes(flow), f"{phase.id}.land"
            yield from _impossible_outcomes(name, (*path, LAND, "on"), land.on, needed, land.OUTCOMES)
            yield from _unrouted_outcomes(name, (*path, LAND), land.on, needed)


def _impossible_outcomes(
    id: str, path: Path, on: Mapping[str, Route], known: Sequence[str], of_kind: Sequence[str]
) -> Iterator[FlowFault]:
    for outcome in on:
        if outcome in known:
            continue
        if outcome in of_kind:
            yield FlowFault((*path, outcome), f"'{id}' as it is written never ends with '{outcome}'", near("", known))
        else:
            yield FlowFault((*path, outcome), f"'{id}' has no outcome '{outcome}'", near(outcome, known))


def _unrouted_outcomes(id: str, path: Path, on: Mapping[str, Route], needed: Sequence[str]) -> Iterator[FlowFault]:
    missing = [outcome for outcome in needed if outcome not in on and outcome not in DEFAULTED]
    yield from (FlowFault(path, f"'{id}' does not say where '{outcome}' leads") for outcome in missing)


def wrong_targets(flow: Flow) -> Iterator[FlowFault]:
    for place in places(flow):
        yield from _wrong_routes(flow, place, (*place.path, "on"), place.phase.on)
        land, question = place.phase.landing(), place.phase.asked_question()
        if land:
            inside = PhasePlace((*place.path, LAND), place.phase, place.phase)
            yield from _wrong_routes(flow, inside, (*place.path, LAND, "on"), land.on)
        if question in flow.questions:
            yield from _wrong_answers(flow, place, question)
    if flow.restarts is None:
        return
    then, path = flow.restarts.then, ("restarts", "then")
    if then.to not in RESTART_ENDS:
        yield FlowFault(path, f"'{then}' does not fit 'then'", "stop, abort, block, waive or ask QUESTION")
    elif then.to is To.ASK and then.arg not in flow.questions:
        yield FlowFault(path, f"there is no question '{then.arg}'", near(then.arg, flow.questions))
    elif then.to is To.ASK:
        for key, target in flow.questions[then.arg].options.items():
            if target.to not in RESTART_ENDS | {To.NEXT}:
                yield FlowFault(("questions", then.arg, "options", key), f"'{target}' would restart without a bound")


def _wrong_routes(flow: Flow, place: PhasePlace, path: Path, on: Mapping[str, Route]) -> Iterator[FlowFault]:
    targets = [(outcome, target) for outcome, route in on.items() for target in (route.target, route.then) if target]
    for outcome, target in targets:
        if target.to is not To.ASK:
            reason = _refusal(flow, place, target)
            if reason:
                yield FlowFault((*path, outcome), *reason)
        elif target.arg in flow.questions:
            yield from _wrong_answers(flow, place, target.arg)
        else:
            message = f"there is no question '{target.arg}'"
            yield FlowFault((*path, outcome), message, near(target.arg, flow.questions))


def _wrong_answers(flow: Flow, place: PhasePlace, question: str) -> Iterator[FlowFault]:
    for key, target in flow.questions[question].options.items():
        reason = None if target.to is To.ASK else _refusal(flow, place, target)
        if reason:
            message = f"asked at '{place.phase.id}': {reason[0]}"
            yield FlowFault(("questions", question, "options", key), message, reason[1])


def _refusal(flow: Flow, place: PhasePlace, target: Target) -> tuple[str, str] | None:
    """Why a target is not allowed here: the message and the hint; None when it is."""
    in_task = place.inside is not None
    if in_task and (target.to in PHASE_ONLY or target.to is To.FINISH):
        return f"'{target}' cannot be inside a task", "leave the list with `escape`, and route that"
    if not in_task and target.to in TASK_ONLY:
        return f"'{target}' can only be inside a task", ""
    if target.to is To.FIX and not _has_fixer(place):
        return "'fix' needs a review with a fixer", ""
    if target.to is To.GOTO:
        return _unknown_goto(flow, place, target.arg)
    if target.to is To.RESTART:
        return _wrong_restart(flow, target)
    if target.to is To.MODE and target.arg not in flow.modes:
        return f"there is no mode '{target.arg}'", near(target.arg, flow.modes)
    return None


def _has_fixer(place: PhasePlace) -> bool:
    land = place.phase.landing()
    if land:
        return place.inside is place.phase and land.fixer is not None
    return place.phase.can_fix()


def _unknown_goto(flow: Flow, place: PhasePlace, id: str) -> tuple[str, str] | None:
    if place.inside is not None:
        steps = [step.id for step in place.inside.task_steps()]
        return None if id in steps else (f"there is no step '{id}'", near(id, [*steps, *_words(in_task=True)]))
    phases = [other.phase.id for other in phases_of(flow)]
    if id not in phases:
        return f"there is no phase '{id}'", near(id, [*phases, *_words(in_task=False)])
    lacking = [mode for mode, ids in flow.modes.items() if place.phase.id in ids and id not in ids]
    return (f"mode '{lacking[0]}' has no phase '{id}'", "") if lacking else None


def _words(*, in_task: bool) -> list[str]:
    others = PHASE_ONLY if in_task else TASK_ONLY
    return [to.value for to in To if to is not To.GOTO and to not in others]


def _wrong_restart(flow: Flow, target: Target) -> tuple[str, str] | None:
    stages = [stage.id for stage in flow.stages]
    if not stages:
        return "only a flow with stages can restart one", ""
    unknown = [name for name in (target.arg, target.otherwise) if name and name not in (*stages, "here", "previous")]
    if unknown:
        return f"there is no stage '{unknown[0]}'", near(unknown[0], stages)
    if flow.restarts is None:
        return "a restart needs a bound", "add `restarts: {max: 3, then: stop}` to the flow"
    return None


def unreachable(flow: Flow) -> Iterator[FlowFault]:
    seen = {node.id for node in reachable_nodes(starts(flow), phase_edges(flow))}
    for place in phases_of(flow):
        if place.phase.id not in seen:
            yield FlowFault(place.path, f"the phase '{place.phase.id}' cannot be reached")
        spec, steps = place.phase, place.phase.task_steps()
        if not steps:
            continue
        seen_steps = reachable_nodes(task_starts(flow, spec), step_edges(flow, spec, place.path))
        for index, step in enumerate(steps):
            if RouteNode(step.id) not in seen_steps:
                yield FlowFault((*place.path, "steps", index), f"the step '{step.id}' cannot be reached")
        if RouteNode(LAND) not in seen_steps:
            yield FlowFault(place.path, f"no task of '{spec.id}' can ever land")


def unbounded_loops(flow: Flow) -> Iterator[FlowFault]:
    for ways in all_edges(flow):
        yield from _loops([way for way in ways if _is_unbounded(flow, way, ways)])


def _is_unbounded(flow: Flow, way: RouteEdge, ways: list[RouteEdge]) -> bool:
    """An answer that --yes or an empty line can give is not a bound, unless it leads back: another check refuses
    that."""
    if way.bound != "person" or way.count is not None:
        return not way.bound
    question = flow.questions[way.question]
    return way.answer in (question.yes, question.default) and not leads_back(way, ways)


def _loops(free: list[RouteEdge]) -> Iterator[FlowFault]:
    reported: set[frozenset[RouteNode]] = set()
    for way in sorted(free, key=lambda way: way.target.to in (To.NEXT, To.WAIVE)):
        bound = f"give the phase that asks '{way.question}' `bound: person`" if way.question else ""
        hint = bound or "write {to: ..., max: N, then: ...}, or lead it through a question"
        for node in way.to:
            back = _shortest(node, way.source, free)
            if back and frozenset(back) not in reported:
                reported.add(frozenset(back))
                names = " -> ".join(step.id for step in [way.source, *back])
                yield FlowFault(way.path, f"a loop without a bound: {names}", hint)


def _shortest(start: RouteNode, goal: RouteNode, found: list[RouteEdge]) -> list[RouteNode]:
    """The nodes from start to goal, both included; [] when no route connects them."""
    came: dict[RouteNode, RouteNode | None] = {start: None}
    todo = [start]
    while todo and goal not in came:
        node = todo.pop(0)
        for after in (to for way in found if way.source == node for to in way.to):
            if after not in came:
                came[after] = node
                todo.append(after)
    trail: list[RouteNode] = []
    at: RouteNode | None = goal if goal in came else None
    while at is not None:
        trail.insert(0, at)
        at = came[at]
    return trail
