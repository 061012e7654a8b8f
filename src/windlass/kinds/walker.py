"""The route walker: which step follows an outcome. Pure.

Three callers share it. The machine walks the phases of a flow, a task walks its own steps, and the static graph asks
for every step and outcome. In this module a step is a phase of the flow or a step of a task.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from windlass.errors import StoppedError
from windlass.kinds.routes import Route, Target, To
from windlass.kinds.spec import DEFAULTED, FlowView, PhaseSpec, routes_of
from windlass.kinds.visit_cost import When, holds
from windlass.model import Json
from windlass.text import plural

LAND = "land"
FINISH = "(finish)"
END = "(end)"
UNCHANGED = "unchanged"
"""The outcome of a landing with no changes that nothing confirmed as intended."""

Known: TypeAlias = Callable[[When], bool | None]
"""Whether a condition holds: yes, no, or None when only the run decides."""


class RouteNode(Struct, frozen=True):
    """A phase in a mode, a step of a task, its landing, or one of the ends."""

    id: str
    mode: str = ""


class RouteRow(Struct, frozen=True):
    """One step of a route table."""

    id: str
    routes: Mapping[str, Route]
    fallback: Route | None = None
    """The route of an outcome that has none; None: such an outcome is an error."""
    via: bool = False
    """Only a route enters it."""
    conditions: tuple[When, ...] = ()
    """The walker passes over the step unless all of them hold."""
    stage: str = ""


class StageRow(Struct, frozen=True):
    id: str
    when: When
    first: str
    """Its first phase; '' for a stage without phases."""


class RouteTable(Struct, frozen=True):
    """What the walker knows about a flow, or about the steps of a task."""

    rows: Mapping[str, RouteRow]
    sequence: tuple[str, ...]
    last: RouteNode
    """Where `next` leads after the last step."""
    modes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Each mode has its own sequence."""
    stages: tuple[StageRow, ...] = ()
    restarts: Route | None = None
    """How often each stage may be restarted, and the target after that."""

    def route(self, id: str, outcome: str) -> Route | None:
        row = self.rows[id]
        return row.routes.get(outcome, row.fallback)

    def in_order(self, mode: str) -> tuple[str, ...]:
        return self.modes.get(mode, self.sequence)

    def after(self, node: RouteNode) -> RouteNode:
        """The following step; skips `via` steps."""
        ids = self.in_order(node.mode)
        return self._first_of(ids[ids.index(node.id) + 1 :], node.mode)

    def first(self, mode: str = "") -> RouteNode:
        return self._first_of(self.in_order(mode), mode)

    def _first_of(self, ids: Sequence[str], mode: str) -> RouteNode:
        return next((RouteNode(id, mode) for id in ids if not self.rows[id].via), self.last)


class RoutedFlow(FlowView, Protocol):
    """The parts of a flow that its route table is made from."""

    @property
    def modes(self) -> Mapping[str, tuple[str, ...]]: ...

    @property
    def stages(self) -> Sequence[Any]: ...

    @property
    def restarts(self) -> Any: ...


def phase_table(flow: RoutedFlow) -> RouteTable:
    stage_of = {phase.id: stage for stage in flow.stages for phase in stage.phases}
    rows = {
        phase.id: RouteRow(
            phase.id,
            _phase_routes(flow, phase),
            via=bool(phase.via),
            conditions=tuple(filter(None, (_stage_condition(stage_of.get(phase.id), phase), phase.when))),
            stage=stage_of[phase.id].id if phase.id in stage_of else "",
        )
        for phase in flow.all_phases()
    }
    # A mode may name a phase that does not exist: another check reports that.
    modes = {mode: tuple(id for id in ids if id in rows) for mode, ids in flow.modes.items()}
    stages = tuple(StageRow(one.id, one.when, one.phases[0].id if one.phases else "") for one in flow.stages)
    restarts = Route(Target(To.RESTART), flow.restarts.max, flow.restarts.then) if flow.restarts else None
    return RouteTable(rows, tuple(rows), RouteNode(FINISH), modes, stages, restarts)


def _stage_condition(stage: Any, phase: PhaseSpec) -> When:
    """When the stage of a phase lets it run. A run without its last stage has a report too."""
    return stage.when if stage is not None and not phase.REPORTS_FAILURE else {}


def _phase_routes(flow: FlowView, phase: PhaseSpec) -> dict[str, Route]:
    if phase.asked_question():
        return routes_of(flow, phase)
    routes = {**dict.fromkeys(DEFAULTED, Route(Target(To.NEXT))), **routes_of(flow, phase), **phase.on}
    if "inconclusive" in routes:
        # Only a contract knows whether a reviewer can return these, and the check of flow files does not see contracts.
        unrouted = [name for name in ("hard_stop", "needs_decision") if name in phase.optional_outcomes(flow)]
        routes = {**dict.fromkeys(unrouted, routes["inconclusive"]), **routes}
    return routes


def task_table(spec: PhaseSpec) -> RouteTable:
    """The steps of a task, then its landing."""
    land, following, failure = spec.landing(), Route(Target(To.NEXT)), Route(Target(To.FAIL))
    rows = {
        step.id: RouteRow(
            step.id,
            {"ok": following, "pass": following, **step.on},
            failure,
            via=bool(step.via),
            conditions=(step.when,) if step.when else (),
        )
        for step in spec.task_steps()
    }
    on = dict(land.on) if land else {}
    if "unproved" in on:
        # A task without changes and without a confirmation is unproved, like a task without a proof.
        on = {UNCHANGED: on["unproved"], **on}
    rows[LAND] = RouteRow(LAND, on, failure)
    return RouteTable(rows, tuple(rows), RouteNode(END))


class WalkFacts(Protocol):
    """The facts that a move depends on. Contract: the same answer on every replay."""

    def fact(self, name: str) -> Json: ...

    def number(self, value: int | str) -> int:
        """A count, or the value of a $setting."""
        ...


class WalkState(Struct, frozen=True):
    """Where the walker is, and which counts it has used up."""

    at: str
    mode: str = ""
    taken: Mapping[str, int] = field(default_factory=dict)
    """How often each counted route was taken."""
    restarts: Mapping[str, int] = field(default_factory=dict)
    """How often each stage was restarted."""


AnyWalkState = TypeVar("AnyWalkState", bound=WalkState)


class Move(Struct, frozen=True):
    target: Target
    """The target that was taken. With `ask` the walker stays until the answer is known."""
    to: RouteNode
    """The step that is entered, or an end."""
    note: str = ""
    """Why the walker took another target than the requested one."""
    stage: str = ""
    """The stage that the move restarts."""


def next_step(table: RouteTable, state: AnyWalkState, outcome: str, facts: WalkFacts) -> tuple[AnyWalkState, Move]:
    """Follow the route of an outcome."""
    state, target = count_route(table, state, outcome, facts)
    return take(table, state, target, facts)


def count_route(table: RouteTable, state: AnyWalkState, outcome: str, facts: WalkFacts) -> tuple[AnyWalkState, Target]:
    """The target of an outcome's route. A counted route leads to its `then` after its last count."""
    route = table.route(state.at, outcome)
    if route is None:
        raise StoppedError(
            f"phase '{state.at}' ended with '{outcome}', which its flow does not route",
            hint="add it under the phase's `on:`; windlass flow check FILE names all of them",
        )
    if route.max is None or route.then is None:
        return state, route.target
    name = f"{state.at}.{outcome}"
    count = state.taken.get(name, 0)
    if count >= facts.number(route.max):
        return state, route.then
    return replace(state, taken={**state.taken, name: count + 1}), route.target


def take(table: RouteTable, state: AnyWalkState, target: Target, facts: WalkFacts) -> tuple[AnyWalkState, Move]:
    """Go to a target. The caller checks the conditions of the entered step, and takes `next` to skip it."""
    node = RouteNode(state.at, state.mode)
    if target.to is To.ASK:
        return state, Move(target, node)
    if target.to is To.RESTART:
        return _restart(table, state, target, facts)
    found = destinations(table, node, target)
    if not found:
        raise _dead_end(target)
    to = found[0]
    # At an end the walker keeps its step: a retry begins with it.
    moved = state if to.id not in table.rows else replace(state, at=to.id, mode=to.mode or state.mode)
    return moved, Move(target, to)


def _restart(table: RouteTable, state: AnyWalkState, target: Target, facts: WalkFacts) -> tuple[AnyWalkState, Move]:
    found = restart_stages(table, RouteNode(state.at, state.mode), target, lambda when: holds(when, facts.fact))
    if not found:
        raise _dead_end(target)
    stage, bound = found[0].stage, table.restarts
    count = state.restarts.get(stage.id, 0)
    if bound is not None and bound.max is not None and bound.then is not None and count >= facts.number(bound.max):
        state, move = take(table, state, bound.then, facts)
        return state, replace(move, note=f"{stage.id} was restarted {plural(count, 'time')}")
    state = replace(
        state,
        at=stage.first,
        restarts={**state.restarts, stage.id: count + 1},
        taken=_counts_after_restart(table, state.taken, restarted_phases(table, stage.id, state.at)),
    )
    return state, Move(target, RouteNode(stage.first, state.mode), stage=stage.id)


def restarted_phases(table: RouteTable, stage: str, at: str) -> tuple[str, ...]:
    """The phases that a restart makes pending again: those of the stage, of the stage of `at`, and of those between."""
    ids = [one.id for one in table.stages]
    first, here = ids.index(stage), table.rows[at].stage
    last = max(first, ids.index(here)) if here else first
    return tuple(row.id for row in table.rows.values() if row.stage in ids[first : last + 1])


def _counts_after_restart(table: RouteTable, taken: Mapping[str, int], phases: Sequence[str]) -> dict[str, int]:
    """A phase that is pending again begins with fresh counts."""
    routes = {f"{id}.{outcome}" for id in phases for outcome in table.rows[id].routes}
    return {name: count for name, count in taken.items() if name not in routes and name.partition("?")[0] not in phases}


def _dead_end(target: Target) -> StoppedError:
    return StoppedError(f"'{target}' leads nowhere from here", hint="windlass flow check FILE")


# -- the two rules that the walker and the static graph share


def destinations(table: RouteTable, node: RouteNode, target: Target) -> tuple[RouteNode, ...]:
    """The step or the end that a target leads to. () for one that leads nowhere, and for `ask` and `restart`."""
    match target.to:
        case To.NEXT | To.WAIVE:
            return (table.after(node),)
        case To.GOTO:
            known = target.arg in table.in_order(node.mode)
            return (RouteNode(target.arg, node.mode),) if known else ()
        case To.AGAIN | To.FIX:
            return (node,)
        case To.REDO:
            return (table.first(),)
        case To.MODE:
            return (table.first(target.arg),) if target.arg in table.modes else ()
        case To.ASK | To.RESTART:
            return ()
        case _:
            return (RouteNode(FINISH if target.to is To.FINISH else END),)


class RestartChoice(Struct, frozen=True):
    """A stage that a restart can begin with, and the conditions under which it does."""

    stage: StageRow
    on: tuple[When, ...] = ()
    off: tuple[When, ...] = ()


def restart_stages(table: RouteTable, node: RouteNode, target: Target, known: Known) -> tuple[RestartChoice, ...]:
    """The stages that a restart can begin with: one, unless a condition is undecided."""
    by_id = {stage.id: stage for stage in table.stages if stage.first in table.in_order(node.mode)}
    here = by_id.get(table.rows[node.id].stage)
    if target.arg in ("here", "previous"):
        ids = [stage.id for stage in table.stages]
        before = ids[: ids.index(here.id)] if here and target.arg == "previous" else []
        wanted, last = [by_id.get(id) for id in reversed(before)], here
    else:
        # When every named stage is off, the current one begins again.
        wanted, last = [by_id.get(target.arg), by_id.get(target.otherwise)], here
    return tuple(_until_certain([stage for stage in wanted if stage], last, known))


def _until_certain(wanted: Sequence[StageRow], last: StageRow | None, known: Known) -> Iterator[RestartChoice]:
    """The first wanted stage that is on; otherwise the last stage, which is on."""
    off: list[When] = []
    for stage in wanted:
        verdict = known(stage.when)
        if verdict is not False and stage.when not in off:
            yield RestartChoice(stage, (stage.when,), tuple(off))
        if verdict:
            return
        off.append(stage.when)
    if last and last.when not in off:
        yield RestartChoice(last, (last.when,), tuple(off))
