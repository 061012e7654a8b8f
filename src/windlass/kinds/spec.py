"""The spec of a phase in a flow file, and what the rest of Windlass must know about it.

Checks, graphs, simulations and the engine use the methods of `PhaseSpec`. They name no kind.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, Protocol, TypeAlias

from msgspec import Struct, field

from windlass.conversion import Before, Parser, Path
from windlass.kinds.routes import Route, Target, To
from windlass.kinds.visit_cost import Sizes, VisitCost, When


class FlowStruct(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of everything read from a flow file: frozen; unknown keys are refused."""


def _one_or_many(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _setting_or_int(value: Any) -> Any:
    if isinstance(value, str) and value.startswith("$"):
        return value
    return _whole_number(value, "neither a whole number nor a $setting")


def _whole_number(value: Any, fault: str = "not a whole number") -> int:
    """Values in flow files are texts: strict YAML has no numbers."""
    if not isinstance(value, str) or not (value.isascii() and value.isdecimal()):
        raise ValueError(f"'{value}' is {fault}")
    return int(value)


Names: TypeAlias = Annotated[tuple[str, ...], Before(_one_or_many)]
Routes: TypeAlias = dict[str, Annotated[Route, Parser(Route.of)]]
Count: TypeAlias = Annotated[int | str, Parser(_setting_or_int)]
"""A whole number, or a $setting that holds one."""
Number: TypeAlias = Annotated[int, Parser(_whole_number)]


class Label(FlowStruct, frozen=True, kw_only=True):
    """The labels that a document demands for entry, end and repair."""

    enter: str = ""
    done: str = ""
    fix: str = ""


def _label(value: Any) -> Any:
    return {"enter": value} if isinstance(value, str) else value


class CallSpec(FlowStruct, frozen=True, kw_only=True):
    """One agent call: the role, its inputs and its outputs."""

    role: str
    """The role to call."""
    profile: str = ""
    """Use that role's settings (agent, model, tools) with this role's prompt."""
    guard: bool | str = ""
    """`off`: no TDD guard, although the profile has one."""
    by: dict[str, dict[str, str]] = {}
    """{fact: {value: profile}}: the value of one fact, as `task.difficulty`, chooses the profile."""
    times: Count = 1
    """How often the call is made."""
    focus: tuple[str, ...] = ()
    """With `times`: the subject of each of the calls, in order. It is passed to the prompt."""
    per: Literal["", "finding"] = ""
    """For a fixer: `finding` calls it for each finding; many findings share calls, at most 10 in a round."""
    flags: tuple[str, ...] = ()
    """Passed to the role's prompt."""
    when: When = {}
    """The call is made only if these facts hold."""
    ins: Names = field(default=(), name="in")
    """Inputs of the prompt: request, task, artifacts."""
    out: Names = ()
    """Artifacts that the call must produce."""
    otherwise: str = field(default="", name="or")
    """The role to call when the first is not available."""
    optional: bool = False
    """Leave the call out when no agent plays the role. Otherwise that is an error."""
    criteria: str = ""
    """For a reviewer: the file with its criteria, `prompts/NAME.md` of the project, of the user or of Windlass."""
    instructions: Names = ()
    """Files of the repository that the agent must follow, in addition to those of the flow."""

    def profiles(self) -> tuple[str, ...]:
        """The profiles that the call can use: a name, '' for none, or a $setting."""
        return (self.profile, *(name for choices in self.by.values() for name in choices.values()))


class Reference(Struct, frozen=True):
    """A name that a phase uses and that must exist elsewhere."""

    what: Literal["output", "artifact", "input", "question", "setting", "tasks phase"]
    path: Path
    """Below the phase."""
    name: str


class FlowView(Protocol):
    """What a phase may know about its flow."""

    @property
    def settings(self) -> Mapping[str, Any]: ...

    @property
    def questions(self) -> Mapping[str, Any]: ...

    @property
    def artifacts(self) -> Mapping[str, Any]: ...

    @property
    def tdd(self) -> str: ...

    def all_phases(self) -> Sequence[PhaseSpec]: ...


class PhaseSpec(FlowStruct, frozen=True, kw_only=True, tag_field="kind"):
    """The fields of every phase and of every step of a task."""

    id: str
    """Its name in routes, keys and logs."""
    label: Annotated[Label, Before(_label)] = Label()
    """The name shown for it; {enter, done, fix} for different ones."""
    when: When = {}
    """{fact: value | [any of]}; all must hold, else the phase is skipped."""
    needs: tuple[str, ...] = ()
    """The gate: `file A` | `answered Q [value]` | `criteria met` | `roles ran` | `no pending question`."""
    on: Routes = {}
    """Outcome -> target, or {to, max, then}."""
    via: Literal["", "route"] = ""
    """Entered only by a route, never by falling through."""

    @property
    def kind(self) -> str:
        return str(self.__struct_config__.tag)

    def artifacts_in(self) -> set[str]:
        return set()

    def artifacts_out(self) -> set[str]:
        return set()

    def roles(self) -> set[str]:
        return set()

    def parts(self) -> set[tuple[str, str]]:
        """Each role that is called, with its profile; '' means the role's own settings. `Flow.parts` resolves a
        profile that is a $setting."""
        return {(role, "") for role in self.roles()}

    # -- declared once for all phases of a kind

    OUTCOMES: ClassVar[tuple[str, ...]] = ()
    """All outcomes of this kind."""
    OWN_SLOTS: ClassVar[bool] = False
    """The phase has tasks, and each task works in its own slot."""
    ASKS: ClassVar[bool] = False
    """The phase asks a person a question."""
    REPORTS_FAILURE: ClassVar[bool] = False
    """The phase reports an earlier failure when a route enters it; a retry goes back to the phase that failed."""
    HAS_FINDINGS: ClassVar[bool] = False
    """Its findings are available as `ID.findings`."""
    ANNOUNCES_ITSELF: ClassVar[bool] = False
    """Its own events say that it began."""
    RUN_TEMPLATES: ClassVar[tuple[str, ...]] = ()
    """Fields with placeholders of the run, as {slug}."""

    # -- depends on the fields of the phase

    def outcomes(self, flow: FlowView) -> tuple[str, ...]:
        """The outcomes of this phase. Each of them except `ok` and `done` must be routed."""
        return self.OUTCOMES

    def optional_outcomes(self, flow: FlowView) -> tuple[str, ...]:
        """Outcomes that a contract or a failure may add. A flow may leave these unrouted."""
        return ()

    def own_routes(self, flow: FlowView) -> dict[str, Route] | None:
        """The routes that the phase itself defines, for outcomes that are not in `on`."""
        return None

    def agent_calls(self) -> Iterator[tuple[Path, CallSpec]]:
        yield from ()

    def role_names(self) -> Iterator[tuple[Path, str]]:
        for path, call in self.agent_calls():
            names = [("role", call.role), ("or", call.otherwise), *(("by", name) for name in call.profiles()[1:])]
            # A setting names its role later.
            names += [("profile", call.profile)] if not call.profile.startswith("$") else []
            yield from (((*path, key), name) for key, name in names if name)

    def references(self) -> Iterator[Reference]:
        for path, call in self.agent_calls():
            yield from (Reference("output", (*path, "out"), name) for name in call.out)
            yield from (Reference("input", (*path, "in"), name) for name in call.ins)

    def word_fields(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Fields that hold a word or a $setting, with the allowed words."""
        yield from ()

    def disagreements(self, flow: FlowView) -> Iterator[str]:
        """Faults of the fields taken together."""
        yield from ()

    def visit_cost(self, sizes: Sizes) -> VisitCost:
        """Dispatches and questions of one visit, fewest and most, without its tasks and the questions of its routes."""
        return VisitCost()

    def summary(self) -> str:
        """The text after the kind in a graph."""
        return comma_list(name for _, name in self.role_names())

    def task_steps(self) -> tuple[PhaseSpec, ...]:
        """The steps of each task."""
        return ()

    def task_list(self) -> str:
        """The artifact that lists its tasks."""
        return ""

    def landing(self) -> Land | None:
        """How a task's commits join the run's tip; None for a phase without tasks."""
        return None

    def retries_tasks(self, sizes: Sizes) -> bool:
        """Whether a failed task may be repeated once."""
        return False

    def asked_question(self) -> str:
        """The question of the flow that routes this phase."""
        return ""

    def asked_settings(self) -> tuple[str, ...]:
        return ()

    def bounded_by_person(self) -> bool:
        """The person ends a loop through its question."""
        return False

    def loops_with_person(self) -> bool:
        """A person can send its work back any number of times."""
        return False

    def can_fix(self) -> bool:
        """A route `fix` leads to its fixer."""
        return False

    def judges_changes(self) -> bool:
        """It reviews changed code."""
        return False

    def completes_tasks_of(self) -> str:
        """The id of the tasks phase that a pass of this phase completes."""
        return ""

    def answer_names(self) -> set[str]:
        """Names in addition to the flow's questions for which answers may be given in advance."""
        return set()


class Land(FlowStruct, frozen=True, kw_only=True):
    OUTCOMES: ClassVar[tuple[str, ...]] = ("conflict", "red", "unproved")

    checks: Literal["all", "none"] = "all"
    """Whether the configured checks must pass on the joined tree."""
    fixer: CallSpec | None = None
    """The role that repairs a conflict, failed checks or a missing proof."""
    max: Count = 1
    """How often the fixer may try."""
    label: Annotated[Label, Before(_label)] = Label()
    on: Routes = {}
    """conflict, red and unproved -> target."""

    def outcomes(self, flow: FlowView) -> tuple[str, ...]:
        red = ("red",) if self.checks == "all" else ()
        unproved = ("unproved",) if flow.tdd != "off" else ()
        return ("conflict", *red, *unproved)

    def visit_cost(self, sizes: Sizes) -> VisitCost:
        return VisitCost(max_dispatches=sizes.number(self.max) if self.fixer else 0)

    def summary(self) -> str:
        return fixer_text(self.fixer, self.max)


def words_of(flow: FlowView, word: str) -> tuple[str, ...]:
    """The words that a field can hold: its own, or those of its $setting."""
    if not word.startswith("$"):
        return (word,)
    setting = flow.settings.get(word[1:])
    return tuple(setting.options) or (setting.default,) if setting else ()


def targets_of(flow: FlowView, route: Route) -> Iterator[Target]:
    """Every target that a route can lead to, through its count and through the answers of a question."""
    for target in (route.target, route.then):
        if target is None:
            continue
        yield target
        question = flow.questions.get(target.arg) if target.to is To.ASK else None
        yield from question.options.values() if question else ()


DEFAULTED = frozenset({"ok", "done"})
"""Outcomes that lead to `next` unless the flow says otherwise."""


def routes_of(flow: FlowView, phase: PhaseSpec) -> dict[str, Route]:
    """The route of every outcome, defaults included."""
    own = phase.own_routes(flow)
    if own is not None:
        return own
    known = (*phase.outcomes(flow), *phase.optional_outcomes(flow))
    given = {name: route for name, route in phase.on.items() if name in known}
    return {name: Route(Target(To.NEXT)) for name in known if name in DEFAULTED} | given


def fixer_text(fixer: CallSpec | None, most: int | str) -> str:
    return f", fixed by {fixer.role}, at most {most} times" if fixer else ""


def comma_list(names: Iterator[str]) -> str:
    found = ", ".join(dict.fromkeys(names))
    return f"  {found}" if found else ""
