"""Checks a document against the grammar of flows. Every fault uses the words of the flow file and has its line."""

from __future__ import annotations

import json

from msgspec.structs import replace

from windlass.conversion import ConversionError, Fault, Path, convert
from windlass.flow import schema
from windlass.flow.document import Located
from windlass.flow.problem import FlowError, FlowProblem
from windlass.model import Json

NOT_YET = {
    ("Artifact", "optional"): "it will let an agent leave the artifact out",
    ("Flow", "commit"): "Windlass always commits what an agent left uncommitted",
    ("Flow", "context"): "it will give all agents a summary of the run",
    ("ProduceSpec", "done"): "it will name the state after the step",
    ("ProduceSpec", "only"): "it will repeat only the calls that an answer names",
    ("QuestionSpec", "cancel"): "it will say where leaving the question leads",
    ("QuestionSpec", "from"): "it will offer findings as options",
    ("QuestionSpec", "on_timeout"): "it will be the answer after a timeout",
    ("QuestionSpec", "reask"): "it will ask again after an answer that does not fit",
    ("QuestionSpec", "recommend"): "it will recommend an option",
    ("QuestionSpec", "record"): "it will say how the answer is written down",
    ("QuestionSpec", "sets"): "it will make the answer a fact",
    ("QuestionSpec", "timeout"): "it will bound how long the question waits",
    ("QuestionSpec", "type"): "it will allow several options as an answer",
}
"""Keys of the grammar that nothing reads yet. They are refused, so that no flow relies on them."""


def read_shape(located: Located) -> schema.Flow:
    """The flow, or a FlowError that names every value that does not fit."""
    if not isinstance(located.value, dict):
        raise FlowError(located.where, [FlowProblem(1, "a flow is a mapping: flow, about, phases ...")])
    try:
        return convert(located.value, schema.Flow)
    except ConversionError as error:
        problems = [FlowProblem(located.line(fault.path), *_message(fault)) for fault in error.faults]
        raise FlowError(located.where, problems) from None


def without_unread(located: Located) -> Located:
    """The document without the keys of `NOT_YET`."""
    try:
        convert(located.value, schema.Flow)
    except ConversionError as error:
        unread = {fault.path for fault in error.faults if _plan_for(fault)}
        return replace(located, value=_without(located.value, unread, ()))
    return located


def _without(value: Json, unread: set[Path], path: Path) -> Json:
    match value:
        case dict():
            kept = {key: one for key, one in value.items() if (*path, key) not in unread}
            return {key: _without(one, unread, (*path, key)) for key, one in kept.items()}
        case list():
            return [_without(one, unread, (*path, index)) for index, one in enumerate(value)]
        case _:
            return value


def _plan_for(fault: Fault) -> str:
    """What a key of `NOT_YET` will do; '' for any other fault."""
    return NOT_YET.get((fault.owner.__name__, str(fault.path[-1])), "") if fault.owner else ""


def _message(fault: Fault) -> tuple[str, str]:
    plan = _plan_for(fault)
    if plan:
        return f"`{fault.path[-1]}` is not supported yet: remove it", plan
    names = [part for part in fault.path if isinstance(part, str)]
    name = f"'{names[-1]}'" if names else "the flow"
    match fault.code:
        case "unknown" | "tag":
            return fault.message, fault.hint
        case "missing":
            return f"{name} is missing", fault.hint
        case "choice":
            given = fault.value if isinstance(fault.value, str) else json.dumps(fault.value)
            return f"'{given[:60]}' does not fit {name}", fault.hint
        case _:
            return f"{name}: {fault.message}", fault.hint
