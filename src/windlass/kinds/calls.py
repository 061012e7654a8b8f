"""Makes the call of an agent from a call in a flow file. Decides which inputs a replay compares."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence

from windlass.events import StepEntered, TaskChanged
from windlass.kinds.base import Call, Context, Outcome, Reply
from windlass.kinds.spec import CallSpec
from windlass.model import ErrorClass, Finding, Json, content_id

#: characters of an agent's last message that a person sees
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
    focus: str = "",
) -> Call:
    """The task's fields, the request and findings are inputs. An artifact is an input outside tasks and context inside
    them: as an input, a typo in the header of the plan would repeat every task."""
    compared: dict[str, Json] = {"request": ctx.values.facts.request, **(inputs or {})}
    compared |= {"focus": focus} if focus else {}
    # The reason for a repeated visit goes into the prompt and is not compared: each visit has its own key.
    stored: dict[str, Json] = {**({"feedback": ctx.place.why} if ctx.place.why else {}), **(context or {})}
    if ctx.place.task is not None:
        compared["task"] = {**ctx.place.task.to_json(), "visit": 1, "depends_on": []}
    if findings:
        compared["findings"] = [finding.to_json() for finding in findings]
    for name in spec.ins:
        content = ctx.values.artifact(name)
        if name == "reason":
            # Why the visit before failed: the retry has to improve this.
            compared |= {"feedback": content} if content else {}
        elif name not in ("request", "task") and content is not None:
            stored[name] = content
            if ctx.place.task is None and ctx.values.fact(f"artifact.{name}.kind") != "text":
                compared[name] = content_id(content)
    return Call(
        role=spec.role,
        purpose=purpose,
        inputs=compared,
        context=stored,
        outs=spec.out,
        profile=_profile(ctx, spec),
        guard=spec.guard not in (False, "off", "false"),
        flags=spec.flags,
        instructions=spec.instructions,
    )


def _profile(ctx: Context, spec: CallSpec) -> str:
    for fact, choices in spec.by.items():
        chosen = choices.get(str(ctx.values.fact(fact)), "")
        if chosen:
            return chosen
    return ctx.values.setting(spec.profile)


async def gather_replies(calls: Sequence[Awaitable[Reply]]) -> list[Reply]:
    """Waits for all calls, also when one raises: the replies of the others are recorded then."""
    results = await asyncio.gather(*calls, return_exceptions=True)
    errors = [one for one in results if isinstance(one, BaseException)]
    if errors:
        raise errors[0]
    return [one for one in results if isinstance(one, Reply)]


def ensure_check(ctx: Context) -> Callable[[Mapping[str, str]], str]:
    """For `Call.accept`: the `ensure` rules of the flow's artifacts."""

    def accept(outs: Mapping[str, str]) -> str:
        violations = []
        for name, text in outs.items():
            # A plan that cannot be parsed has its own outcome.
            is_plan = ctx.values.fact(f"artifact.{name}.contract") == "tasks"
            if not (is_plan and ctx.values.parse_plan(name, text).problem):
                violations.append(ctx.values.ensure_violation(name, text))
        return "; ".join(filter(None, violations))

    return accept


def format_finding(finding: Finding) -> str:
    """A finding as text for the fixer: severity, place, problem, suggestion."""
    place = f" {finding.file}{f':{finding.line}' if finding.line else ''}" if finding.file else ""
    about = f" (tasks: {', '.join(finding.tasks)})" if finding.tasks else ""
    hint = f"\n  suggestion: {finding.suggestion}" if finding.suggestion else ""
    return f"- [{finding.severity.word}]{place} {finding.message}{about}{hint}"


def failed_call_outcome(role: str, reply: Reply) -> Outcome:
    """The outcome of a failed call, with its reason and the agent's last message."""
    if reply.error == ErrorClass.BAD_OUTPUT:
        return Outcome("invalid", failure_text(role, reply, MAX_UNREADABLE))
    return Outcome("failed", failure_text(role, reply, MAX_OUTPUT))


def failure_text(role: str, reply: Reply, most: int = MAX_OUTPUT) -> str:
    message = reply.text.strip()
    cut = message if len(message) <= most else message[:most] + "…"
    return f"{role}: {reply.reason}" + (f"\nIts output:\n{cut}" if message else "")


def record_label(ctx: Context, label: str, at: str) -> None:
    """Record the label that a document demands for this place."""
    if not label:
        return
    ctx.emit(StepEntered(ctx.place.key.text, label, ctx.place.task.id if ctx.place.task else ""), at=at)
    if ctx.place.task:
        ctx.emit(TaskChanged(ctx.place.task.id, label, visit=ctx.place.task.visit), at=at)
