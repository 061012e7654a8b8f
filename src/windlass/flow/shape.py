"""What does not fit the grammar, said in the words of the flow file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from windlass.errors import near
from windlass.flow import schema
from windlass.flow.problem import FlowError, FlowProblem
from windlass.flow.strict_yaml import Located, Path
from windlass.kinds import KINDS
from windlass.kinds.produce import Empty, Merge
from windlass.kinds.spec import CallSpec, Label, Land

COLLECTIONS: dict[str, type[BaseModel]] = {
    "settings": schema.Setting,
    "artifacts": schema.Artifact,
    "questions": schema.QuestionSpec,
    "restarts": schema.Restarts,
    "source": schema.SourceSpec,
    "compact": schema.Compact,
}
PARTS: dict[str, type[BaseModel]] = {
    "calls": CallSpec,
    "reviewers": CallSpec,
    "fixer": CallSpec,
    "label": Label,
    "merge": Merge,
    "empty": Empty,
    "land": Land,
}


def read_shape(located: Located) -> schema.Flow:
    """The flow, or a FlowError that names every value that does not fit."""
    if not isinstance(located.value, dict):
        raise FlowError(located.where, [FlowProblem(1, "a flow is a mapping: flow, about, phases ...")])
    try:
        return schema.Flow.model_validate(located.value)
    except ValidationError as error:
        raise FlowError(located.where, list(_problems(error, located))) from None


def _problems(error: ValidationError, located: Located) -> Iterator[FlowProblem]:
    for detail in error.errors():
        path = _path(detail["loc"], located.value)
        message, hint = _say(detail)
        yield FlowProblem(located.line(path), message, hint)


def _path(loc: tuple[str | int, ...], value: Any) -> Path:
    """Where the error stands in the file: pydantic's location without the names of its own union members."""
    path: list[str | int] = []
    for part in loc:
        inside = isinstance(value, dict) and part in value
        if inside or (isinstance(value, list) and isinstance(part, int) and part < len(value)):
            value = value[part]
            path.append(part)
    return tuple(path)


def _say(detail: ErrorDetails) -> tuple[str, str]:
    name = str(detail["loc"][-1]) if detail["loc"] else ""
    context = detail.get("ctx") or {}
    match detail["type"]:
        case "extra_forbidden":
            return f"unknown key '{name}'", near(name, _known_keys(detail["loc"]))
        case "missing":
            return f"'{name}' is missing", ""
        case "union_tag_not_found":
            return "'kind' is missing", f"one of {', '.join(KINDS)}"
        case "union_tag_invalid":
            return f"unknown kind '{context.get('tag')}'", near(str(context.get("tag")), KINDS)
        case "literal_error":
            return f"'{detail['input']}' does not fit '{name}'", near(str(detail["input"]), _quoted(context))
        case "value_error":
            return f"{_field(detail['loc'])}: {context.get('error')}", ""
        case "is_instance_of":
            return f"{_field(detail['loc'])}: a target is a word such as next, stop or a phase's id", ""
        case _:
            return f"{_field(detail['loc'])}: {detail['msg'][0].lower()}{detail['msg'][1:]}", ""


def _field(loc: tuple[str | int, ...]) -> str:
    names = [str(part) for part in loc if isinstance(part, str) and part.replace("_", "").replace("-", "").isalnum()]
    return f"'{names[-1]}'" if names else "the flow"


def _quoted(context: dict[str, Any]) -> list[str]:
    return [word for word in re.findall(r"'([^']*)'", str(context.get("expected", ""))) if word]


def _known_keys(loc: tuple[str | int, ...]) -> set[str]:
    return {info.alias or name for name, info in _model(loc[:-1]).model_fields.items()}


def _model(loc: tuple[str | int, ...]) -> type[BaseModel]:
    if loc and loc[0] in COLLECTIONS:
        return COLLECTIONS[str(loc[0])]
    for before, part in reversed(list(zip((None, *loc), loc, strict=False))):
        if part in PARTS:
            return PARTS[str(part)]
        if isinstance(before, int) and part in KINDS:
            return _spec(str(part))
    return schema.Stage if loc else schema.Flow


def _spec(kind: str) -> type[BaseModel]:
    spec: type[BaseModel] = KINDS[kind].spec
    return spec
