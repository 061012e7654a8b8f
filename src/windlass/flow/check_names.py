"""Names: well formed, used once, and known where they are used."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator

from windlass.errors import near
from windlass.flow.conditions import ENSURES, FALLBACKS
from windlass.flow.fault import FlowFault, PhasePlace, calls_of, phases_of, places, role_names
from windlass.flow.schema import Flow
from windlass.flow.strict_yaml import Path
from windlass.kinds import ask, dialogue, produce, report, review, tasks
from windlass.kinds.routes import To
from windlass.model import is_id

RESERVED = frozenset(to.value for to in To) | {"land"}
GIVEN_INPUTS = frozenset({"request", "reason", "task", "findings"})


def bad_ids(flow: Flow) -> Iterator[FlowFault]:
    named: list[tuple[Path, str]] = [(("flow",), flow.flow)]
    named += [((*place.path, "id"), place.phase.id) for place in places(flow)]
    named += [(("stages", index, "id"), stage.id) for index, stage in enumerate(flow.stages)]
    named += [((kind, name), name) for kind in ("settings", "artifacts", "questions") for name in getattr(flow, kind)]
    for path, name in named:
        if not is_id(name):
            yield FlowFault(path, f"'{name}' is not a valid id", "letters, digits, '.', '_' and '-', at most 64")
        elif name in RESERVED and path[0] in ("phases", "stages"):
            yield FlowFault(path, f"'{name}' is a word of the flow language and cannot be an id")
    yield from _twice([((*place.path, "id"), place.phase.id) for place in phases_of(flow)], "phases")
    yield from _twice([(("stages", index, "id"), stage.id) for index, stage in enumerate(flow.stages)], "stages")
    for place in phases_of(flow):
        if isinstance(place.phase, tasks.TasksSpec):
            steps = [((*place.path, "steps", at, "id"), step.id) for at, step in enumerate(place.phase.steps)]
            yield from _twice(steps, "steps")


def _twice(named: list[tuple[Path, str]], what: str) -> Iterator[FlowFault]:
    count = Counter(name for _, name in named)
    seen: set[str] = set()
    for path, name in named:
        if name in seen:
            yield FlowFault(path, f"two {what} have the id '{name}'")
        seen.add(name) if count[name] > 1 else None


def wrong_structure(flow: Flow) -> Iterator[FlowFault]:
    if bool(flow.phases) == bool(flow.stages):
        yield FlowFault((), "a flow has either phases or stages")
    if flow.modes and flow.stages:
        yield FlowFault(("modes",), "modes are lists of phases; a flow with stages has none")
    yield from (
        FlowFault(("stages", index), f"the stage '{stage.id}' has no phases")
        for index, stage in enumerate(flow.stages)
        if not stage.phases
    )
    yield from _wrong_firsts(flow)
    known = {place.phase.id for place in phases_of(flow)}
    for mode, ids in flow.modes.items():
        yield from _unknown(((("modes", mode, index), id) for index, id in enumerate(ids)), known, "phase")
        yield from _twice([(("modes", mode, index), id) for index, id in enumerate(ids)], f"entries of mode '{mode}'")
    yield from _unknown(((("must_run", mode), mode) for mode in flow.must_run if mode), set(flow.modes), "mode")
    yield from _wrong_mode_setting(flow)


def _wrong_firsts(flow: Flow) -> Iterator[FlowFault]:
    """What is begun with must not be reserved for a route."""
    begun = {flow.phases[0].id} if flow.phases and not flow.modes else set()
    begun |= {ids[0] for ids in flow.modes.values() if ids} | {s.phases[0].id for s in flow.stages if s.phases}
    for place in places(flow):
        first_step = place.inside is not None and place.inside.steps[0] is place.phase
        if place.phase.via and (first_step or (place.inside is None and place.phase.id in begun)):
            yield FlowFault((*place.path, "via"), f"'{place.phase.id}' comes first, so it cannot be `via: route`")
    for mode, ids in flow.modes.items():
        if not ids:
            yield FlowFault(("modes", mode), f"the mode '{mode}' has no phases")


def _wrong_mode_setting(flow: Flow) -> Iterator[FlowFault]:
    if not flow.modes:
        return
    setting = flow.settings.get("mode")
    if setting is None or set(setting.options) != set(flow.modes):
        names = ", ".join(flow.modes)
        yield FlowFault(("modes",), f"a flow with modes has a setting 'mode' whose options are its modes: {names}")


def unknown_roles(flow: Flow, roles: Collection[str]) -> Iterator[FlowFault]:
    for place in places(flow):
        yield from _unknown(role_names(place), roles, "role")
    for mode, names in flow.must_run.items():
        yield from _unknown(((("must_run", mode, index), name) for index, name in enumerate(names)), roles, "role")


def unknown_contracts(flow: Flow, contracts: Collection[str]) -> Iterator[FlowFault]:
    named = ((("artifacts", name, "contract"), artifact.contract) for name, artifact in flow.artifacts.items())
    yield from _unknown((pair for pair in named if pair[1]), contracts, "contract")


def unknown_references(flow: Flow) -> Iterator[FlowFault]:
    for place in places(flow):
        yield from _unknown(_outputs(place), flow.artifacts, "artifact")
        yield from _unknown(_subjects(place), flow.artifacts, "artifact")
        yield from _unknown(_inputs(place), _input_names(flow, place), "input")
        yield from _unknown(_questions(place), flow.questions, "question")
        yield from _unknown(_settings(place), flow.settings, "setting")
        yield from _unknown(_completes(place), _task_phases(flow), "tasks phase")
        yield from _unknown(_fallbacks(place), FALLBACKS, "fallback")
    for name, artifact in flow.artifacts.items():
        rules = ((("artifacts", name, "ensure", index), rule) for index, rule in enumerate(artifact.ensure))
        yield from _unknown(rules, ENSURES, "rule")


def _outputs(place: PhasePlace) -> Iterator[tuple[Path, str]]:
    for path, call in calls_of(place):
        yield from (((*path, "out"), name) for name in call.out)
    own = getattr(place.phase, "out", ())
    for name in (own,) if isinstance(own, str) else own:
        if name:
            yield (*place.path, "out"), name
    if isinstance(place.phase, dialogue.DialogueSpec) and place.phase.log:
        yield (*place.path, "log"), place.phase.log
    if isinstance(place.phase, report.ReportSpec):
        yield from (((*place.path, "to"), name) for name in place.phase.artifacts_out())


def _subjects(place: PhasePlace) -> Iterator[tuple[Path, str]]:
    if isinstance(place.phase, review.ReviewSpec):
        yield (*place.path, "of"), place.phase.of
    if isinstance(place.phase, tasks.TasksSpec):
        yield (*place.path, "from"), place.phase.source


def _inputs(place: PhasePlace) -> Iterator[tuple[Path, str]]:
    for path, call in calls_of(place):
        yield from (((*path, "in"), name) for name in call.ins)
    yield from (((*place.path, "in"), name) for name in getattr(place.phase, "ins", ()))


def _input_names(flow: Flow, place: PhasePlace) -> set[str]:
    in_task = place.inside is not None or isinstance(place.phase, tasks.TasksSpec)
    given = GIVEN_INPUTS if in_task else GIVEN_INPUTS - {"task"}
    return set(flow.artifacts) | given | findings_names(flow)


def findings_names(flow: Flow) -> set[str]:
    return {f"{place.phase.id}.findings" for place in places(flow) if isinstance(place.phase, review.ReviewSpec)}


def _questions(place: PhasePlace) -> Iterator[tuple[Path, str]]:
    for key in ("question", "feedback", "only"):
        name = getattr(place.phase, key, "")
        if name:
            yield (*place.path, key), name


def _settings(place: PhasePlace) -> Iterator[tuple[Path, str]]:
    if isinstance(place.phase, ask.AskSpec):
        yield from (((*place.path, "settings", index), name) for index, name in enumerate(place.phase.settings))


def _completes(place: PhasePlace) -> Iterator[tuple[Path, str]]:
    if isinstance(place.phase, review.ReviewSpec) and place.phase.completes:
        yield (*place.path, "completes"), place.phase.completes


def _fallbacks(place: PhasePlace) -> Iterator[tuple[Path, str]]:
    if isinstance(place.phase, produce.ProduceSpec) and place.phase.fallback:
        yield (*place.path, "fallback"), place.phase.fallback


def _task_phases(flow: Flow) -> set[str]:
    return {place.phase.id for place in phases_of(flow) if isinstance(place.phase, tasks.TasksSpec)}


def unproduced_artifacts(flow: Flow) -> Iterator[FlowFault]:
    made = {name for place in places(flow) for _, name in _outputs(place)}
    for name, artifact in flow.artifacts.items():
        if name not in made and not artifact.given and artifact.kind != "diff":
            yield FlowFault(
                ("artifacts", name), f"nobody produces the artifact '{name}'", "an `out:`, or `given: true`"
            )
        if name in made and artifact.kind == "diff":
            yield FlowFault(("artifacts", name), f"the diff '{name}' is made by the engine, not by a phase")


def wrong_needs(flow: Flow) -> Iterator[FlowFault]:
    for place in places(flow):
        for index, need in enumerate(place.phase.needs):
            yield from _wrong_need(flow, (*place.path, "needs", index), need)


def _wrong_need(flow: Flow, path: Path, need: str) -> Iterator[FlowFault]:
    match need.split():
        case ["file", name]:
            yield from _unknown([(path, name)], flow.artifacts, "artifact")
        case ["answered", name]:
            yield from _unknown([(path, name)], flow.questions, "question")
        case ["answered", name, option]:
            yield from _unknown([(path, name)], flow.questions, "question")
            options = flow.questions[name].options if name in flow.questions else {option: None}
            yield from _unknown([(path, option)], options, "option")
        case ["criteria", "met"] | ["roles", "ran"] | ["no", "pending", "question"]:
            pass
        case _:
            known = "file A, answered Q [value], criteria met, roles ran, no pending question"
            yield FlowFault(path, f"'{need}' is not a need", f"known: {known}")


def _unknown(named: Iterable[tuple[Path, str]], known: Collection[str], what: str) -> Iterator[FlowFault]:
    for path, name in named:
        if name not in known:
            yield FlowFault(path, f"there is no {what} '{name}'", near(name, known))
