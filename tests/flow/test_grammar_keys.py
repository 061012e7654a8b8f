"""Every key of a flow file and of the configuration has a reader: what nothing reads is refused."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, get_args

import pytest
from msgspec import Struct

import windlass
from windlass.config.schema import Config, SettingsTable
from windlass.conversion import fields_of
from windlass.flow.schema import Flow
from windlass.flow.shape import NOT_YET
from windlass.kinds import KINDS
from windlass.kinds.spec import FlowStruct, PhaseSpec

SOURCE = Path(windlass.__file__).parent
LOADER = ("flow", "config")
#: what the code calls a value of each struct; of a kind's own struct: `spec`, in its own file
CALLED = {
    "AgentSettings": ("agents",),
    "Artifact": ("artifact", "artifacts", "_artifact"),
    "BudgetSettings": ("budget", "money"),
    "CallSpec": ("call", "fixer", "reviewer", "spec", "r"),
    "CommandSet": ("checks", "commands"),
    "Compaction": ("compact",),
    "Config": ("config", "_config"),
    "Empty": ("empty",),
    "Flow": ("flow", "_flow", "_load"),
    "Label": ("label",),
    "Land": ("land",),
    "LandedChange": ("land",),
    "LimitSettings": ("limits",),
    "NotifySettings": ("notify",),
    "PhaseSpec": ("phase", "step", "steps", "spec"),
    "QuestionSpec": ("questions", "spec"),
    "Restarts": ("restarts",),
    "RetrySettings": ("retries",),
    "RoleSettings": ("role",),
    "Setting": ("setting",),
    "SourceSpec": ("source", "spec"),
    "Stage": ("stage",),
    "TestSettings": ("tests",),
    "WorkspaceSettings": ("workspace",),
}
FOR_THE_CHECK = {
    "Compaction.path": "the loader makes the artifacts of the summaries from it",
    "AskSpec.bound": "says to the check of loops that a person bounds this one",
    "QuestionSpec.per": "says to the check of questions that only steps of a task ask it",
}

BY_NAME = ("RoleSettings.model", "RoleSettings.effort")
"""`agents/assignment.py` gets these with getattr."""


def structs(hint: Any, seen: dict[str, type[Struct]]) -> dict[str, type[Struct]]:
    """Every struct that a file is read into, by its name."""
    for one in (hint, *get_args(hint)):
        if isinstance(one, type) and issubclass(one, FlowStruct | SettingsTable) and one.__name__ not in seen:
            seen[one.__name__] = one
            for info in fields_of(one):
                structs(info.type, seen)
        elif one is not hint:
            structs(one, seen)
    return seen


STRUCTS = structs(Flow, {"PhaseSpec": PhaseSpec}) | structs(Config, {})
OF_KINDS = {kind.spec.__name__: name for name, kind in KINDS.items()}


@cache
def reads() -> tuple[frozenset[tuple[str, str, str]], frozenset[tuple[str, str, str]]]:
    """(file, what it is called, attribute) outside the loader; and (struct, method, attribute) of their own methods."""
    outside, inside = set(), set()
    for path in sorted(SOURCE.rglob("*.py")):
        tree, file = ast.parse(path.read_text(encoding="utf-8")), path.relative_to(SOURCE).as_posix()
        own = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and node.name in STRUCTS]
        for cls in own:
            for method in (node for node in cls.body if isinstance(node, ast.FunctionDef)):
                inside |= {(cls.name, method.name, name) for called, name in loads(method) if called == "self"}
            cls.body = []
        if not file.startswith(tuple(f"{name}/" for name in LOADER)):
            outside |= {(file, called, attribute) for called, attribute in loads(tree)}
    return frozenset(outside), frozenset(inside)


def loads(tree: ast.AST) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            yield last_name(node.value), node.attr


def last_name(node: ast.expr) -> str:
    match node:
        case ast.Name():
            return node.id
        case ast.Attribute():
            return node.attr
        case ast.Call():
            return last_name(node.func)
        case ast.Subscript():
            return last_name(node.value)
        case _:
            return ""


def is_read(owner: str, field: str) -> bool:
    outside, inside = reads()
    kind = OF_KINDS.get(owner, "")
    files = (f"kinds/{kind}.py", *(("tasks/", "driver/") if kind == "tasks" else ())) if kind else ("",)
    called = ("spec", "_spec") if kind else CALLED[owner]
    if any(file.startswith(files) and by in called and field == name for file, by, name in outside):
        return True
    methods = {method for cls, method, name in inside if cls == owner and name == field}
    return any(name in methods for _, _, name in outside)


KEYS = [
    f"{name}.{field}"
    for name, cls in STRUCTS.items()
    for field in cls.__struct_fields__
    if name == "PhaseSpec" or not issubclass(cls, PhaseSpec) or field not in PhaseSpec.__struct_fields__
]


@pytest.mark.parametrize("key", KEYS)
def test_something_outside_the_loader_reads_every_key(key: str) -> None:
    owner, field = key.split(".")
    assert is_read(owner, field) != (key in (*FOR_THE_CHECK, *BY_NAME)), f"nothing reads {key}: refuse it"


def test_what_nothing_reads_is_not_taken_for_read() -> None:
    """The keys that were accepted once and read by nothing: the walk above would have found each of them."""
    known = {(name, info.encode_name) for name, cls in STRUCTS.items() for info in fields_of(cls)}
    assert known.isdisjoint(NOT_YET)
    assert [f"{owner}.{key}" for owner, key in NOT_YET if is_read(owner, key)] == []
