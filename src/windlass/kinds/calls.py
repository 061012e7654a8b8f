"""From a call in a flow file to a call of an agent: which inputs are compared, which are only context."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from windlass.events import StepEntered, TaskChanged
from windlass.kinds.base import Call, Context, Outcome, Reply
from windlass.kinds.spec import CallSpec
from windlass.model import ErrorClass, Finding, Json, content_id

#: characters of an agent's last words that a person is shown
MAX_OUTPUT = 500
MAX_UNREADABLE = 300


def make_call(
    ctx: Context,
    spec: CallSpec,
    purpose: str,
    *,
    inputs: dict[str, Json] | None = None,
    context: dict[str, Json] | None = None,
    findings: Sequence[Finding] = (),
) -> Call:
    """A task's own fields, the request and findings are inputs. An artifact is an input outside tasks and context
    inside them: with the whole plan as an input, a typo in its header would buy every task again."""
    compared: dict[str, Json] = {"request": ctx.values.facts.request, **(inputs or {})}
    # Why it is done again is told, not compared: a visit has a key of its own.
    stored: dict[str, Json] = {**({"feedback": ctx.place.why} if ctx.place.why else {}), **(context or {})}
    if ctx.place.task is not None:
        compared["task"] = {**ctx.place.task.to_json(), "visit": 1, "depends_on": []}
    if findings:
        compared["findings"] = [finding.to_json() for finding in findings]
    for name in spec.ins:
        _take(ctx, name, compared, stored)
    return Call(
        role=spec.role,
        purpose=purpose,
        inputs=compared,
        context=stored,
        outs=spec.out,
        profile=spec.profile,
        guard=spec.guard not in (False, "off", "false"),
        flags=spec.flags,
        instructions=spec.instructions,
    )


def keeps_form(ctx: Context) -> Callable[[Mapping[str, str]], str]:
    """For `Call.accept`: the rules of form that the flow lays on its artifacts."""

    def accept(outs: Mapping[str, str]) -> str:
        return "; ".join(filter(None, (_unmet(ctx, name, text) for name, text in outs.items())))

    return accept


def _unmet(ctx: Context, name: str, text: str) -> str:
    """A plan that cannot be read at all has an outcome of its own."""
    is_plan = ctx.values.fact(f"artifact.{name}.contract") == "tasks"
    return "" if is_plan and ctx.values.parse_plan(name, text).problem else ctx.values.unmet(name, text)


def format_finding(finding: Finding) -> str:
    """For whoever mends it: severity, place, what is wrong, how to close it."""
    place = f" {finding.file}{f':{finding.line}' if finding.line else ''}" if finding.file else ""
    about = f" (tasks: {', '.join(finding.tasks)})" if finding.tasks else ""
    hint = f"\n  suggestion: {finding.suggestion}" if finding.suggestion else ""
    return f"- [{finding.severity.word}]{place} {finding.message}{about}{hint}"


def unusable(role: str, reply: Reply) -> Outcome:
    """A call that came to nothing, in words for a person: what failed, and what the agent said last."""
    if reply.error == ErrorClass.BAD_OUTPUT:
        return Outcome("invalid", failure_words(role, reply, MAX_UNREADABLE))
    return Outcome("failed", failure_words(role, reply, MAX_OUTPUT))


def failure_words(role: str, reply: Reply, most: int = MAX_OUTPUT) -> str:
    said = reply.text.strip()
    cut = said if len(said) <= most else said[:most] + "…"
    return f"{role}: {reply.reason}" + (f"\nIts output:\n{cut}" if said else "")


def _take(ctx: Context, name: str, compared: dict[str, Json], stored: dict[str, Json]) -> None:
    content = ctx.values.artifact(name)
    if name == "reason":
        # Why the visit before did not do: what a person's retry is to make better.
        compared |= {"feedback": content} if content else {}
        return
    if name in ("request", "task") or content is None:
        return
    stored[name] = content
    if ctx.place.task is None and ctx.values.fact(f"artifact.{name}.kind") != "text":
        compared[name] = content_id(content)


def reached(ctx: Context, label: str, at: str) -> None:
    """A name that a document demands for this place, said where it is reached."""
    if not label:
        return
    ctx.emit(StepEntered(ctx.place.key.text, label, ctx.place.task.id if ctx.place.task else ""), at=at)
    if ctx.place.task:
        ctx.emit(TaskChanged(ctx.place.task.id, label, visit=ctx.place.task.visit), at=at)
