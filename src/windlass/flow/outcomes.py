"""What a phase of a flow can end with, given how it is written.

`ok` and `done` lead to `next` unless the flow says otherwise; every other possible outcome must be routed.

| kind    | outcome            | possible when |
|---------|--------------------|---------------|
| produce | ok, failed         | always |
|         | empty              | `empty:` is given, or `merge:`, or an `out` is what a tasks phase is made `from` |
|         | invalid            | an `out` has `ensure` rules, or is a file with a contract that is no task list |
|         | the contract's own | never has to be routed; unrouted it counts as failed |
| review  | pass, noted, inconclusive | always |
|         | blocking           | the mode can be single-pass, and a `threshold` is given; else it only notes |
|         | exhausted          | the mode can be iterative, which needs a fixer |
|         | hard_stop, needs_decision | as the reviewer's contract has them; need no route, and never pass |
| tasks   | done               | always |
|         | stopped            | a route says `fail`, and the failure policy can be `stop`; else it may be routed: |
|         |                    | tasks failed and none landed |
|         | escape             | a route says `escape` |
| land    | conflict           | always |
|         | red                | `checks: all` |
|         | unproved           | `tdd` is not off |
| command | ok                 | always |
|         | exhausted          | there is a fixer |
|         | failed.<class>     | `classify` is given |
|         | failed             | neither |
| ask     | the option keys    | with `question`; its targets are the routes. With `settings`: ok |
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias, assert_never

from windlass.flow.schema import Artifact, Flow, Phase
from windlass.kinds import ask, command, dialogue, elicit, produce, publish, report, review, tasks
from windlass.kinds.base import PhaseSpec, Routes
from windlass.kinds.routes import Route, Target, To

DEFAULTED = frozenset({"ok", "done"})
NEXT = Route(Target(To.NEXT))
AnyPhase: TypeAlias = Phase | tasks.Step


def possible(flow: Flow, phase: AnyPhase) -> tuple[str, ...]:
    match phase:
        case produce.ProduceSpec():
            return _produce(flow, phase)
        case review.ReviewSpec():
            return _review(flow, phase)
        case command.CommandSpec():
            return _command(phase)
        case tasks.TasksSpec():
            return _tasks(flow, phase)
        case ask.AskSpec():
            question = flow.questions.get(phase.question)
            return tuple(question.options) if question else ask.OUTCOMES
        case elicit.ElicitSpec():
            return elicit.OUTCOMES
        case dialogue.DialogueSpec():
            return dialogue.OUTCOMES
        case publish.PublishSpec():
            return publish.OUTCOMES
        case report.ReportSpec():
            return report.OUTCOMES
        case _:
            assert_never(phase)


def optional(flow: Flow, phase: PhaseSpec) -> tuple[str, ...]:
    """Outcomes that a contract or a failure may add, and that a flow may leave unrouted."""
    if isinstance(phase, produce.ProduceSpec):
        return produce.EXTRA_OUTCOMES
    if isinstance(phase, elicit.ElicitSpec):
        return elicit.EXTRA_OUTCOMES
    if isinstance(phase, tasks.TasksSpec):
        return ("stopped",) if To.FAIL in _task_ends(flow, phase) else ()
    return ("hard_stop", "needs_decision") if isinstance(phase, review.ReviewSpec) else ()


def land_possible(flow: Flow, spec: tasks.TasksSpec) -> tuple[str, ...]:
    red = ("red",) if spec.land.checks == "all" else ()
    unproved = ("unproved",) if flow.tdd != "off" else ()
    return ("conflict", *red, *unproved)


def routes(flow: Flow, phase: AnyPhase) -> dict[str, Route]:
    """Every outcome with where it leads, the defaults included."""
    if isinstance(phase, ask.AskSpec) and phase.question:
        question = flow.questions.get(phase.question)
        return {key: Route(target) for key, target in question.options.items()} if question else {}
    known = (*possible(flow, phase), *optional(flow, phase))
    given = {name: route for name, route in phase.on.items() if name in known}
    return {name: NEXT for name in known if name in DEFAULTED} | given


def values(flow: Flow, word: str) -> tuple[str, ...]:
    """The words that a field can hold: itself, or what its $setting can be."""
    if not word.startswith("$"):
        return (word,)
    setting = flow.settings.get(word[1:])
    return tuple(setting.options) or (setting.default,) if setting else ()


def task_routes(flow: Flow, spec: tasks.TasksSpec) -> Iterator[Route]:
    for step in spec.steps:
        yield from routes(flow, step).values()
    yield from spec.land.on.values()


def targets_of(flow: Flow, route: Route) -> Iterator[Target]:
    """Where a route can lead in the end: through its count and through a question's answers."""
    for target in (route.target, route.then):
        if target is None:
            continue
        yield target
        question = flow.questions.get(target.arg) if target.to is To.ASK else None
        yield from question.options.values() if question else ()


def routed_to(flow: Flow, found: Routes | dict[str, Route], to: To) -> bool:
    return any(target.to is to for route in found.values() for target in targets_of(flow, route))


def _produce(flow: Flow, spec: produce.ProduceSpec) -> tuple[str, ...]:
    lists = {phase.source for phase in flow.all_phases() if isinstance(phase, tasks.TasksSpec)}
    outs = spec.artifacts_out()
    empty = spec.empty.retry > 0 or bool(spec.merge) or bool(outs & lists)
    invalid = any(_can_be_invalid(flow.artifacts[name], name in lists) for name in outs if name in flow.artifacts)
    return ("ok", "failed", *(("empty",) if empty else ()), *(("invalid",) if invalid else ()))


def _can_be_invalid(artifact: Artifact, is_task_list: bool) -> bool:
    return bool(artifact.ensure) or (artifact.kind == "file" and bool(artifact.contract) and not is_task_list)


def _review(flow: Flow, spec: review.ReviewSpec) -> tuple[str, ...]:
    modes = values(flow, spec.mode)
    blocking = ("blocking",) if "single-pass" in modes and spec.threshold else ()
    exhausted = ("exhausted",) if "iterative" in modes else ()
    return ("pass", "noted", *blocking, *exhausted, "inconclusive")


def _command(spec: command.CommandSpec) -> tuple[str, ...]:
    if spec.fixer:
        return ("ok", "exhausted")
    return ("ok", "failed.test", "failed.source", "failed.unknown") if spec.classify else ("ok", "failed")


def _tasks(flow: Flow, spec: tasks.TasksSpec) -> tuple[str, ...]:
    ends = _task_ends(flow, spec)
    stopped = To.FAIL in ends and "stop" in values(flow, spec.failure)
    return ("done", *(("stopped",) if stopped else ()), *(("escape",) if To.ESCAPE in ends else ()))


def _task_ends(flow: Flow, spec: tasks.TasksSpec) -> set[To]:
    return {target.to for route in task_routes(flow, spec) for target in targets_of(flow, route)}
