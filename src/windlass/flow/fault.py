"""The result of a check: a path in the document, not yet a line."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from windlass.conversion import Path
from windlass.flow.schema import Flow
from windlass.kinds.spec import CallSpec, PhaseSpec


class FlowFault(Struct, frozen=True):
    path: Path
    message: str
    hint: str = ""


class PhasePlace(Struct, frozen=True):
    """A phase or a step, and its path. Unlike a lookup by id, it sees duplicates."""

    path: Path
    phase: PhaseSpec
    inside: PhaseSpec | None = None


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
        for index, step in enumerate(place.phase.task_steps()):
            yield PhasePlace((*place.path, "steps", index), step, place.phase)


def calls_of(place: PhasePlace) -> Iterator[tuple[Path, CallSpec]]:
    yield from (((*place.path, *path), call) for path, call in place.phase.agent_calls())


def role_names(place: PhasePlace) -> Iterator[tuple[Path, str]]:
    yield from (((*place.path, *path), name) for path, name in place.phase.role_names())
