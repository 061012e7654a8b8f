"""Draws a flow for people: as text for a terminal, and as Mermaid for a page."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping

from windlass.flow.problem import printable
from windlass.flow.route_graph import modes, phase_edges
from windlass.flow.schema import Flow
from windlass.kinds.routes import Route
from windlass.kinds.spec import PhaseSpec, routes_of
from windlass.kinds.visit_cost import When
from windlass.kinds.walker import FINISH, RouteNode

WIDTH = 80


def graph(flow: Flow) -> str:
    """Phases in order, their routes as arrows, then the questions; at most 80 columns wide."""
    lines = [*_wrap(f"{flow.flow}: {flow.about}", "", "  "), ""]
    for stage in flow.stages:
        lines += [f"[{stage.id}]{_condition(stage.when)}"]
        for phase in stage.phases:
            lines += _phase(flow, phase, "  ")
        lines += [""]
    if flow.restarts:
        lines += _wrap(f"restarts: at most {flow.restarts.max} of each stage, then {flow.restarts.then}", "", "    ")
        lines += [""]
    for phase in flow.phases:
        lines += [*_phase(flow, phase, ""), ""]
    for mode, ids in flow.modes.items():
        lines += _wrap(f"mode {mode}: {' -> '.join(ids)}", "", "    ")
    lines += [""] if flow.modes else []
    for name, question in flow.questions.items():
        mandatory = "  [mandatory]" if question.mandatory else ""
        yes = f"  [--yes answers {question.yes}]" if question.yes else ""
        lines += _wrap(f"? {name}: {question.text}{mandatory}{yes}", "", "    ")
        lines += _arrows({key: Route(target) for key, target in question.options.items()}, "    ")
    return printable_lines(lines)


def printable_lines(lines: list[str]) -> str:
    return "\n".join(printable(line).rstrip() for line in lines).rstrip("\n") + "\n"


def _phase(flow: Flow, phase: PhaseSpec, indent: str) -> Iterator[str]:
    via = "  (by route only)" if phase.via else ""
    head = f"{indent}{phase.id}  {phase.kind}{phase.summary()}{_condition(phase.when)}{via}"
    yield from _wrap(head, "", f"{indent}    ")
    for need in phase.needs:
        yield from _wrap(f"needs {need}", f"{indent}    ", f"{indent}      ")
    land = phase.landing()
    if land:
        for step in phase.task_steps():
            yield from _phase(flow, step, f"{indent}  | ")
        yield from _wrap(f"land{land.summary()}", f"{indent}  | ", f"{indent}  |     ")
        yield from _arrows(land.on, f"{indent}  |     ")
    yield from _arrows(routes_of(flow, phase), f"{indent}    ")


def _condition(when: When) -> str:
    parts = []
    for name, wanted in when.items():
        words = wanted if isinstance(wanted, tuple) else (str(wanted).lower() if isinstance(wanted, bool) else wanted,)
        parts.append(f"{name} = {' or '.join(words)}")
    return f"  when {' and '.join(parts)}" if parts else ""


def _arrows(on: Mapping[str, Route], indent: str) -> Iterator[str]:
    """Outcomes with the same target share an arrow."""
    shared: dict[str, list[str]] = {}
    for outcome, route in on.items():
        shared.setdefault(str(route), []).append(outcome)
    for target, outcomes in shared.items():
        yield from _wrap(f"{', '.join(outcomes)} -> {target}", indent, f"{indent}    ")


def _wrap(text: str, first: str, rest: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=first, subsequent_indent=rest, replace_whitespace=True)


def mermaid(flow: Flow) -> str:
    ways, ids = phase_edges(flow), [phase.id for phase in flow.all_phases()]
    nodes = [RouteNode(id, mode) for mode in modes(flow) for id in (flow.modes.get(mode) or ids)]
    nodes += [to for way in ways for to in way.to]
    names = {node: f"n{index}" for index, node in enumerate(dict.fromkeys(nodes))}
    lines = ["flowchart TD"]
    for node, name in names.items():
        text = _quote(f"{node.id} ({node.mode})" if node.mode else node.id)
        if node.id not in ids:
            lines.append(f"  {name}([{_quote('finish' if node.id == FINISH else 'end')}])")
        elif flow.phase(node.id).ASKS:
            lines.append(f"  {name}{{{text}}}")
        else:
            lines.append(f"  {name}[{text}]")
    # Outcomes with the same target share an edge.
    edges: dict[tuple[RouteNode, RouteNode], dict[str, None]] = {}
    for way in ways:
        for to in way.to:
            edges.setdefault((way.source, to), {})[way.answer or way.outcome] = None
    for (source, to), outcomes in edges.items():
        lines.append(f"  {names[source]} -->|{_quote(', '.join(outcomes))}| {names[to]}")
    return printable_lines(lines)


def _quote(text: str) -> str:
    safe = text.replace("&", "#amp;").replace('"', "#quot;").replace("<", "#lt;").replace(">", "#gt;")
    return f'"{safe}"'
