"""Questions: complete, asked somewhere, and never answered automatically in a loop."""

from __future__ import annotations

from collections.abc import Iterator

from windlass.conversion import Path
from windlass.errors import near
from windlass.flow.check_names import findings_names
from windlass.flow.check_values import TASK_FIELDS, TEMPLATE
from windlass.flow.fault import FlowFault, PhasePlace, places
from windlass.flow.route_graph import all_edges, leads_back
from windlass.flow.schema import Flow, QuestionSpec
from windlass.kinds.routes import Route, To
from windlass.kinds.spec import routes_of
from windlass.model import is_id

TEXT_NAMES = frozenset({"role", "reason", "phase", "stage", "step", "n", "attempts", "request"})
PARTS = ("count", "titles", "path")
AUTOMATIC = ("yes", "default")


def wrong_questions(flow: Flow) -> Iterator[FlowFault]:
    for name, question in flow.questions.items():
        path: Path = ("questions", name)
        yield from _wrong_options(path, question)
        yield from _wrong_texts(flow, path, question)
        comment = question.comment
        kinds = ("", "optional", "required", "editor", *(f"required-unless-{key}" for key in question.options))
        if comment not in kinds:
            yield FlowFault((*path, "comment"), f"'{comment}' does not fit 'comment'", near(comment, kinds[1:]))
        askers = [place for place in places(flow) if name in questions_at(flow, place)]
        at_restart = flow.restarts is not None and flow.restarts.then.arg == name
        if not askers and not at_restart:
            yield FlowFault(path, f"the question '{name}' is never asked")
        outside = [place.phase.id for place in askers if place.inside is None and not place.phase.OWN_SLOTS]
        if question.per == "task" and outside:
            yield FlowFault((*path, "per"), f"'{name}' is asked per task, but '{outside[0]}' is no step of a task")


def _wrong_options(path: Path, question: QuestionSpec) -> Iterator[FlowFault]:
    if not question.options:
        yield FlowFault(path, "a question needs options")
    for key, target in question.options.items():
        if not is_id(key):
            yield FlowFault(
                (*path, "options", key), f"'{key}' cannot be an option's key", "letters, digits, '-' and '_'"
            )
        if target.to is To.ASK:
            yield FlowFault((*path, "options", key), "an answer cannot lead to another question")
    named = [((*path, field), getattr(question, field)) for field in AUTOMATIC]
    named += [((*path, "labels", key), key) for key in question.labels]
    named += [((*path, "aliases", alias), key) for alias, key in question.aliases.items()]
    for where, key in named:
        if key and key not in question.options:
            yield FlowFault(where, f"there is no option '{key}'", near(key, question.options))
    for alias in question.aliases.keys() & question.options.keys():
        yield FlowFault((*path, "aliases", alias), f"'{alias}' is an option already")


def _wrong_texts(flow: Flow, path: Path, question: QuestionSpec) -> Iterator[FlowFault]:
    known = set(TEXT_NAMES) | flow.settings.keys() | {f"{name}.{part}" for name in flow.artifacts for part in PARTS}
    known |= TASK_FIELDS if question.per == "task" else set()
    for key, text in (("text", question.text), ("title", question.title)):
        for name in TEMPLATE.findall(text):
            if name not in known:
                yield FlowFault((*path, key), f"there is nothing to put in for '{{{name}}}'", near(name, known))
    shown = flow.artifacts.keys() | findings_names(flow) | {"findings", "reason"}
    shown |= {f"{name}.{part}" for name in flow.artifacts for part in PARTS}
    for index, name in enumerate(question.show):
        if name not in shown:
            yield FlowFault((*path, "show", index), f"there is nothing to show as '{name}'", near(name, shown))


def questions_at(flow: Flow, place: PhasePlace) -> set[str]:
    """The questions that a phase or step can raise itself; a tasks phase raises those of its landing."""
    if place.phase.ASKS:
        return {place.phase.asked_question()}
    land = place.phase.landing()
    found: list[Route] = [*routes_of(flow, place.phase).values(), *(land.on.values() if land else ())]
    ends = [target for route in found for target in (route.target, route.then) if target]
    return {target.arg for target in ends if target.to is To.ASK}


def automatic_answers_that_lead_back(flow: Flow) -> Iterator[FlowFault]:
    found = all_edges(flow)
    for name, question in flow.questions.items():
        for field in AUTOMATIC:
            key = getattr(question, field)
            given = [(way, ways) for ways in found for way in ways if (way.question, way.answer) == (name, key)]
            if key and any(leads_back(way, ways) for way, ways in given):
                message = f"`{field}: {key}` leads back, and an automatic answer must not"
                yield FlowFault(("questions", name, field), message, "name an option that continues or ends")
