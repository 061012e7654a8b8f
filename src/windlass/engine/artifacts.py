"""The artifacts in force of a run: their content and its problems."""

from __future__ import annotations

import json
from collections.abc import Collection

from msgspec import Struct, field

from windlass.agents.contracts import registry as contracts
from windlass.agents.contracts.task_list import match_tasks
from windlass.errors import StoppedError, near
from windlass.flow.conditions import FactView, missing_in
from windlass.flow.schema import Artifact, Flow
from windlass.kinds.base import PlanView
from windlass.model import Json, content_id


class StoredArtifact(Struct, frozen=True):
    """An artifact in force: its content, and the step that produced it."""

    sha: str
    content: str
    producer: str


class RunArtifacts(Struct):
    flow: Flow
    held: dict[str, StoredArtifact] = field(default_factory=dict)
    """By name."""
    of_tasks: dict[tuple[str, str], StoredArtifact] = field(default_factory=dict)
    """Artifacts that each task makes, by task and name."""

    def artifact(self, name: str) -> Artifact:
        if name not in self.flow.artifacts:
            raise StoppedError(f"there is no artifact '{name}'", hint=near(name, self.flow.artifacts))
        return self.flow.artifacts[name]

    def hold(self, name: str, content: str, producer: str, task: str = "") -> StoredArtifact:
        held = StoredArtifact(content_id(content), content, producer)
        if task and self.artifact(name).per == "task":
            self.of_tasks[task, name] = held
        else:
            self.held[name] = held
        return held

    def drop(self, names: Collection[str]) -> list[str]:
        """These artifacts are no longer in force. Returns those that were."""
        found = [name for name in names if name in self.held]
        for name in found:
            del self.held[name]
        return found

    def content(self, name: str, task: str = "") -> str | None:
        """`task`: the owner, for an artifact that each task makes."""
        per_task = name in self.flow.artifacts and self.artifact(name).per == "task"
        held = self.of_tasks.get((task, name)) if per_task else self.held.get(name)
        return held.content if held else None

    def data(self, name: str) -> Json:
        """The artifact's data by its contract; None when it has none, or cannot be parsed."""
        content, contract = self.content(name), self.artifact(name).contract
        if not content:
            return None
        try:
            return contracts.parse(contract, content).value if contract else json.loads(content)
        except ValueError:
            return None

    def plan(self, name: str, content: str) -> PlanView:
        parsed = contracts.plan_of(self.artifact(name).contract, content)
        if parsed.problem:
            return PlanView(problem=parsed.problem)
        matched = match_tasks((), parsed.tasks)
        return PlanView(matched.tasks, matched.problem)

    def problem(self, name: str, path: str, task: str = "") -> str:
        """The artifact's problem. `path`: its file, for the message."""
        artifact, content = self.artifact(name), self.content(name, task)
        if content is None:
            return f"{path or name} was not written"
        if artifact.contract == "tasks" or artifact.contract in contracts.TASK_LISTS:
            return self.plan(name, content).problem
        if artifact.contract and artifact.kind in ("json", "file"):
            return contracts.parse(artifact.contract, content).problem if artifact.kind == "file" else ""
        # Empty text is not a failure; the next agent works without it.
        return "" if content.strip() or artifact.kind == "text" else f"{name} is empty"

    def missing(self, name: str, content: str) -> str:
        """What the artifact's `ensure` rules miss in this content."""
        texts: dict[str, Json] = {other: held.content for other, held in self.held.items()}
        found = (missing_in(rule, content, FactView(artifacts=texts)) for rule in self.artifact(name).ensure)
        return "; ".join(text for text in found if text)
