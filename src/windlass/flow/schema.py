"""A flow as data. *YAML coordinates, code computes, agents judge.*"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, Union

from windlass.conversion import Before, Parser
from windlass.kinds import KINDS
from windlass.kinds.routes import Target
from windlass.kinds.spec import Count, FlowStruct, Names, PhaseSpec
from windlass.kinds.visit_cost import When

if TYPE_CHECKING:
    Phase: TypeAlias = PhaseSpec
else:
    # One of the registered kinds, told apart by its `kind`.
    Phase = Union[tuple(kind.spec for kind in KINDS.values())]  # noqa: UP007


class Setting(FlowStruct, frozen=True, kw_only=True):
    """A value the flow is run with: from --set, from config, from the person, else its default; in that order."""

    ask: str = ""
    """The question that asks for it, where an ask phase names it."""
    type: Literal["str", "int", "bool", "choice"] = "str"
    options: dict[str, str] = {}
    """Key -> what it means; the type is then `choice`."""
    default: str = ""
    """Used when nobody gives another."""
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
    """What it is; a `diff` is made by the engine."""
    path: str = ""
    """Where it lies in the working directory; {date} and {slug} are filled in."""
    contract: str = ""
    """The form its content must have."""
    ensure: tuple[str, ...] = ()
    """Named rules that its content must meet."""
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
    """What is asked; {task.title} and {reason} are filled in."""
    options: dict[str, Annotated[Target, Parser(_target)]]
    """Key -> target."""
    id: str = ""
    title: str = ""
    """The heading of its dialog."""
    labels: dict[str, str] = {}
    """Key -> how it is shown; also accepted as an answer."""
    show: Names = ()
    """What the person sees before it: findings, titles of a plan."""
    comment: str = ""
    """optional | required | required-unless-OPTION | editor"""
    mandatory: bool = False
    """--yes does not answer it unless it is named."""
    yes: str = ""
    """The answer of --yes; it never leads back."""
    aliases: dict[str, str] = {}
    """Other word -> key."""
    per: Literal["", "task"] = ""
    """`task`: the check makes sure that only steps of a task ask it."""
    default: str = ""
    """The answer of an empty line."""


class Restarts(FlowStruct, frozen=True, kw_only=True):
    max: Count = 3
    then: Annotated[Target, Parser(_target)]


class SourceSpec(FlowStruct, frozen=True, kw_only=True):
    sync: Literal["fetch", "none"] = "none"
    labels: tuple[str, ...] = ()


class Stage(FlowStruct, frozen=True, kw_only=True):
    id: str
    """Its name in routes."""
    when: When = {}
    """Left out if these facts do not hold."""
    phases: tuple[Phase, ...]
    """In order."""


class Flow(FlowStruct, frozen=True, kw_only=True):
    flow: str
    """Its name."""
    about: str
    """One line for `windlass flow list`."""
    branch: str = "windlass/{slug}-{id8}"
    """The run's branch; {slug}, {id8}, {date} and {n} are filled in."""
    agent_branch: str = ""
    """A branch in the engine's repository for each agent, at the task it worked on last; {slug}, {id8}, {date} and {n}
    are filled in."""
    tdd: Literal["required", "preserve", "off"] = "off"
    """Whether code must come with tests."""
    over_budget: Literal["stop", "ask"] = "stop"
    """What a limit that is reached leads to."""
    progress: str = ""
    """Where the page that says how far the run is lies; {date} and {slug} are filled in."""
    projection: Literal["none", "superteam-workflow"] = "none"
    """Files that other tools read the run's state from: `superteam-workflow` writes `.superteam-workflow.json`."""
    instructions: Names = ()
    """Files of the repository that every agent of the flow is told to follow, as AGENTS.md."""
    source: SourceSpec = SourceSpec()
    settings: dict[str, Annotated[Setting, Before(_setting)]] = {}
    """Name -> setting."""
    artifacts: dict[str, Artifact] = {}
    """Name -> artifact."""
    questions: dict[str, QuestionSpec] = {}
    """Name -> question."""
    modes: dict[str, tuple[str, ...]] = {}
    """Name -> the list of phases to go through instead."""
    must_run: dict[str, tuple[str, ...]] = {}
    """Mode -> the roles that the need `roles ran` asks for."""
    restarts: Restarts | None = None
    """How often a stage may be restarted, and what then."""
    phases: tuple[Phase, ...] = ()
    """In order."""
    stages: tuple[Stage, ...] = ()
    """Groups of phases, instead of phases."""

    def all_phases(self) -> tuple[Phase, ...]:
        return self.phases or tuple(phase for stage in self.stages for phase in stage.phases)

    def phase(self, id: str) -> Phase:
        return next(phase for phase in self.all_phases() if phase.id == id)

    def stage_of(self, phase_id: str) -> Stage | None:
        return next((stage for stage in self.stages if any(p.id == phase_id for p in stage.phases)), None)

    def sequence(self, mode: str = "") -> tuple[Phase, ...]:
        """The phases in the order they are gone through; a mode names its own list."""
        if mode and mode in self.modes:
            return tuple(self.phase(id) for id in self.modes[mode])
        return self.all_phases()
