"""Values: settings of the right type, facts and templates that exist, fields that agree with each other."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from windlass.conversion import Path
from windlass.errors import near
from windlass.flow.conditions import FACTS
from windlass.flow.document import Located
from windlass.flow.fault import FlowFault, calls_of, places
from windlass.flow.schema import Flow
from windlass.kinds.routes import Route
from windlass.kinds.spec import words_of
from windlass.kinds.visit_cost import When
from windlass.model import Json, Task, is_id, is_inner_path

TASK_FIELDS = frozenset(f"task.{name}" for name in Task.__struct_fields__)
NAME = re.compile(r"\$[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z0-9_]+)*")
TEMPLATE = re.compile(r"\{([^{}]*)\}")
RUN_NAMES = frozenset({"slug", "id8", "date"})
PATH_NAMES = RUN_NAMES | {"session"}
#: fields that may hold a $setting; elsewhere it would be read as a text
SETTING_FIELDS = frozenset({
    "max", "slots", "pause", "pause_every", "failure", "mode", "threshold", "remote", "base", "times", "profile",
    "code", "between_stages", "between_phases",
})  # fmt: skip


WANTED = {"int": "a whole number, not below `min`", "bool": "true or false", "role": "the name of a role"}


def wrong_settings(flow: Flow) -> Iterator[FlowFault]:
    for name, setting in flow.settings.items():
        path: Path = ("settings", name)
        fits = {
            "role": bool(setting.default),
            "int": setting.default.isdecimal() and int(setting.default) >= setting.min,
            "bool": setting.default in ("true", "false"),
            "choice": setting.default in setting.options,
            "str": True,
        }
        if setting.type == "choice" and not setting.options:
            yield FlowFault(path, f"the setting '{name}' has no options to choose from")
        elif not fits[setting.type]:
            wanted = ", ".join(setting.options) or WANTED[setting.type]
            yield FlowFault((*path, "default"), f"the default '{setting.default}' does not fit '{name}'", wanted)


def settings_inside_texts(located: Located) -> Iterator[FlowFault]:
    for path, text in _texts(located.value, ()):
        if NAME.search(text) and not NAME.fullmatch(text):
            yield FlowFault(path, f"'{text[:60]}' has a $setting inside a longer text", "a $setting is a whole value")
        elif NAME.fullmatch(text) and path and path[-1] not in SETTING_FIELDS:
            yield FlowFault(
                path, f"'{text}' is not allowed here", f"a $setting is a value of {', '.join(sorted(SETTING_FIELDS))}"
            )


def _texts(value: Json, path: Path) -> Iterator[tuple[Path, str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _texts(inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _texts(inner, (*path, index))


def wrong_setting_references(flow: Flow) -> Iterator[FlowFault]:
    for path, value in _counts(flow):
        if not isinstance(value, str):
            continue
        yield from _unknown_setting(flow, path, value)
        setting = flow.settings.get(value[1:])
        if setting and setting.type != "int":
            yield FlowFault(path, f"'{value}' is not a number", f"the setting '{value[1:]}' needs `type: int`")
    for place in places(flow):
        for key, allowed in place.phase.word_fields():
            yield from _wrong_word(flow, (*place.path, key), str(getattr(place.phase, key)), allowed)
        for path, call in calls_of(place):
            if call.profile.startswith("$"):
                yield from _unknown_setting(flow, (*path, "profile"), call.profile)
    if flow.restarts:
        yield from _wrong_word(flow, ("restarts", "code"), flow.restarts.code, ("keep", "reset"))
    if flow.compact:
        for key in ("between_stages", "between_phases"):
            yield from _wrong_word(flow, ("compact", key), str(getattr(flow.compact, key)), ("true", "false"))


def _counts(flow: Flow) -> Iterator[tuple[Path, int | str | None]]:
    if flow.restarts:
        yield ("restarts", "max"), flow.restarts.max
    for place in places(flow):
        for key in ("max", "slots", "pause_every"):
            yield (*place.path, key), getattr(place.phase, key, None)
        yield from (((*path, "times"), call.times) for path, call in calls_of(place))
        yield from _route_counts((*place.path, "on"), place.phase.on)
        land = place.phase.landing()
        if land:
            yield (*place.path, "land", "max"), land.max
            yield from _route_counts((*place.path, "land", "on"), land.on)


def _route_counts(path: Path, on: Mapping[str, Route]) -> Iterator[tuple[Path, int | str | None]]:
    yield from (((*path, outcome, "max"), route.max) for outcome, route in on.items())


def _wrong_word(flow: Flow, path: Path, word: str, allowed: tuple[str, ...]) -> Iterator[FlowFault]:
    if word.startswith("$"):
        yield from _unknown_setting(flow, path, word)
    for value in words_of(flow, word):
        if value not in allowed:
            yield FlowFault(path, f"'{value}' does not fit '{path[-1]}'", near(value, (one for one in allowed if one)))


def _unknown_setting(flow: Flow, path: Path, word: str) -> Iterator[FlowFault]:
    if word[1:] not in flow.settings:
        yield FlowFault(path, f"there is no setting '{word[1:]}'", near(word[1:], flow.settings))


def unknown_facts(flow: Flow) -> Iterator[FlowFault]:
    for path, when, in_task in _conditions(flow):
        for name, wanted in when.items():
            yield from _wrong_fact(flow, (*path, name), name, wanted, in_task)


def _conditions(flow: Flow) -> Iterator[tuple[Path, When, bool]]:
    yield from ((("settings", name, "when"), setting.when, False) for name, setting in flow.settings.items())
    yield from ((("stages", at, "when"), stage.when, False) for at, stage in enumerate(flow.stages))
    for place in places(flow):
        yield (*place.path, "when"), place.phase.when, place.inside is not None
        yield (*place.path, "if"), getattr(place.phase, "condition", {}), place.inside is not None
        for path, call in calls_of(place):
            yield (*path, "when"), call.when, place.inside is not None
            yield (*path, "by"), {fact: tuple(found) for fact, found in call.by.items()}, place.inside is not None


def _wrong_fact(flow: Flow, path: Path, name: str, wanted: object, in_task: bool) -> Iterator[FlowFault]:
    # The values of every fact; () means any.
    known: dict[str, tuple[str, ...]] = {one: () for one in FACTS if in_task or not one.startswith("task.")}
    known |= dict.fromkeys(TASK_FIELDS, ()) if in_task else {}
    known |= {"mode": tuple(flow.modes)} if flow.modes else {}
    for setting_name, setting in flow.settings.items():
        known[setting_name] = ("true", "false") if setting.type == "bool" else tuple(setting.options)
    owner, _, key = name.partition(".")
    if name not in known and not (owner in flow.artifacts and key):
        yield FlowFault(path, f"there is no fact '{name}'", near(name, known))
        return
    allowed = known.get(name, ())
    for value in wanted if isinstance(wanted, tuple) else (wanted,):
        word = str(value).lower() if isinstance(value, bool) else str(value)
        if allowed and word not in allowed:
            yield FlowFault(path, f"'{name}' is never '{word}'", near(word, allowed))


def unknown_templates(flow: Flow) -> Iterator[FlowFault]:
    yield from _wrong_templates(("branch",), flow.branch, RUN_NAMES)
    yield from _wrong_templates(("agent_branch",), flow.agent_branch, RUN_NAMES | {"n"})
    yield from _wrong_templates(("progress",), flow.progress, PATH_NAMES)
    yield from _wrong_path((), "", flow.progress, "progress")
    for name, artifact in flow.artifacts.items():
        yield from _wrong_templates(("artifacts", name, "path"), artifact.path, PATH_NAMES)
        yield from _wrong_path(("artifacts", name), artifact.kind, artifact.path)
    if flow.compact:
        yield from _wrong_templates(("compact", "path"), flow.compact.path, {"of"})
        yield from _wrong_path(("compact",), "", flow.compact.path)
        if "{of}" not in flow.compact.path:
            yield FlowFault(("compact", "path"), "the path of summaries needs {of}, else they replace each other")
    for place in places(flow):
        for key in place.phase.RUN_TEMPLATES:
            yield from _wrong_templates((*place.path, key), str(getattr(place.phase, key)), RUN_NAMES)
    for path, branch in ((("branch",), flow.branch), (("agent_branch",), flow.agent_branch)):
        pieces = TEMPLATE.sub("x", branch).split("/")
        if branch and not all(is_id(piece) for piece in pieces):
            yield FlowFault(path, f"'{branch}' cannot be a branch's name", "like windlass/{slug}-{id8}")


def _wrong_templates(path: Path, text: str, known: Iterable[str]) -> Iterator[FlowFault]:
    for name in TEMPLATE.findall(text):
        if name not in known:
            yield FlowFault(path, f"there is nothing to put in for '{{{name}}}'", near(name, known))


def _wrong_path(path: Path, kind: str, text: str, field: str = "path") -> Iterator[FlowFault]:
    if kind in ("file", "dir") and not text:
        yield FlowFault(path, f"an artifact of kind '{kind}' needs a path")
    parts = text.split("/")
    if text.startswith("/") or "\\" in text or ".." in parts or ".git" in parts or ":" in text:
        yield FlowFault((*path, field), f"'{text}' is not a path inside the repository")


def wrong_instructions(flow: Flow) -> Iterator[FlowFault]:
    for path, file in instruction_files(flow):
        if not is_inner_path(file):
            yield FlowFault(path, f"'{file}' is not a file inside the repository", "like AGENTS.md")


def instruction_files(flow: Flow) -> Iterator[tuple[Path, str]]:
    """Every file of the repository that agents must follow, with its path in the flow file."""
    yield from ((("instructions",), file) for file in flow.instructions)
    for place in places(flow):
        for path, call in calls_of(place):
            yield from (((*path, "instructions"), file) for file in call.instructions)


def wrong_fields(flow: Flow) -> Iterator[FlowFault]:
    for place in places(flow):
        for message in place.phase.disagreements(flow):
            yield FlowFault(place.path, f"'{place.phase.id}': {message}")
