"""Names: well formed, used once, and known where they are used."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator

from windlass.conversion import Path
from windlass.errors import near
from windlass.flow.conditions import ENSURES
from windlass.flow.fault import FlowFault, phases_of, places, role_names
from windlass.flow.schema import Flow
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
    yield from _duplicate_ids([((*place.path, "id"), place.phase.id) for place in phases_of(flow)], "phases")
    yield from _duplicate_ids(
        [(("stages", index, "id"), stage.id) for index, stage in enumerate(flow.stages)], "stages"
    )
    for place in phases_of(flow):
        steps = [((*place.path, "steps", at, "id"), step.id) for at, step in enumerate(place.phase.task_steps())]
        yield from _duplicate_ids(steps, "steps")


def _duplicate_ids(named: list[tuple[Path, str]], what: str) -> Iterator[FlowFault]:
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
    # The first phase must not be reserved for a route.
    begun = {flow.phases[0].id} if flow.phases and not flow.modes else set()
    begun |= {ids[0] for ids in flow.modes.values() if ids} | {s.phases[0].id for s in flow.stages if s.phases}
    for place in places(flow):
        first_step = place.inside is not None and place.inside.task_steps()[0] is place.phase
        if place.phase.via and (first_step or (place.inside is None and place.phase.id in begun)):
            yield FlowFault((*place.path, "via"), f"'{place.phase.id}' comes first, so it cannot be `via: route`")
    known = {place.phase.id for place in phases_of(flow)}
    for mode, ids in flow.modes.items():
        entries: list[tuple[Path, str]] = [(("modes", mode, index), id) for index, id in enumerate(ids)]
        if not entries:
            yield FlowFault(("modes", mode), f"the mode '{mode}' has no phases")
        yield from _unknown(entries, known, "phase")
        yield from _duplicate_ids(entries, f"entries of mode '{mode}'")
    yield from _unknown(((("must_run", mode), mode) for mode in flow.must_run if mode), set(flow.modes), "mode")
    setting = flow.settings.get("mode")
    if flow.modes and (setting is None or set(setting.options) != set(flow.modes)):
        names = ", ".join(flow.modes)
        yield FlowFault(("modes",), f"a flow with modes needs a setting 'mode' with its modes as options: {names}")


def unknown_roles(flow: Flow, roles: Collection[str]) -> Iterator[FlowFault]:
    for place in places(flow):
        yield from _unknown(role_names(place), roles, "role")
    for mode, names in flow.must_run.items():
        yield from _unknown(((("must_run", mode, index), name) for index, name in enumerate(names)), roles, "role")


def unknown_contracts(flow: Flow, contracts: Collection[str]) -> Iterator[FlowFault]:
    named = ((("artifacts", name, "contract"), artifact.contract) for name, artifact in flow.artifacts.items())
    yield from _unknown((pair for pair in named if pair[1]), contracts, "contract")
    of_reviews = (((*place.path, "contract"), getattr(place.phase, "contract", "")) for place in places(flow))
    yield from _unknown((pair for pair in of_reviews if pair[1]), contracts, "contract")


def unknown_references(flow: Flow) -> Iterator[FlowFault]:
    tasks_phases = {place.phase.id for place in phases_of(flow) if place.phase.OWN_SLOTS}
    for place in places(flow):
        in_task = place.inside is not None or place.phase.OWN_SLOTS
        given = GIVEN_INPUTS if in_task else GIVEN_INPUTS - {"task"}
        known: dict[str, tuple[Collection[str], str]] = {
            "output": (flow.artifacts, "artifact"),
            "artifact": (flow.artifacts, "artifact"),
            "input": (set(flow.artifacts) | given | findings_names(flow), "input"),
            "question": (flow.questions, "question"),
            "setting": (flow.settings, "setting"),
            "tasks phase": (tasks_phases, "tasks phase"),
        }
        for one in place.phase.references():
            yield from _unknown([((*place.path, *one.path), one.name)], *known[one.what])
    for name, artifact in flow.artifacts.items():
        rules = ((("artifacts", name, "ensure", index), rule) for index, rule in enumerate(artifact.ensure))
        yield from _unknown(rules, ENSURES, "rule")


def findings_names(flow: Flow) -> set[str]:
    return {f"{place.phase.id}.findings" for place in places(flow) if place.phase.HAS_FINDINGS}


def unproduced_artifacts(flow: Flow) -> Iterator[FlowFault]:
    made = {one.name for place in places(flow) for one in place.phase.references() if one.what == "output"}
    for name, artifact in flow.artifacts.items():
        if name not in made and not artifact.given and artifact.kind != "diff":
            yield FlowFault(
                ("artifacts", name), f"nothing produces the artifact '{name}'", "an `out:`, or `given: true`"
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
