"""The values of the variables in a role's prompt. The texts of prompts are in the roles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from windlass.agents.contracts import registry as contracts
from windlass.agents.templates import VARIABLES
from windlass.checks.test_files import TEST_GLOBS, matches
from windlass.engine.values import RunValues
from windlass.kinds.base import Call
from windlass.kinds.calls import format_finding
from windlass.kinds.review import USER
from windlass.model import Finding, Json, Task

MAX_FILES = 200
MAX_TEST_FILES = 20_000
"""Characters."""
MOST_TITLES = 100


def prompt_values(
    values: RunValues,
    call: Call,
    *,
    phase: str,
    task: Task | None,
    completed: Sequence[Task],
    contract: str,
    outs: Mapping[str, str],
    changed: Sequence[str],
    **texts: str,
) -> dict[str, str]:
    """All variables of templates; '' for a variable without a value. `texts`: values that only the dispatch has, by
    the variable's name; `tag` is the tag of the contract's block."""
    found = "\n".join(format_finding(f) for f in findings_of(call) if f.role != USER)
    tag = texts.pop("tag")
    own_plan = values.path("plan") if "plan" in values.flow.artifacts else ""
    files, more = [f"- {path}" for path in changed[:MAX_FILES]], len(changed) - MAX_FILES
    files += [f"- and {more} more"] if more > 0 else []
    known: dict[str, str] = {
        "request": values.facts.request,
        "date": values.facts.date,
        "slug": values.facts.slug,
        "plan_path": outs.get("plan") or own_plan,
        "plan_context": _text(call.context.get("plan")) if task else "",
        "task": _task(task) if task else "",
        "task_id": task.id if task else "",
        "task_title": task.title if task else "",
        "changed_files": "\n".join(files),
        "test_files": "\n".join(f"- {path}" for path in changed if matches(path, TEST_GLOBS))[:MAX_TEST_FILES],
        "findings": found,
        "open_findings": found,
        "completed_tasks": _titles(completed),
        "contract": contracts.describe(contract, tag) if contract else "",
        "flags": " ".join(call.flags),
        **texts,
        **{f"out.{name}": path for name, path in outs.items()},
    }
    return {**dict.fromkeys(VARIABLES, ""), **_inputs(_with_pointers(values, call, phase, task)), **known}


def _with_pointers(values: RunValues, call: Call, phase: str, task: Task | None) -> Call:
    """The call with the paths of the artifacts that were summed up, instead of their contents. A task has no such
    files."""
    pointed = {name for name in call.context if task is None and values.is_summed_up(name, phase)}
    if not pointed:
        return call
    pointers: dict[str, Json] = {name: _pointer(values, name) for name in pointed}
    return replace(call, context={**call.context, **pointers})


def _pointer(values: RunValues, name: str) -> str:
    lines = (values.content(name) or "").count("\n")
    return f"The file `{values.path(name)}` ({lines} lines) has it. Read what you need of it."


def _inputs(call: Call) -> dict[str, str]:
    """Inputs and context by name, if templates have such a variable; all others as `inputs`."""
    both = {**call.context, **call.inputs}
    # The content of an artifact is in the context, its fingerprint in the inputs. Agents need the content.
    both.update({name: value for name, value in call.context.items() if value})
    known = {name: _text(value) for name, value in both.items() if name in VARIABLES}
    others = [f"## {name}\n{_text(v)}" for name, v in call.context.items() if name not in VARIABLES and v]
    return {**known, "inputs": "\n\n".join(others)}


def _text(value: Json) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else str(value)


def _task(task: Task) -> str:
    files = "\n".join(f"- {path}" for path in task.files)
    parts = [f"Title: {task.title}", task.description.strip(), f"Files:\n{files}" if files else ""]
    return "\n\n".join(part for part in parts if part)


def findings_of(call: Call) -> list[Finding]:
    value = call.inputs.get("findings")
    return [Finding.from_json(item) for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def wishes_of(call: Call) -> list[str]:
    """Changes that the user wants. Unlike the findings of a reviewer, the agent must not question them."""
    return [finding.message for finding in findings_of(call) if finding.role == USER]


def _titles(tasks: Sequence[Task]) -> str:
    """The last tasks only: a plan may have thousands, and every prompt has this list."""
    earlier = len(tasks) - MOST_TITLES
    head = [f"- {earlier} tasks before these"] if earlier > 0 else []
    return "\n".join([*head, *(f"- {task.title}" for task in tasks[-MOST_TITLES:])])
