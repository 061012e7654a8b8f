"""What a check says: the place in the document, not yet the line."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from windlass.flow.outcomes import AnyPhase
from windlass.flow.schema import Flow
from windlass.flow.yaml import Path
from windlass.phases import command, dialogue, elicit, produce, review, tasks
from windlass.phases.base import CallSpec


class Fault(Struct, frozen=True):
    path: Path
    message: str
    hint: str = ""


class Place(Struct, frozen=True):
    """A phase or a step, and where it stands. Unlike a lookup by id, it sees duplicates."""

    path: Path
    phase: AnyPhase
    inside: tasks.Spec | None = None


def phases_of(flow: Flow) -> Iterator[Place]:
    for index, phase in enumerate(flow.phases):
        yield Place(("phases", index), phase)
    for at, stage in enumerate(flow.stages):
        for index, phase in enumerate(stage.phases):
            yield Place(("stages", at, "phases", index), phase)


def places(flow: Flow) -> Iterator[Place]:
    """Every phase, each followed by its steps."""
    for place in phases_of(flow):
        yield place
        if isinstance(place.phase, tasks.Spec):
            for index, step in enumerate(place.phase.steps):
                yield Place((*place.path, "steps", index), step, place.phase)


def calls_of(place: Place) -> Iterator[tuple[Path, CallSpec]]:
    phase, path = place.phase, place.path
    match phase:
        case produce.Spec():
            yield from (((*path, "calls", index), call) for index, call in enumerate(phase.calls))
        case review.Spec():
            yield from (((*path, "reviewers", index), call) for index, call in enumerate(phase.reviewers))
        case tasks.Spec() if phase.land.fixer:
            yield (*path, "land", "fixer"), phase.land.fixer
        case _:
            pass
    if isinstance(phase, review.Spec | command.Spec) and phase.fixer:
        yield (*path, "fixer"), phase.fixer


def role_names(place: Place) -> Iterator[tuple[Path, str]]:
    for path, call in calls_of(place):
        yield from (((*path, key), name) for key, name in _names(call) if name)
    match place.phase:
        case elicit.Spec() | dialogue.Spec():
            yield (*place.path, "role"), place.phase.role
        case produce.Spec(merge=produce.Merge(role=role)):
            yield (*place.path, "merge", "role"), role
        case _:
            pass


def _names(call: CallSpec) -> tuple[tuple[str, str], ...]:
    return (("role", call.role), ("profile", call.profile), ("or", call.otherwise))
