"""The static graph of a flow's routes: every move of the route walker, and the bounds of moves back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from windlass.conversion import Path
from windlass.flow.schema import Flow
from windlass.kinds.routes import BACK, Target, To
from windlass.kinds.spec import PhaseSpec
from windlass.kinds.visit_cost import When
from windlass.kinds.walker import (
    LAND,
    UNCHANGED,
    Known,
    RouteNode,
    RouteTable,
    destinations,
    phase_table,
    restart_stages,
    task_table,
)

Bound: TypeAlias = Literal["", "count", "person", "restarts"]


class RouteEdge(Struct, frozen=True):
    source: RouteNode
    outcome: str
    target: Target
    to: tuple[RouteNode, ...]
    """More than one when a condition decides which step is entered."""
    bound: Bound = ""
    count: int | str | None = None
    """How often a counted route may be taken; None for an uncounted one."""
    question: str = ""
    answer: str = ""
    stage: str = ""
    """The stage that a restart begins again."""
    path: Path = ()

    @property
    def name(self) -> str:
        return f"{self.outcome}:{self.answer}" if self.answer else self.outcome


def _undecided(when: When) -> bool | None:
    return None if when else True


class _Edges(Struct, frozen=True):
    """The edges out of the steps of one route table."""

    flow: Flow
    table: RouteTable
    known: Known

    def of(self, node: RouteNode, outcomes: Iterable[str], path: Path, *, person: bool = False) -> Iterator[RouteEdge]:
        """`person`: the person who answers the question of this phase bounds its loops."""
        for outcome in outcomes:
            route = self.table.route(node.id, outcome)
            if route is None:
                continue
            edge = RouteEdge(node, outcome, route.target, (), path=(*path, outcome))
            if route.then is None:
                yield from self._along(replace(edge, bound="person" if person else ""))
            else:
                yield from self._along(replace(edge, bound="count", count=route.max))
                yield from self._along(replace(edge, target=route.then))

    def _along(self, edge: RouteEdge, *, restarts: bool = True) -> Iterator[RouteEdge]:
        """The edge with its destinations: one for each answer of a question and for each stage of a restart.

        `restarts`: also follow a restart after its last count.
        """
        target = edge.target
        if target.to is To.ASK:
            question = self.flow.questions.get(target.arg)
            for answer, chosen in question.options.items() if question else ():
                asked = replace(edge, target=chosen, bound="person", question=target.arg, answer=answer)
                # Another check refuses an answer that asks again.
                yield from self._along(asked, restarts=restarts) if chosen.to is not To.ASK else ()
        elif target.to is To.RESTART:
            for choice in restart_stages(self.table, edge.source, target, self.known):
                assumed = {_words(when): True for when in choice.on} | {_words(when): False for when in choice.off}
                to = tuple(self.entry_nodes(RouteNode(choice.stage.first, edge.source.mode), assumed))
                yield replace(edge, to=to, stage=choice.stage.id, bound=edge.bound or "restarts")
            if restarts and self.table.restarts is not None and self.table.restarts.then is not None:
                yield from self._along(replace(edge, target=self.table.restarts.then), restarts=False)
        else:
            found = destinations(self.table, edge.source, target)
            yield replace(edge, to=tuple(node for first in found for node in self.entry_nodes(first)))

    def entry_nodes(self, node: RouteNode, assumed: dict[str, bool] | None = None) -> Iterator[RouteNode]:
        """The nodes at which a move to a node can end: the walker skips a step when its conditions do not hold.

        A condition that the run decides is assumed both ways, and the same way at each occurrence.
        """
        yield from dict.fromkeys(self._entry_nodes(node, assumed or {}))

    def _entry_nodes(self, node: RouteNode, assumed: dict[str, bool]) -> Iterator[RouteNode]:
        row = self.table.rows.get(node.id)
        for when in row.conditions if row else ():
            verdict = assumed.get(_words(when), self.known(when))
            if verdict is None:
                yield from self._entry_nodes(node, {**assumed, _words(when): True})
                verdict, assumed = False, {**assumed, _words(when): False}
            if not verdict:
                yield from self._entry_nodes(self.table.after(node), assumed)
                return
        yield node


def _words(when: When) -> str:
    return repr(sorted(when.items()))


def modes(flow: Flow) -> tuple[str, ...]:
    return tuple(flow.modes) or ("",)


def phase_edges(flow: Flow, known: Known = _undecided) -> list[RouteEdge]:
    edges, paths, found = _Edges(flow, phase_table(flow), known), phase_paths(flow), list[RouteEdge]()
    for mode in modes(flow):
        for id in edges.table.in_order(mode):
            phase, node, path = flow.phase(id), RouteNode(id, mode), (*paths[id], "on")
            outcomes = dict.fromkeys((*phase.outcomes(flow), *phase.optional_outcomes(flow)))
            question = phase.asked_question()
            if question:
                path = ("questions", question, "options")
                asked = edges.of(node, outcomes, path, person=phase.bounded_by_person())
                found += [
                    edge if edge.question else replace(edge, question=question, answer=edge.outcome) for edge in asked
                ]
            else:
                found += edges.of(node, outcomes, path)
    return found


def step_edges(flow: Flow, spec: PhaseSpec, path: Path, known: Known = _undecided) -> list[RouteEdge]:
    edges, found = _Edges(flow, task_table(spec), known), list[RouteEdge]()
    for index, step in enumerate(spec.task_steps()):
        outcomes = dict.fromkeys((*step.outcomes(flow), *step.optional_outcomes(flow)))
        found += edges.of(RouteNode(step.id), outcomes, (*path, "steps", index, "on"))
    land = spec.landing()
    refusals = dict.fromkeys((*land.outcomes(flow), *land.on, UNCHANGED)) if land else {}
    return found + list(edges.of(RouteNode(LAND), refusals, (*path, LAND, "on")))


def starts(flow: Flow, known: Known = _undecided) -> set[RouteNode]:
    """The phases that a run can begin with."""
    return {node for mode in modes(flow) for node in mode_starts(flow, mode, known)}


def mode_starts(flow: Flow, mode: str, known: Known = _undecided) -> tuple[RouteNode, ...]:
    table = phase_table(flow)
    return tuple(_Edges(flow, table, known).entry_nodes(table.first(mode)))


def task_starts(flow: Flow, spec: PhaseSpec, known: Known = _undecided) -> tuple[RouteNode, ...]:
    """The steps that a task can begin with."""
    table = task_table(spec)
    return tuple(_Edges(flow, table, known).entry_nodes(table.first()))


def phase_paths(flow: Flow) -> dict[str, Path]:
    if not flow.stages:
        return {phase.id: ("phases", index) for index, phase in enumerate(flow.phases)}
    return {
        phase.id: ("stages", at, "phases", index)
        for at, stage in enumerate(flow.stages)
        for index, phase in enumerate(stage.phases)
    }


def reachable_nodes(begin: Iterable[RouteNode], found: Sequence[RouteEdge]) -> set[RouteNode]:
    seen: set[RouteNode] = set()
    todo = list(begin)
    while todo:
        node = todo.pop()
        if node not in seen:
            seen.add(node)
            todo += [to for way in found if way.source == node for to in way.to]
    return seen


def leads_back(way: RouteEdge, found: Sequence[RouteEdge]) -> bool:
    """Whether it can enter a visited node again without another bound in between."""
    if way.target.to in BACK:
        return True
    jumps = way.target.to in (To.GOTO, To.MODE)
    return way.source in reachable_nodes(way.to, found if jumps else [other for other in found if not other.bound])


def forward(found: Sequence[RouteEdge]) -> list[RouteEdge]:
    """The routes without those that only a person takes and that can repeat for ever."""
    kept = [way for way in found if way.bound != "person" or not leads_back(way, found)]
    loops = [way for way in kept if way.count is None and way.bound != "restarts"]
    return [way for way in kept if way.bound != "person" or way.source not in reachable_nodes(way.to, loops)]


def back_options(flow: Flow, question: str) -> tuple[str, ...]:
    """Option keys that lead back at any place of the question: never answered automatically."""
    found = all_edges(flow)
    back = {way.answer for ways in found for way in ways if way.question == question and leads_back(way, ways)}
    return tuple(key for key in flow.questions[question].options if key in back)


def all_edges(flow: Flow) -> list[list[RouteEdge]]:
    """The routes between phases, then those inside each tasks phase."""
    paths = phase_paths(flow)
    inner = [step_edges(flow, phase, paths[phase.id]) for phase in flow.all_phases() if phase.landing()]
    return [phase_edges(flow), *inner]
