"""The fewest and the most dispatches and questions of a flow, found by walking its routes.

Fewest: along a path that finishes. Most: along any path, with every counted loop and restart used up. Loops that only a
person can take are named, not walked. A dispatch is one call of an agent; its repeated attempts do not count.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache, reduce
from typing import TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from windlass.errors import UserError, near
from windlass.flow.fault import places
from windlass.flow.route_graph import (
    RouteEdge,
    all_edges,
    forward,
    leads_back,
    mode_starts,
    phase_edges,
    step_edges,
    task_starts,
)
from windlass.flow.schema import Flow
from windlass.flow.sizes import FlowSizes
from windlass.kinds.routes import Target, To
from windlass.kinds.spec import PhaseSpec
from windlass.kinds.visit_cost import VisitCost
from windlass.kinds.walker import END, FINISH, LAND, RouteNode, RouteTable, phase_table, restarted_phases

MAX_STATES = 50_000
Counters: TypeAlias = tuple[int, ...]
State: TypeAlias = tuple[RouteNode, Counters]
Ends: TypeAlias = Mapping[str, VisitCost]

NO_WAY_ON = VisitCost(math.inf, 0, math.inf, 0)
ENDS: Ends = {FINISH: VisitCost(), END: NO_WAY_ON}


class Simulation(Struct, frozen=True):
    min_dispatches: int
    max_dispatches: int
    min_questions: int
    max_questions: int
    unbounded_by_person: tuple[str, ...] = ()
    """Questions and phases that a person can repeat any number of times."""


def simulate(flow: Flow, tasks: int, settings: Mapping[str, str]) -> Simulation:
    unknown = [name for name in settings if name not in flow.settings]
    if unknown:
        raise UserError(f"there is no setting '{unknown[0]}'", hint=near(unknown[0], flow.settings))
    sizes = FlowSizes(flow, max(tasks, 0), settings)
    known = sizes.known

    def load(node: RouteNode) -> VisitCost:
        phase = flow.phase(node.id)
        return _through_tasks(sizes, phase) if phase.task_steps() else phase.visit_cost(sizes)

    total = _SimulationWalk(sizes, phase_edges(flow, known), load).from_any(mode_starts(flow, sizes.mode(), known))
    names = {way.question for ways in all_edges(flow) for way in ways if way.question and leads_back(way, ways)}
    person_loops = [name for name in flow.questions if name in names]
    person_loops += [place.phase.id for place in places(flow) if place.phase.loops_with_person()]
    return Simulation(
        min_dispatches=_whole(total.min_dispatches),
        max_dispatches=_whole(total.max_dispatches),
        min_questions=_whole(total.min_questions),
        max_questions=_whole(total.max_questions),
        unbounded_by_person=tuple(person_loops),
    )


def _whole(number: float) -> int:
    return 0 if math.isinf(number) else int(number)


def _through_tasks(sizes: FlowSizes, spec: PhaseSpec) -> VisitCost:
    flow, known, land = sizes.flow, sizes.known, spec.landing()
    assert land is not None
    steps = {step.id: step for step in spec.task_steps()}
    landed = RouteEdge(RouteNode(LAND), "landed", Target(To.NEXT), (RouteNode(FINISH),))

    def load(node: RouteNode) -> VisitCost:
        return land.visit_cost(sizes) if node.id == LAND else steps[node.id].visit_cost(sizes)

    walk = _SimulationWalk(sizes, [*step_edges(flow, spec, (), known), landed], load)
    one = walk.from_any(task_starts(flow, spec, known))
    return one.times(sizes.tasks, sizes.tasks * (2 if spec.retries_tasks(sizes) else 1))


class _CountedEdge(Struct, frozen=True):
    """A route out of a node: the counter that it uses up, and the one that must be used up before it opens."""

    way: RouteEdge
    uses: int | None
    waits: tuple[int, ...]
    resets: Mapping[int, int] = field(default_factory=dict)
    """Counters that begin anew, as those of phases that a restart makes pending again, each with its limit."""

    def take(self, counters: Counters) -> Counters | None:
        """The counters after it; None while it is closed."""
        if self.uses is None:
            return None if any(counters[slot] for slot in self.waits) else counters
        left = counters[self.uses] - 1
        after = (*counters[: self.uses], left, *counters[self.uses + 1 :])
        return None if left < 0 else tuple(self.resets.get(slot, count) for slot, count in enumerate(after))


class _SimulationWalk:
    """Every path through a graph with counted loops; visits each state once."""

    def __init__(self, sizes: FlowSizes, ways: Sequence[RouteEdge], load: Callable[[RouteNode], VisitCost]) -> None:
        kept = forward(ways)
        slots = {name: slot for slot, name in enumerate(dict.fromkeys(_counter(way) for way in kept if _counter(way)))}
        self._limits = [0] * len(slots)
        self._doors: dict[RouteNode, list[_CountedEdge]] = {}
        self._load = cache(load)
        self._known: dict[State, VisitCost] = {}
        for way in kept:
            uses = slots.get(_counter(way))
            same = [other for other in kept if (other.source, other.outcome) == (way.source, way.outcome)]
            rivals = {slots[_counter(other)] for other in same if _counter(other)}
            self._doors.setdefault(way.source, []).append(_CountedEdge(way, uses, tuple(rivals)))
            if uses is not None:
                restarts = sizes.flow.restarts if way.bound == "restarts" else None
                self._limits[uses] = sizes.number(restarts.max if restarts else way.count)
        if sizes.flow.stages:
            self._reset_at_restarts(phase_table(sizes.flow), slots)

    def _reset_at_restarts(self, table: RouteTable, slots: Mapping[tuple[str, ...], int]) -> None:
        for node, doors in self._doors.items():
            for index, door in enumerate(doors):
                if door.way.bound == "restarts":
                    pending = restarted_phases(table, door.way.stage, node.id)
                    resets = {slot: self._limits[slot] for name, slot in slots.items() if name[0] in pending}
                    doors[index] = replace(door, resets=resets)

    def from_any(self, begin: Sequence[RouteNode]) -> VisitCost:
        start = [(node, tuple(self._limits)) for node in begin]
        for state in start:
            self._visit(state)
        return _best([self._known[state] for state in start])

    def _visit(self, start: State) -> None:
        """Depth first without recursion: counts may be large."""
        todo = [start]
        while todo:
            after = self._after(todo[-1]) if todo[-1] not in self._known else []
            ahead = [state for _, state in after if state not in self._known]
            if ahead:
                todo += ahead
                continue
            state = todo.pop()
            if state[0].id in ENDS:
                self._known[state] = ENDS[state[0].id]
            elif state not in self._known:
                ways = [self._known[to].plus(_question_cost(way)) for way, to in after]
                self._known[state] = self._load(state[0]).plus(_best(ways))
            if len(self._known) > MAX_STATES:
                raise UserError("the flow's counts allow too many ways to walk", hint="simulate it with smaller counts")

    def _after(self, state: State) -> list[tuple[RouteEdge, State]]:
        node, counters = state
        found: list[tuple[RouteEdge, State]] = []
        for door in self._doors.get(node, []):
            left = door.take(counters)
            if left is not None:
                found += [(door.way, (to, left)) for to in door.way.to]
        return found


def _counter(way: RouteEdge) -> tuple[str, ...]:
    """The count that a route uses up: its own, or its stage's; () for none."""
    if way.bound == "restarts":
        return ("restart", way.stage)
    return (way.source.id, way.outcome) if way.count is not None else ()


def _question_cost(way: RouteEdge) -> VisitCost:
    return VisitCost(0, 0, 1, 1) if way.question else VisitCost()


def _best(loads: Sequence[VisitCost]) -> VisitCost:
    return reduce(VisitCost.either, loads) if loads else NO_WAY_ON
