"""The ways through a flow: from where, by which outcome, to where, and what bounds going back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from windlass.conversion import Path
from windlass.flow.schema import Flow
from windlass.kinds.routes import BACK, Route, Target, To
from windlass.kinds.spec import PhaseSpec, routes_of
from windlass.kinds.visit_cost import When

Bound: TypeAlias = Literal["", "count", "person", "restarts"]
Known: TypeAlias = Callable[[When], bool | None]
"""Whether a condition holds: yes, no, or None when the run decides."""

LAND = "land"
FINISH = "(finish)"
END = "(end)"


class RouteNode(Struct, frozen=True):
    """A phase in a mode, a step inside a tasks phase, or one of the ends."""

    id: str
    mode: str = ""


class RouteEdge(Struct, frozen=True):
    source: RouteNode
    outcome: str
    target: Target
    to: tuple[RouteNode, ...]
    """More than one where a condition decides which phase comes first."""
    bound: Bound = ""
    count: int | str | None = None
    """How often a counted route may be taken; None for one that is not counted."""
    question: str = ""
    answer: str = ""
    path: Path = ()

    @property
    def name(self) -> str:
        return f"{self.outcome}:{self.answer}" if self.answer else self.outcome


class RoutePosition(Struct, frozen=True):
    """Where a route stands: a phase in its sequence, or a step in its task."""

    flow: Flow
    sequence: tuple[PhaseSpec, ...]
    index: int
    node: RouteNode
    path: Path
    inside: PhaseSpec | None = None
    known: Known = field(default=lambda when: None if when else True)

    def at(self, key: str) -> RoutePosition:
        return replace(self, path=(*self.path, key))

    def after(self) -> tuple[RouteNode, ...]:
        return self.enter(self.index + 1)

    def enter(self, index: int, *, by_route: bool = False) -> tuple[RouteNode, ...]:
        """What can be entered from there on: conditions may pass over phases, `via` ones are passed over anyway."""
        found: list[RouteNode] = []
        for phase in self.sequence[index:]:
            if phase.via and not by_route:
                continue
            by_route = False
            holds = self._holds(phase)
            if holds is not False:
                found.append(RouteNode(phase.id, self.node.mode))
            if holds:
                return tuple(found)
        return (*found, RouteNode(LAND if self.inside else FINISH, self.node.mode if self.inside else ""))

    def _holds(self, phase: PhaseSpec) -> bool | None:
        stage = None if self.inside else self.flow.stage_of(phase.id)
        verdicts = {self.known(phase.when), self.known(stage.when) if stage else True}
        return False if False in verdicts else None if None in verdicts else True

    def goto(self, id: str) -> tuple[RouteNode, ...]:
        for index, phase in enumerate(self.sequence):
            if phase.id == id:
                return self.enter(index, by_route=True)
        return ()

    def stages(self, target: Target) -> tuple[str, ...]:
        """The stages a restart can begin at."""
        ids = [stage.id for stage in self.flow.stages]
        here = self.flow.stage_of(self.node.id)
        if here and target.arg in ("here", "previous"):
            return (ids[max(0, ids.index(here.id) - (target.arg == "previous"))],)
        return tuple(id for id in (target.arg, target.otherwise) if id in ids)


def resolve(spot: RoutePosition, target: Target) -> tuple[RouteNode, ...]:
    match target.to:
        case To.NEXT | To.WAIVE:
            return spot.after()
        case To.GOTO:
            return spot.goto(target.arg)
        case To.AGAIN | To.FIX:
            return (spot.node,)
        case To.REDO:
            return spot.enter(0)
        case To.RESTART:
            return tuple(node for stage in spot.stages(target) for node in _stage_start(spot, stage))
        case To.MODE:
            return _mode_start(spot, target.arg)
        case To.FINISH:
            return (RouteNode(FINISH),)
        case _:
            return (RouteNode(END),)


def _stage_start(spot: RoutePosition, stage_id: str) -> tuple[RouteNode, ...]:
    stage = next(stage for stage in spot.flow.stages if stage.id == stage_id)
    return spot.goto(stage.phases[0].id) if stage.phases else ()


def _mode_start(spot: RoutePosition, mode: str) -> tuple[RouteNode, ...]:
    if mode not in spot.flow.modes:
        return ()
    first = RoutePosition(spot.flow, sequence(spot.flow, mode), 0, RouteNode("", mode), (), known=spot.known)
    return first.enter(0)


def ways_from(spot: RoutePosition, found: dict[str, Route], *, person: bool = False) -> Iterator[RouteEdge]:
    for outcome, route in found.items():
        path = (*spot.path, outcome)
        if route.then is None:
            yield from _ways(spot, outcome, route.target, path, "person" if person else "")
        else:
            yield from _ways(spot, outcome, route.target, path, "count", route.max)
            yield from _ways(spot, outcome, route.then, path, "")


def _ways(
    spot: RoutePosition, outcome: str, target: Target, path: Path, bound: Bound, count: int | str | None = None
) -> Iterator[RouteEdge]:
    if target.to is To.ASK:
        question = spot.flow.questions.get(target.arg)
        for answer, chosen in question.options.items() if question else ():
            to = resolve(spot, chosen)
            yield RouteEdge(spot.node, outcome, chosen, to, "person", count, target.arg, answer, path)
        return
    if target.to is To.RESTART and bound == "":
        bound = "restarts"
    yield RouteEdge(spot.node, outcome, target, resolve(spot, target), bound, count, "", "", path)


def _always(when: When) -> bool | None:
    return None if when else True


def sequence(flow: Flow, mode: str) -> tuple[PhaseSpec, ...]:
    """As Flow.sequence, but a mode's unknown phases are left out: they are another check's finding."""
    known = {phase.id: phase for phase in flow.all_phases()}
    return tuple(known[id] for id in flow.modes[mode] if id in known) if mode in flow.modes else flow.all_phases()


def modes(flow: Flow) -> tuple[str, ...]:
    return tuple(flow.modes) or ("",)


def phase_spots(flow: Flow, known: Known = _always) -> Iterator[RoutePosition]:
    paths = phase_paths(flow)
    for mode in modes(flow):
        phases = sequence(flow, mode)
        for index, phase in enumerate(phases):
            yield RoutePosition(flow, phases, index, RouteNode(phase.id, mode), paths[phase.id], known=known)


def phase_ways(flow: Flow, known: Known = _always) -> list[RouteEdge]:
    return [way for spot in phase_spots(flow, known) for way in _ways_of_phase(spot, spot.sequence[spot.index])]


def _ways_of_phase(spot: RoutePosition, phase: PhaseSpec) -> Iterator[RouteEdge]:
    question = phase.asked_question()
    if not question:
        yield from ways_from(spot.at("on"), routes_of(spot.flow, phase))
        return
    at = replace(spot, path=("questions", question, "options"))
    for way in ways_from(at, routes_of(spot.flow, phase), person=phase.bounded_by_person()):
        yield replace(way, question=question, answer=way.outcome)


def step_spots(flow: Flow, spec: PhaseSpec, path: Path, known: Known = _always) -> Iterator[RoutePosition]:
    steps = spec.task_steps()
    for index, step in enumerate(steps):
        yield RoutePosition(flow, steps, index, RouteNode(step.id), (*path, "steps", index), spec, known)


def land_spot(flow: Flow, spec: PhaseSpec, path: Path, known: Known = _always) -> RoutePosition:
    steps = spec.task_steps()
    return RoutePosition(flow, steps, len(steps), RouteNode(LAND), (*path, LAND), spec, known)


def step_ways(flow: Flow, spec: PhaseSpec, path: Path, known: Known = _always) -> list[RouteEdge]:
    found: list[RouteEdge] = []
    for spot in step_spots(flow, spec, path, known):
        found += ways_from(spot.at("on"), routes_of(flow, spot.sequence[spot.index]))
    land = spec.landing()
    at = land_spot(flow, spec, path, known).at("on")
    return found + [_out_of_land(way) for way in ways_from(at, dict(land.on) if land else {})]


def _out_of_land(way: RouteEdge) -> RouteEdge:
    """After landing there is no next step: going on from there ends the task."""
    return replace(way, to=(RouteNode(END),)) if way.target.to in (To.NEXT, To.WAIVE) else way


def phase_paths(flow: Flow) -> dict[str, Path]:
    if not flow.stages:
        return {phase.id: ("phases", index) for index, phase in enumerate(flow.phases)}
    return {
        phase.id: ("stages", at, "phases", index)
        for at, stage in enumerate(flow.stages)
        for index, phase in enumerate(stage.phases)
    }


def starts(flow: Flow, known: Known = _always) -> set[RouteNode]:
    return {
        node
        for mode in modes(flow)
        for node in RoutePosition(flow, sequence(flow, mode), 0, RouteNode("", mode), (), known=known).enter(0)
    }


def reached(begin: Iterable[RouteNode], found: Sequence[RouteEdge]) -> set[RouteNode]:
    seen: set[RouteNode] = set()
    todo = list(begin)
    while todo:
        node = todo.pop()
        if node not in seen:
            seen.add(node)
            todo += [to for way in found if way.source == node for to in way.to]
    return seen


def leads_back(way: RouteEdge, found: Sequence[RouteEdge]) -> bool:
    """Whether taking it can make the machine enter again what it has been in, with no other bound in between."""
    if way.target.to in BACK:
        return True
    jumps = way.target.to in (To.GOTO, To.MODE)
    return way.source in reached(way.to, found if jumps else [other for other in found if not other.bound])


def forward(found: Sequence[RouteEdge]) -> list[RouteEdge]:
    """The ways without those that only a person takes and that can be taken for ever."""
    kept = [way for way in found if way.bound != "person" or not leads_back(way, found)]
    loops = [way for way in kept if way.count is None and way.bound != "restarts"]
    return [way for way in kept if way.bound != "person" or way.source not in reached(way.to, loops)]


def back_options(flow: Flow, question: str) -> tuple[str, ...]:
    """Option keys that lead back, wherever the question is asked: never answered automatically."""
    found = all_ways(flow)
    back = {way.answer for ways in found for way in ways if way.question == question and leads_back(way, ways)}
    return tuple(key for key in flow.questions[question].options if key in back)


def all_ways(flow: Flow) -> list[list[RouteEdge]]:
    """The ways between phases, then those inside each tasks phase."""
    paths = phase_paths(flow)
    inner = [step_ways(flow, phase, paths[phase.id]) for phase in flow.all_phases() if phase.landing()]
    return [phase_ways(flow), *inner]
