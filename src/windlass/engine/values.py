"""The values of a run in progress: settings, answers, artifacts in force. Every replay rebuilds them."""

from __future__ import annotations

from collections.abc import Collection

from msgspec import Struct, field
from msgspec.structs import replace

from windlass.engine.artifacts import RunArtifacts
from windlass.errors import UserError
from windlass.flow.conditions import FactView
from windlass.flow.conditions import fact as named_fact
from windlass.flow.schema import Flow, Setting
from windlass.kinds.visit_cost import holds
from windlass.model import Answer, Json, RunFacts, Task


class RunValues(Struct):
    flow: Flow
    facts: RunFacts
    artifacts: RunArtifacts
    mode: str = ""
    settings: dict[str, str] = field(default_factory=dict)
    answers: dict[str, Answer] = field(default_factory=dict)
    """The last answer to each question, by its id."""
    roles_ran: set[str] = field(default_factory=set)
    in_place: bool = False
    branch: str = ""
    """The branch last published; it differs from the planned name when another program moved that branch."""
    published_tip: str = ""
    original: str = ""
    """The request before its refinement; '' when there was none."""
    repository: str = ""
    """The name of its folder, for people."""
    base_branch: str = ""
    """The branch that the user had checked out when the run began; '' when HEAD was detached."""
    tag_secret: str = ""
    """The secret for the tags of this run's dispatches."""

    # -- for the machine

    def fact(self, name: str, task: Task | None = None) -> Json:
        head, _, rest = name.partition(".")
        if head == "artifact":
            artifact, _, attribute = rest.rpartition(".")
            return getattr(self.flow.artifacts.get(artifact), attribute, None)
        if name == "repository":
            return self.repository
        return named_fact(name, self._view(head, task))

    def number(self, value: int | str) -> int:
        text = self.resolve(value)
        if not text.isdigit():
            raise UserError(f"'{value}' is '{text}', which is not a whole number", hint="set it with --set NAME=NUMBER")
        return int(text)

    def unmet_needs(self, needs: tuple[str, ...]) -> list[str]:
        return [need for need in needs if not self._met(need)]

    # -- settings

    def value(self, name: str) -> str:
        if name in self.settings:
            return self.settings[name]
        setting = self.flow.settings.get(name)
        return setting.default if setting else ""

    def is_given(self, name: str) -> bool:
        return name in self.facts.settings

    def setting_to_ask(self, name: str) -> Setting | None:
        """None: the setting has a value, or its `when` does not hold."""
        setting = self.flow.settings[name]
        if self.is_given(name) or not holds(setting.when, self.fact):
            return None
        return setting

    def resolve(self, value: int | str) -> str:
        text = str(value)
        return self.value(text[1:]) if text.startswith("$") else text

    # -- stages

    def is_summed_up(self, name: str, phase: str) -> bool:
        """Whether agents of a phase get this artifact by its path: it was made before the last summary."""
        compact, held = self.flow.compact, self.artifacts.held.get(name)
        if compact is None or held is None or not self.path(name):
            return False
        maker = held.producer.split("/")[0].split("+")[0].split("#")[0]
        if maker == phase or all(maker != one.id for one in self.flow.all_phases()):
            return False
        if self.resolve(compact.between_phases) == "true":
            return True
        return self.resolve(compact.between_stages) == "true" and self.flow.stage_of(maker) != self.flow.stage_of(phase)

    def needed_files(self, names: Collection[str]) -> dict[str, str]:
        """The artifacts in force for an agent, by path. `names`: those that its call uses.

        With summaries, an agent gets only what it uses, and the summaries.
        """
        held, compact = self.artifacts.held, self.flow.compact
        parts = [*(stage.id for stage in self.flow.stages), *(one.id for one in self.flow.all_phases())]
        summaries = {compact.artifact(of) for of in parts} if compact else ()
        known = [name for name in held if compact is None or name in names or name in summaries]
        return {path: held[name].content for name in known if (path := self.path(name))}

    # -- texts and paths

    def content(self, name: str, task: str = "") -> str | None:
        """The content of the request, or of an artifact; `task` as in `RunArtifacts.content`."""
        return self.facts.request if name == "request" else self.artifacts.content(name, task)

    def refine(self, request: str) -> None:
        """Replace the request with the wording that a person confirmed."""
        self.original = self.facts.request
        self.facts = replace(self.facts, request=request)

    def path(self, name: str) -> str:
        template = self.artifacts.artifact(name).path
        return template.format_map(self.names()) if template else ""

    def progress_path(self) -> str:
        return self.flow.progress.format_map(self.names())

    def names(self) -> dict[str, str]:
        """The placeholders of paths and branch names."""
        facts = self.facts
        return {"slug": facts.slug, "date": facts.date, "id8": facts.id[:8], "session": f"{facts.date}-{facts.slug}"}

    # -- helpers

    def _view(self, artifact: str, task: Task | None) -> FactView:
        names = {*self.flow.settings, *self.settings}
        return FactView(
            settings={name: self.value(name) for name in names},
            mode=self.mode,
            artifacts={artifact: self.artifacts.data(artifact)} if artifact in self.flow.artifacts else {},
            task=task.to_json() if task else None,
            roles_ran=frozenset(self.roles_ran),
        )

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
                return True  # a pending question keeps the machine at its phase
            case ["criteria", "met"]:
                acceptance = self.artifacts.data("acceptance") if "acceptance" in self.flow.artifacts else None
                criteria = acceptance.get("criteria") if isinstance(acceptance, dict) else None
                return isinstance(criteria, list) and all(
                    isinstance(c, dict) and c.get("met") is True for c in criteria
                )
            case _:
                return False
