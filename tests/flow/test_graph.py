from __future__ import annotations

import pytest

from flow_files import FILES, load
from windlass.flow.graph import WIDTH, graph, mermaid
from windlass.flow.load import parse_flow


@pytest.mark.parametrize("name", sorted(FILES))
def test_a_drawing_fits_the_terminal_and_names_every_phase_and_question(name: str) -> None:
    flow = load(name)
    drawn = graph(flow)
    assert max(map(len, drawn.splitlines())) <= WIDTH
    assert all(phase.id in drawn for phase in flow.all_phases())
    assert all(f"? {question}:" in drawn for question in flow.questions)


def test_the_drawing_of_a_small_flow() -> None:
    text = """\
flow: small
about: Small.
settings: {fast: {type: bool, default: false}}
questions:
  stuck: {text: Stuck., options: {again: again, go: next}, yes: go}
phases:
  - {id: try, kind: command, on: {failed: {to: try, max: 2, then: ask stuck}}}
  - {id: end, kind: report, template: plan, when: {fast: false}}
"""
    assert (
        graph(parse_flow(text, "f", roles=(), contracts=()))
        == """\
small: Small.

try  command  checks
    ok -> next
    failed -> try (at most 2, then ask stuck)

end  report  to terminal, store  when fast = false
    ok -> next

? stuck: Stuck.  [--yes answers go]
    again -> again
    go -> next
"""
    )


@pytest.mark.parametrize("name", sorted(FILES))
def test_a_mermaid_chart_declares_every_node_that_its_arrows_use(name: str) -> None:
    lines = mermaid(load(name)).splitlines()
    arrows = [line.split() for line in lines if "-->" in line]
    declared = {line.strip().split("[")[0].split("(")[0].split("{")[0] for line in lines[1:] if "-->" not in line}
    assert arrows
    assert {end for words in arrows for end in (words[0], words[-1])} <= declared


def test_terminal_escapes_and_quotes_cannot_leave_their_place() -> None:
    text = 'flow: f\nabout: "\\e[31m"\nphases: [{id: a, kind: command, on: {failed: stop}}]\n'
    flow = parse_flow(text, "f", roles=(), contracts=())
    assert "\x1b" not in graph(flow) + mermaid(flow)
