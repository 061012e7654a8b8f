"""The named functions of the flow language: conditions and `ensure` rules. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TypeAlias

from msgspec import Struct, field

from windlass.model import Json


class FactView(Struct, frozen=True):
    """The data of a condition: recorded results only."""

    settings: Mapping[str, str] = field(default_factory=dict)
    """Answered, given or default values."""
    mode: str = ""
    artifacts: Mapping[str, Json] = field(default_factory=dict)
    """The parsed data of artifacts; a task list is a list of its entries."""
    task: Mapping[str, Json] | None = None
    """The current task's entry, with every field of its plan."""
    roles_ran: frozenset[str] = frozenset()


Fact: TypeAlias = Callable[[FactView], Json]
Rule: TypeAlias = Callable[[str, FactView], str]
"""The text of an artifact in, the missing part out; '' when nothing is missing."""

SINGLE_FINAL = "single-final"
RISKY_WORDS = frozenset({"security", "auth", "input", "network"})
BEHAVIOUR_WORDS = frozenset({"behaviour", "behavior", "logic", "acceptance"})
REPORT_PARTS = {
    "work done": r"\bdone\b|\bwork\b",
    "running it": r"\brun",
    "testing it": r"\btest",
    "known issues": r"\bissue",
}


def fact(name: str, view: FactView) -> Json:
    """A named function, the mode, a setting, a task's field or an artifact's field; None while it is unknown."""
    if name in FACTS:
        return FACTS[name](view)
    if name == "mode":
        return view.mode
    owner, _, key = name.partition(".")
    if not key or name in view.settings:
        return view.settings.get(name)
    source: Json | Mapping[str, Json] = view.task if owner == "task" else view.artifacts.get(owner)
    return source.get(key) if isinstance(source, Mapping) else None


def _due(role: str) -> Fact:
    def due(view: FactView) -> Json:
        return view.settings.get("strategy") == SINGLE_FINAL or role not in view.roles_ran

    return due


def _needs_qa(view: FactView) -> Json:
    task = view.task or {}
    if isinstance(task.get("needs_qa"), bool):
        return task["needs_qa"]
    # without `concerns` in the plan, the careful answer
    return "concerns" not in task or bool(_words(task.get("concerns")) & BEHAVIOUR_WORDS)


def _needs_security(view: FactView) -> Json:
    task = view.task or {}
    if isinstance(task.get("needs_security"), bool):
        return task["needs_security"]
    named = _words(task.get("risk_flags")) | _words(task.get("touches")) | _words(task.get("concerns"))
    paths = {word for path in _words(task.get("files")) for word in re.split(r"[^a-z]+", path)}
    return bool((named | paths) & RISKY_WORDS)


FACTS: dict[str, Fact] = {
    "meta.qa_due": _due("qa"),
    "meta.security_due": _due("security"),
    "task.needs_qa": _needs_qa,
    "task.needs_security": _needs_security,
}


def _has_criteria(text: str, _view: FactView) -> str:
    heading = r"^#+[^\n]*acceptance criteria[^\n]*$(.*?)(?=^#|\Z)"
    section = re.search(heading, text, re.MULTILINE | re.DOTALL | re.IGNORECASE)
    listed = section and re.search(r"^\s*(?:[-*]|\d+\.)\s+\S", section[1], re.MULTILINE)
    return "" if listed else "a list under 'Acceptance criteria'"


def _names_criteria(text: str, view: FactView) -> str:
    known = view.artifacts.get("acceptance")
    listed = known.get("criteria") if isinstance(known, Mapping) else known
    ids = [str(entry.get("id")) for entry in _entries(listed)]
    missing = [id for id in ids if not re.search(rf"(?<![\w.-]){re.escape(id)}(?![\w-])", text)]
    return f"the criteria {', '.join(missing)}" if missing else ""


def _has_risks(text: str, _view: FactView) -> str:
    return "" if re.search(r"^#+\s.*\brisks?\b", text, re.MULTILINE | re.IGNORECASE) else "a heading 'Risks'"


def _checks_and_done_when(_text: str, view: FactView) -> str:
    wanted = ("depends_on", "acceptance_checks", "done_when")
    lacking = [
        f"{task.get('id') or task.get('title')}: {key}"
        for task in _entries(view.artifacts.get("tasks"))
        for key in wanted
        if key not in task or (key != "depends_on" and not task[key])
    ]
    return ", ".join(lacking)


def _four_parts(text: str, _view: FactView) -> str:
    headings = " | ".join(re.findall(r"^#+\s+(.*)$", text, re.MULTILINE)).lower()
    return ", ".join(name for name, pattern in REPORT_PARTS.items() if not re.search(pattern, headings))


def _covers_design(text: str, view: FactView) -> str:
    """The plan names every section of the approved design, so that a reviewer can find it."""
    known = " ".join(text.casefold().split())
    design = view.artifacts.get("design")
    missing: list[str] = []
    fenced = False
    for line in design.split("\n") if isinstance(design, str) else ():
        fenced = fenced != line.lstrip().startswith(("```", "~~~"))
        # Each section of a design begins with a second-level heading.
        if line.startswith("## ") and not fenced:
            title = " ".join(line[3:].split())
            missing += [title] if title.casefold() not in known else []
    return f"a word on {', '.join(missing)} of the approved design" if missing else ""


def missing_in(rule: str, text: str, view: FactView) -> str:
    """What a named `ensure` rule misses in an artifact."""
    found = ENSURES[rule](text, view)
    return f"{found} is missing" if found else ""


ENSURES: dict[str, Rule] = {
    "covers-design": _covers_design,
    "acceptance-criteria": _has_criteria,
    "names-criteria": _names_criteria,
    "risks-heading": _has_risks,
    "checks-and-done-when": _checks_and_done_when,
    "four-parts": _four_parts,
}


def _words(value: Json) -> set[str]:
    items = value if isinstance(value, list | tuple) else [value] if isinstance(value, str) else []
    return {str(item).lower() for item in items}


def _entries(value: Json) -> list[Mapping[str, Json]]:
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []
