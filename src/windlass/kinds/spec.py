"""How a phase is written in a flow file, and what the rest of Windlass must know of it.

Checks, drawings, simulations and the engine ask a phase through the methods of `PhaseSpec`. They name no kind.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, Protocol, TypeAlias

from msgspec import Struct, field

from windlass.conversion import Before, Parser, Path
from windlass.kinds.routes import Route, Target, To
from windlass.kinds.visit_cost import Sizes, VisitCost, When


class FlowStruct(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of everything read from a flow file: frozen, unknown keys refused."""


def _one_or_many(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _setting_or_int(value: Any) -> Any:
    if isinstance(value, str) and value.startswith("$"):
        return value
    return _whole_number(value, "neither a whole number nor a $setting")


def _whole_number(value: Any, fault: str = "not a whole number") -> int:
    """Flow files hold texts: their YAML knows no numbers."""
    if not isinstance(value, str) or not (value.isascii() and value.isdecimal()):
        raise ValueError(f"'{value}' is {fault}")
    return int(value)


Names: TypeAlias = Annotated[tuple[str, ...], Before(_one_or_many)]
Routes: TypeAlias = dict[str, Annotated[Route, Parser(Route.of)]]
Count: TypeAlias = Annotated[int | str, Parser(_setting_or_int)]
"""A whole number, or a $setting that holds one."""
Number: TypeAlias = Annotated[int, Parser(_whole_number)]


class Label(FlowStruct, frozen=True, kw_only=True):
    """Names that a document demands for entering, leaving and repairing."""

    enter: str = ""
    done: str = ""
    fix: str = ""


def _label(value: Any) -> Any:
    return {"enter": value} if isinstance(value, str) else value


class CallSpec(FlowStruct, frozen=True, kw_only=True):
    """One agent call: who, with what, for what."""

    role: str
    """Who is called."""
    profile: str = ""
    """Use that role's settings (agent, model, tools) with this role's prompt."""
    guard: bool | str = ""
    """`off`: without the TDD guard, although the profile has one."""
    flags: tuple[str, ...] = ()
    """Passed to the role's prompt."""
    when: When = {}
    """Made only if these facts hold."""
    ins: Names = field(default=(), name="in")
    """What the prompt is given: request, task, artifacts."""
    out: Names = ()
    """Artifacts it has to make."""
    otherwise: str = field(default="", name="or")
    """The role that stands in when the first is not available."""
    optional: bool = False
    """A role that no agent plays is left out instead of being an error."""
    criteria: str = ""
    """A file with the criteria a reviewer judges by."""
    instructions: Names = ()
    """Files of the repository that it is told to follow, besides the flow's."""


class Reference(Struct, frozen=True):
    """A name that a phase uses and that must exist elsewhere."""

    what: Literal["output", "artifact", "input", "question", "setting", "tasks phase"]
    path: Path
    """Below the phase."""
    name: str


class FlowView(Protocol):
    """What a phase may know of its flow."""

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
    """What every phase, and every step of a task, has."""

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
        """Who is called: each role with the profile that it is called with, '' for its own settings."""
        return {(role, "") for role in self.roles()}

    # -- what is declared once for all phases of a kind

    OUTCOMES: ClassVar[tuple[str, ...]] = ()
    """All that a phase of this kind can end with."""
    OWN_SLOTS: ClassVar[bool] = False
    """It has tasks, and these work in slots of their own."""
    ASKS: ClassVar[bool] = False
    """Its work is a question to a person."""
    REPORTS_FAILURE: ClassVar[bool] = False
    """Entered by a route only, it reports what failed before; a retry goes back to that."""
    HAS_FINDINGS: ClassVar[bool] = False
    """What it found can be used as `ID.findings`."""
    ANNOUNCES_ITSELF: ClassVar[bool] = False
    """Its own events say that it began."""
    RUN_TEMPLATES: ClassVar[tuple[str, ...]] = ()
    """Fields in which the run's names are filled in, as {slug}."""

    # -- what depends on how the phase is written

    def outcomes(self, flow: FlowView) -> tuple[str, ...]:
        """What this phase can end with. Each but `ok` and `done` must be routed."""
        return self.OUTCOMES

    def optional_outcomes(self, flow: FlowView) -> tuple[str, ...]:
        """What a contract or a failure may add. A flow may leave these unrouted."""
        return ()

    def own_routes(self, flow: FlowView) -> dict[str, Route] | None:
        """Where its outcomes lead, if `on` does not say so."""
        return None

    def agent_calls(self) -> Iterator[tuple[Path, CallSpec]]:
        yield from ()

    def role_names(self) -> Iterator[tuple[Path, str]]:
        for path, call in self.agent_calls():
            names = (("role", call.role), ("profile", call.profile), ("or", call.otherwise))
            yield from (((*path, key), name) for key, name in names if name)

    def references(self) -> Iterator[Reference]:
        for path, call in self.agent_calls():
            yield from (Reference("output", (*path, "out"), name) for name in call.out)
            yield from (Reference("input", (*path, "in"), name) for name in call.ins)

    def word_fields(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Fields that hold a word or a $setting, with the words that fit."""
        yield from ()

    def disagreements(self, flow: FlowView) -> Iterator[str]:
        """What is wrong with the fields taken together."""
        yield from ()

    def visit_cost(self, sizes: Sizes) -> VisitCost:
        """Dispatches and questions of one visit, fewest and most, without its tasks and the questions of its routes."""
        return VisitCost()

    def summary(self) -> str:
        """What a drawing shows after the kind."""
        return listed(name for _, name in self.role_names())

    def task_steps(self) -> tuple[PhaseSpec, ...]:
        """What each task goes through."""
        return ()

    def task_list(self) -> str:
        """The artifact that lists its tasks."""
        return ""

    def landing(self) -> Land | None:
        """How a task's commits join the run's tip; None for a phase without tasks."""
        return None

    def retries_tasks(self, sizes: Sizes) -> bool:
        """A task that failed may be done once more."""
        return False

    def asked_question(self) -> str:
        """The question of the flow whose answers are its routes."""
        return ""

    def asked_settings(self) -> tuple[str, ...]:
        return ()

    def bounded_by_person(self) -> bool:
        """A loop through its question ends when the person wants it to end."""
        return False

    def loops_with_person(self) -> bool:
        """A person can send its work back as often as they like."""
        return False

    def can_fix(self) -> bool:
        """A route `fix` leads to its fixer."""
        return False

    def judges_changes(self) -> bool:
        """It reviews the code that changed."""
        return False

    def completes_tasks_of(self) -> str:
        """The phase whose tasks a pass of this one completes."""
        return ""

    def answer_names(self) -> set[str]:
        """Names, besides the flow's questions, under which answers may be given beforehand."""
        return set()


class Land(FlowStruct, frozen=True, kw_only=True):
    OUTCOMES: ClassVar[tuple[str, ...]] = ("conflict", "red", "unproved")

    checks: Literal["all", "none"] = "all"
    """Whether the configured checks must pass on the joined tree."""
    fixer: CallSpec | None = None
    """Who mends a conflict, red checks or a missing proof."""
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
        return fixed_by(self.fixer, self.max)


def words_of(flow: FlowView, word: str) -> tuple[str, ...]:
    """The words that a field can hold: itself, or what its $setting can be."""
    if not word.startswith("$"):
        return (word,)
    setting = flow.settings.get(word[1:])
    return tuple(setting.options) or (setting.default,) if setting else ()


def targets_of(flow: FlowView, route: Route) -> Iterator[Target]:
    """Where a route can lead in the end: through its count and through a question's answers."""
    for target in (route.target, route.then):
        if target is None:
            continue
        yield target
        question = flow.questions.get(target.arg) if target.to is To.ASK else None
        yield from question.options.values() if question else ()


DEFAULTED = frozenset({"ok", "done"})
"""Outcomes that lead to `next` unless the flow says otherwise."""


def routes_of(flow: FlowView, phase: PhaseSpec) -> dict[str, Route]:
    """Every outcome with where it leads, the defaults included."""
    own = phase.own_routes(flow)
    if own is not None:
        return own
    known = (*phase.outcomes(flow), *phase.optional_outcomes(flow))
    given = {name: route for name, route in phase.on.items() if name in known}
    return {name: Route(Target(To.NEXT)) for name in known if name in DEFAULTED} | given


def fixed_by(fixer: CallSpec | None, most: int | str) -> str:
    return f", fixed by {fixer.role}, at most {most} times" if fixer else ""


def listed(names: Iterator[str]) -> str:
    found = ", ".join(dict.fromkeys(names))
    return f"  {found}" if found else ""
