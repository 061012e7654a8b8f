"""What a check says: the place in the document, not yet the line."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from windlass.flow.outcomes import AnyPhase
from windlass.flow.schema import Flow
from windlass.flow.strict_yaml import Path
from windlass.kinds import command, dialogue, elicit, produce, review, tasks
from windlass.kinds.base import CallSpec


class FlowFault(Struct, frozen=True):
    path: Path
    message: str
    hint: str = ""


class PhasePlace(Struct, frozen=True):
    """A phase or a step, and where it stands. Unlike a lookup by id, it sees duplicates."""

    path: Path
    phase: AnyPhase
    inside: tasks.TasksSpec | None = None


def phases_of(flow: Flow) -> Iterator[PhasePlace]:
    for index, phase in enumerate(flow.phases):
        yield PhasePlace(("phases", index), phase)
    for at, stage in enumerate(flow.stages):
        for index, phase in enumerate(stage.phases):
            yield PhasePlace(("stages", at, "phases", index), phase)


def places(flow: Flow) -> Iterator[PhasePlace]:
    """Every phase, each followed by its steps."""
    for place in phases_of(flow):
        yield place
        if isinstance(place.phase, tasks.TasksSpec):
            for index, step in enumerate(place.phase.steps):
                yield PhasePlace((*place.path, "steps", index), step, place.phase)


def calls_of(place: PhasePlace) -> Iterator[tuple[Path, CallSpec]]:
    phase, path = place.phase, place.path
    match phase:
        case produce.ProduceSpec():
            yield from (((*path, "calls", index), call) for index, call in enumerate(phase.calls))
        case review.ReviewSpec():
            yield from (((*path, "reviewers", index), call) for index, call in enumerate(phase.reviewers))
        case tasks.TasksSpec() if phase.land.fixer:
            yield (*path, "land", "fixer"), phase.land.fixer
        case _:
            pass
    if isinstance(phase, review.ReviewSpec | command.CommandSpec) and phase.fixer:
        yield (*path, "fixer"), phase.fixer


def role_names(place: PhasePlace) -> Iterator[tuple[Path, str]]:
    for path, call in calls_of(place):
        yield from (((*path, key), name) for key, name in _names(call) if name)
    match place.phase:
        case elicit.ElicitSpec() | dialogue.DialogueSpec():
            yield (*place.path, "role"), place.phase.role
        case produce.ProduceSpec(merge=produce.Merge(role=role)):
            yield (*place.path, "merge", "role"), role
        case _:
            pass


def _names(call: CallSpec) -> tuple[tuple[str, str], ...]:
    return (("role", call.role), ("profile", call.profile), ("or", call.otherwise))
