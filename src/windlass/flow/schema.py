"""A flow as data. *YAML coordinates, code computes, agents judge.*"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, Union

from windlass.conversion import Before, Parser
from windlass.kinds import KINDS
from windlass.kinds.routes import Target
from windlass.kinds.spec import Count, FlowStruct, Names, Number, PhaseSpec
from windlass.kinds.visit_cost import When

if TYPE_CHECKING:
    Phase: TypeAlias = PhaseSpec
else:
    # One of the registered kinds, selected by its `kind`.
    Phase = Union[tuple(kind.spec for kind in KINDS.values())]  # noqa: UP007


NO_SETTINGS: Mapping[str, str] = MappingProxyType({})


class Setting(FlowStruct, frozen=True, kw_only=True):
    """A value of the flow: from --set, from config, from the person, or its default; in that order."""

    ask: str = ""
    """The question for it, when an ask phase names it."""
    type: Literal["str", "int", "bool", "choice", "role"] = "str"
    options: dict[str, str] = {}
    """Key -> its meaning; the type is then `choice`."""
    default: str = ""
    """Used when no other value is given."""
    min: Number = 1
    """The least value of an `int`."""
    when: When = {}
    """Asked only if these facts hold."""


def _setting(value: Any) -> Any:
    if isinstance(value, dict):
        value = dict(value)
        if value.get("options") and "type" not in value:
            value["type"] = "choice"
        if isinstance(value.get("default"), bool):
            value["default"] = str(value["default"]).lower()
    return value


class Artifact(FlowStruct, frozen=True, kw_only=True):
    """A declared output, stored by content."""

    kind: Literal["text", "json", "file", "dir", "diff"]
    """Its type; the engine makes a `diff`."""
    path: str = ""
    """Its path in the working directory, with the placeholders {date} and {slug}."""
    contract: str = ""
    """The contract of its content."""
    ensure: tuple[str, ...] = ()
    """Named rules for its content."""
    commit: bool = False
    """The engine commits it on the run's tip."""
    given: bool = False
    """Supplied when the run starts; no phase has to produce it."""
    per: Literal["", "task"] = ""


def _target(value: Any) -> Target:
    if not isinstance(value, str):
        raise ValueError("a target is a word such as next, stop or a phase's id")  # noqa: TRY004
    return Target.parse(value)


class QuestionSpec(FlowStruct, frozen=True, kw_only=True):
    """A question of the flow: each option is a route."""

    text: str
    """The text, with the placeholders {task.title} and {reason}."""
    options: dict[str, Annotated[Target, Parser(_target)]]
    """Key -> target."""
    id: str = ""
    title: str = ""
    """The heading of its dialog."""
    labels: dict[str, str] = {}
    """Key -> its label; also accepted as an answer."""
    show: Names = ()
    """Shown to the person before the question: findings, titles of a plan."""
    comment: str = ""
    """optional | required | required-unless-OPTION | editor"""
    mandatory: bool = False
    """--yes does not answer it unless it names it."""
    yes: str = ""
    """The answer of --yes; it never leads back."""
    aliases: dict[str, str] = {}
    """Other word -> key."""
    per: Literal["", "task"] = ""
    """`task`: the check ensures that only steps of a task ask it."""
    default: str = ""
    """The answer of an empty line."""


class Restarts(FlowStruct, frozen=True, kw_only=True):
    max: Count = 3
    """How often each stage may be restarted."""
    then: Annotated[Target, Parser(_target)]
    """The target after that."""
    code: str = "keep"
    """keep | reset | $setting: whether the code of the restarted stages stays. Code of a reset is kept under a ref."""


class Compaction(FlowStruct, frozen=True, kw_only=True):
    """Summaries of what is done. Prompts then name the files of earlier work instead of containing them."""

    between_stages: str = "true"
    """true | false | $setting: a summary of each stage; later stages get the files that they need by name."""
    between_phases: str = "false"
    """The same after each phase."""
    path: str
    """The path of a summary, with the placeholder {of}: the stage or the phase."""

    def artifact(self, of: str) -> str:
        """The name of the artifact with the summary of a stage or a phase."""
        return f"summary-{of}"


class SourceSpec(FlowStruct, frozen=True, kw_only=True):
    sync: Literal["fetch", "none"] = "none"
    labels: tuple[str, ...] = ()


class Stage(FlowStruct, frozen=True, kw_only=True):
    id: str
    """Its name in routes."""
    when: When = {}
    """The stage is skipped if these facts do not hold."""
    phases: tuple[Phase, ...]
    """In order."""


class Flow(FlowStruct, frozen=True, kw_only=True):
    flow: str
    """Its name."""
    about: str
    """One line for `windlass flow list`."""
    branch: str = "windlass/{slug}-{id8}"
    """The run's branch, with the placeholders {slug}, {id8}, {date} and {n}."""
    agent_branch: str = ""
    """A branch in the engine's repository for each agent, at the task it worked on last, with the placeholders {slug},
    {id8}, {date} and {n}."""
    tdd: Literal["required", "preserve", "off"] = "off"
    """Whether code must come with tests."""
    over_budget: Literal["stop", "ask"] = "stop"
    """What happens at a reached limit."""
    progress: str = ""
    """The path of the progress page, with the placeholders {date} and {slug}."""
    projection: Literal["none", "superteam-workflow", "stages"] = "none"
    """State files for other tools: `superteam-workflow` writes `.superteam-workflow.json`, `stages` writes
    `.agents/tmp/state.json`."""
    instructions: Names = ()
    """Files of the repository that every agent of the flow must follow, such as AGENTS.md."""
    source: SourceSpec = SourceSpec()
    settings: dict[str, Annotated[Setting, Before(_setting)]] = {}
    """Name -> setting."""
    artifacts: dict[str, Artifact] = {}
    """Name -> artifact."""
    questions: dict[str, QuestionSpec] = {}
    """Name -> question."""
    modes: dict[str, tuple[str, ...]] = {}
    """Name -> the list of its phases."""
    must_run: dict[str, tuple[str, ...]] = {}
    """Mode -> the roles that the need `roles ran` checks."""
    restarts: Restarts | None = None
    """How often a stage may be restarted, and the target after that."""
    compact: Compaction | None = None
    """Summaries between stages and phases."""
    phases: tuple[Phase, ...] = ()
    """In order."""
    stages: tuple[Stage, ...] = ()
    """Groups of phases, instead of phases."""

    def all_phases(self) -> tuple[Phase, ...]:
        return self.phases or tuple(phase for stage in self.stages for phase in stage.phases)

    def phase(self, id: str) -> Phase:
        return next(phase for phase in self.all_phases() if phase.id == id)

    def parts(self, settings: Mapping[str, str] = NO_SETTINGS) -> set[tuple[str, str]]:
        """Each role that a phase calls, with its profile. A profile that is a $setting has the setting's value."""
        found = {part for phase in self.all_phases() for part in phase.parts()}
        known = {f"${name}": settings.get(name, one.default) for name, one in self.settings.items()}
        return {(role, known.get(profile, profile)) for role, profile in found}

    def stage_of(self, phase_id: str) -> Stage | None:
        return next((stage for stage in self.stages if any(p.id == phase_id for p in stage.phases)), None)

    def sequence(self, mode: str = "") -> tuple[Phase, ...]:
        """The phases in order; a mode has its own list."""
        if mode and mode in self.modes:
            return tuple(self.phase(id) for id in self.modes[mode])
        return self.all_phases()
