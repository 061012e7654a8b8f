"""What is known of a run while it is driven: settings, answers, artifacts in force. Rebuilt by every replay."""

from __future__ import annotations

import json

from msgspec import Struct, field
from msgspec.structs import replace

from windlass.agents.contracts import registry as contracts
from windlass.agents.contracts.task_list import match_tasks
from windlass.errors import StoppedError, UserError, near
from windlass.flow.conditions import FactView, missing_in
from windlass.flow.conditions import fact as named_fact
from windlass.flow.schema import Artifact, Flow, Setting
from windlass.kinds.base import PlanView
from windlass.kinds.visit_cost import holds
from windlass.model import Answer, Json, RunFacts, Task, content_id


class StoredArtifact(Struct, frozen=True):
    """An artifact in force: its content, and the step that produced it."""

    sha: str
    content: str
    producer: str


class RunValues(Struct):
    flow: Flow
    facts: RunFacts
    mode: str = ""
    settings: dict[str, str] = field(default_factory=dict)
    artifacts: dict[str, StoredArtifact] = field(default_factory=dict)
    of_tasks: dict[tuple[str, str], StoredArtifact] = field(default_factory=dict)
    """Artifacts that are made per task, by task and name."""
    answers: dict[str, Answer] = field(default_factory=dict)
    """The last answer to each question, by its id."""
    roles_ran: set[str] = field(default_factory=set)
    in_place: bool = False
    branch: str = ""
    """Where the run was published last; another name than planned when somebody moved that branch."""
    published_tip: str = ""
    original: str = ""
    """The request as it was before it was refined; '' when it was not."""
    repository: str = ""
    """What people call it: the name of its folder."""
    base_branch: str = ""
    """What the user had checked out when the run began; '' when HEAD was detached."""
    tag_secret: str = ""
    """Nobody outside this run can make the tags of its dispatches' blocks without it."""

    # -- the machine's questions

    def fact(self, name: str, task: Task | None = None) -> Json:
        head, _, rest = name.partition(".")
        if head == "artifact":
            return self._artifact_field(rest)
        if name == "repository":
            return self.repository
        return named_fact(name, self._view(head, task))

    def number(self, value: int | str) -> int:
        text = self.resolve(value)
        if not text.isdigit():
            raise UserError(f"'{value}' is '{text}', which is not a whole number", hint="set it with --set NAME=NUMBER")
        return int(text)

    def unmet(self, needs: tuple[str, ...]) -> list[str]:
        return [need for need in needs if not self._met(need)]

    # -- settings

    def value(self, name: str) -> str:
        if name in self.settings:
            return self.settings[name]
        setting = self.flow.settings.get(name)
        return setting.default if setting else ""

    def given(self, name: str) -> bool:
        return name in self.facts.settings

    def asked(self, name: str) -> Setting | None:
        """None: it is given, or its `when` does not hold."""
        setting = self.flow.settings[name]
        if self.given(name) or not holds(setting.when, self.fact):
            return None
        return setting

    def resolve(self, value: int | str) -> str:
        text = str(value)
        return self.value(text[1:]) if text.startswith("$") else text

    # -- artifacts

    def content(self, name: str, task: str = "") -> str | None:
        """`task`: an artifact that is made per task is that task's own."""
        if name == "request":
            return self.facts.request
        own = self._artifact(name).per == "task" if name in self.flow.artifacts else False
        held = self.of_tasks.get((task, name)) if own else self.artifacts.get(name)
        return held.content if held else None

    def hold(self, name: str, content: str, producer: str, task: str = "") -> StoredArtifact:
        held = StoredArtifact(content_id(content), content, producer)
        if task and self._artifact(name).per == "task":
            self.of_tasks[task, name] = held
        else:
            self.artifacts[name] = held
        return held

    def refine(self, request: str) -> None:
        """A person confirmed another wording: from here on it is what was asked for."""
        self.original = self.facts.request
        self.facts = replace(self.facts, request=request)

    def path(self, name: str) -> str:
        template = self._artifact(name).path
        return template.format_map(self.names()) if template else ""

    def progress_path(self) -> str:
        return self.flow.progress.format_map(self.names())

    def names(self) -> dict[str, str]:
        """What {name} may stand for in paths and branch names."""
        facts = self.facts
        return {"slug": facts.slug, "date": facts.date, "id8": facts.id[:8], "session": f"{facts.date}-{facts.slug}"}

    def problem(self, name: str, task: str = "") -> str:
        """What is wrong with the artifact as it stands."""
        artifact, content = self._artifact(name), self.content(name, task)
        if content is None:
            return f"{self.path(name) or name} was not written"
        if artifact.contract == "tasks" or artifact.contract in contracts.TASK_LISTS:
            return self.plan(name, content).problem
        if artifact.contract and artifact.kind in ("json", "file"):
            return contracts.parse(artifact.contract, content).problem if artifact.kind == "file" else ""
        # An agent that had nothing to say is no failure; the next one works without it.
        return "" if content.strip() or artifact.kind == "text" else f"{name} is empty"

    def unensured(self, name: str, content: str) -> str:
        """What the artifact's rules of form miss in this content."""
        rules = self._artifact(name).ensure
        texts: dict[str, Json] = {other: held.content for other, held in self.artifacts.items()}
        missing = (missing_in(rule, content, FactView(artifacts=texts)) for rule in rules)
        return "; ".join(found for found in missing if found)

    def plan(self, name: str, content: str) -> PlanView:
        parsed = contracts.plan_of(self._artifact(name).contract, content)
        if parsed.problem:
            return PlanView(problem=parsed.problem)
        matched = match_tasks((), parsed.tasks)
        return PlanView(matched.tasks, matched.problem)

    # -- inside

    def _view(self, artifact: str, task: Task | None) -> FactView:
        names = {*self.flow.settings, *self.settings}
        return FactView(
            settings={name: self.value(name) for name in names},
            mode=self.mode,
            artifacts={artifact: self._data(artifact)} if artifact in self.flow.artifacts else {},
            task=task.to_json() if task else None,
            roles_ran=frozenset(self.roles_ran),
        )

    def _artifact(self, name: str) -> Artifact:
        if name not in self.flow.artifacts:
            raise StoppedError(f"there is no artifact '{name}'", hint=near(name, self.flow.artifacts))
        return self.flow.artifacts[name]

    def _artifact_field(self, rest: str) -> Json:
        name, _, attribute = rest.rpartition(".")
        artifact = self.flow.artifacts.get(name)
        return getattr(artifact, attribute, None) if artifact else None

    def _data(self, name: str) -> Json:
        """The artifact's data by its contract; None when it has none, or they cannot be read."""
        content, contract = self.content(name), self._artifact(name).contract
        if not content:
            return None
        try:
            return contracts.parse(contract, content).value if contract else json.loads(content)
        except ValueError:
            return None

    def _met(self, need: str) -> bool:
        match need.split():
            case ["file", name]:
                return self.content(name) is not None
            case ["answered", question]:
                return question in self.answers
            case ["answered", question, value]:
                return question in self.answers and self.answers[question].value == value
            case ["roles", "ran"]:
                return set(self.flow.must_run.get(self.mode, ())) <= self.roles_ran
            case ["no", "pending", "question"]:
                return True  # a pending question holds the machine where it is
            case ["criteria", "met"]:
                return self._criteria_met()
            case _:
                return False

    def _criteria_met(self) -> bool:
        acceptance = self._data("acceptance") if "acceptance" in self.flow.artifacts else None
        criteria = acceptance.get("criteria") if isinstance(acceptance, dict) else None
        return isinstance(criteria, list) and all(isinstance(c, dict) and c.get("met") is True for c in criteria)
