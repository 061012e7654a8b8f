"""docs/reference, made from the code: `python tools/reference.py` writes it, a test fails when it is stale."""

from __future__ import annotations

import ast
import inspect
import json
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any, get_args, get_origin

import click
import msgspec
from msgspec import NODEFAULT, Struct
from msgspec.structs import FieldInfo

from windlass.agents.contracts.registry import CONTRACTS
from windlass.agents.roles import BUILT_IN, Role, load_roles
from windlass.config.schema import Config
from windlass.conversion import Rest, fields_of, notes
from windlass.errors import Exit
from windlass.events import TYPES
from windlass.flow.schema import Artifact, Flow, QuestionSpec, Setting, Stage
from windlass.interfaces.cli import NO_JSON, cli
from windlass.kinds import KINDS
from windlass.kinds.spec import CallSpec, Land, PhaseSpec
from windlass.views.state_file import FILE, StateFile

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "reference"
NOTE = "<!-- Made by tools/reference.py from the code; do not edit. -->"
WIDTH = 100
EXITS = {
    Exit.OK: "finished, answered, shown",
    Exit.USER: "yours to fix: configuration, flow, repository, a missing agent",
    Exit.USAGE: "the command line was not understood",
    Exit.BUG: "a bug in Windlass; a log was written, its path is shown",
    Exit.WAITING: "waiting for an answer",
    Exit.PAUSED: "paused: a checkpoint, a batch, `pause`, a quota wait of a detached run",
    Exit.STOPPED: "stopped or blocked; can be resumed",
    Exit.ABORTED: "aborted",
    Exit.IN_PART: "finished in part: tasks were skipped or failed, or none was carried out",
    Exit.INTERRUPTED: "interrupted; state is saved, the command to go on is printed",
}


# -- pages


def index_page() -> str:
    about = {
        "commands.md": "every command with its options",
        "config.md": "every key of `config.toml` with its default",
        "kinds.md": "the kinds of phases: fields and outcomes; settings, artifacts, questions",
        "roles.md": "the roles that ship, and the contracts of their answers",
        "events.md": "every event of the journal",
        "exit-codes.md": "what the shell is told",
        "state.schema.json": f"the JSON Schema of `{FILE}`, the state file of a run with stages",
    }
    return page("Reference", *(f"- [{name.partition('.')[0]}]({name}): {text}" for name, text in about.items()))


def commands_page() -> str:
    parts = [part for name, command in walk(cli, "windlass") for part in told(name, command)]
    without = [f"- `windlass {name}` {why}" for name, why in NO_JSON.items()]
    return page("Commands", "Every command has `--json`, except:", "", *without, *parts)


def walk(command: click.Command, name: str) -> Iterable[tuple[str, click.Command]]:
    yield name, command
    if isinstance(command, click.Group):
        context = click.Context(command, info_name=name)
        for sub in command.list_commands(context):
            found = command.get_command(context, sub)
            assert found is not None, sub
            yield from walk(found, f"{name} {sub}")


def told(name: str, command: click.Command) -> tuple[str, ...]:
    context = click.Context(
        command, info_name=name, terminal_width=WIDTH, max_content_width=WIDTH, help_option_names=["-h", "--help"]
    )
    return ("", f"## {name}", "", "```text", command.get_help(context).strip(), "```")


def config_page() -> str:
    lines = [
        "The file is TOML: `.windlass/config.toml` in the repository, `~/.config/windlass/config.toml` for a person."
    ]
    return page("Configuration", *lines, "", *table(("key", "default", "meaning"), config_rows(Config, "")))


def config_rows(model: type[Struct], prefix: str) -> Iterable[tuple[str, str, str]]:
    docs = field_docs(model)
    for field in fields_of(model):
        rest = any(isinstance(note, Rest) for note in notes(field.type))
        key = f"{prefix}{'NAME' if rest else field.encode_name}"
        inner = table_of(field)
        if inner is None:
            yield f"`{key}`", default(field), docs.get(field.name, "")
        else:
            yield from config_rows(inner, f"{key}.NAME." if is_named(field) else f"{key}.")


def kinds_page() -> str:
    parts = ["## Every phase and step", "", *fields_table(PhaseSpec)]
    for name, kind in sorted(KINDS.items()):
        about = sentence((sys.modules[kind.spec.__module__].__doc__ or "").partition(":")[2].split("\n\n")[0])
        parts += ["", f"## {name}", "", about[:1].upper() + about[1:], ""]
        parts += [f"Outcomes: {', '.join(f'`{outcome}`' for outcome in kind.spec.OUTCOMES)}.", ""]
        parts += fields_table(kind.spec, skip=PhaseSpec.__struct_fields__)
    for title, model in SHARED.items():
        parts += ["", f"## {title}", "", *fields_table(model)]
    return page("Kinds of phases", *parts)


def fields_table(model: type[Struct], skip: Sequence[str] = ()) -> list[str]:
    docs = {name: text for base in reversed(model.__mro__) for name, text in field_docs(base).items()}
    fields = [field for field in fields_of(model) if field.name not in skip]
    rows = [(f"`{field.encode_name}`", default(field), docs.get(field.name, "")) for field in fields]
    return table(("field", "default", "meaning"), rows)


def roles_page() -> str:
    roles = load_roles([BUILT_IN])
    contracts = [(f"`{name}`", f"`{one.tags[0]}`", one.language) for name, one in sorted(CONTRACTS.items())]
    heads = ("role", "about", "writes", "contract", "guard", "wall", "prompts")
    return page(
        "Roles",
        *table(heads, [role_row(role) for _, role in sorted(roles.items())]),
        *("", "## Contracts", "", "The block that an answer must have.", ""),
        *table(("contract", "tag", "form"), contracts),
    )


def role_row(role: Role) -> tuple[str, ...]:
    wall = f"{role.wall_s / 60:g} min" if role.wall_s else ""
    return (f"`{role.name}`", role.about, role.writes, role.contract, role.guard, wall, ", ".join(sorted(role.prompts)))


def events_page() -> str:
    about = "`windlass log --json` gives one object a line: `seq`, `at`, `type` and the fields below."
    rows = [
        (f"`{name}`", ", ".join(f"`{field}`" for field in cls.__struct_fields__), doc(cls))
        for name, cls in TYPES.items()
    ]
    return page("Events", about, "", *table(("type", "fields", "meaning"), rows))


def exits_page() -> str:
    return page("Exit codes", *table(("code", "meaning"), [(str(int(code)), EXITS[code]) for code in Exit]))


def state_schema() -> str:
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": FILE}
    return json.dumps({**head, **msgspec.json.schema(StateFile)}, indent=2) + "\n"


PAGES: Mapping[str, Callable[[], str]] = MappingProxyType(
    {
        "README.md": index_page,
        "commands.md": commands_page,
        "config.md": config_page,
        "events.md": events_page,
        "exit-codes.md": exits_page,
        "kinds.md": kinds_page,
        "roles.md": roles_page,
        "state.schema.json": state_schema,
    }
)
SHARED: Mapping[str, type[Struct]] = MappingProxyType(
    {
        "A call of an agent": CallSpec,
        "land, of tasks": Land,
        "The file itself": Flow,
        "A setting": Setting,
        "An artifact": Artifact,
        "A question": QuestionSpec,
        "A stage": Stage,
    }
)


# -- what the code says


def field_docs(cls: type) -> dict[str, str]:
    """The string under each field, which Python itself forgets."""
    body = class_body(cls)
    return {
        field.target.id: sentence(text.value.value)
        for field, text in pairwise(body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant) and isinstance(text.value.value, str)
    }


def class_body(cls: type) -> list[ast.stmt]:
    try:
        source = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]
    except (OSError, TypeError):
        return []
    assert isinstance(source, ast.ClassDef)
    return source.body


def doc(cls: type) -> str:
    """A dataclass without a docstring is given one by Python; that says nothing."""
    text = cls.__doc__ or ""
    return "" if text.startswith(f"{cls.__name__}(") else sentence(text)


def table_of(field: FieldInfo) -> type[Struct] | None:
    kinds = [field.type, *get_args(field.type)]
    return next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, Struct)), None)


def is_named(field: FieldInfo) -> bool:
    return get_origin(field.type) is dict


def default(field: FieldInfo) -> str:
    if field.required:
        return "required"
    return shown(field.default if field.default_factory is NODEFAULT else field.default_factory())


def shown(value: Any) -> str:
    match value:
        case None | "" | () | {}:
            return ""
        case Struct():
            return ""
        case bool():
            return f"`{str(value).lower()}`"
        case tuple():
            return ", ".join(f"`{one}`" for one in value)
        case _:
            return f"`{value}`"


# -- markdown


def page(title: str, *lines: str) -> str:
    return "\n".join([f"# {title}", "", NOTE, "", *lines]).rstrip() + "\n"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [" | ".join(cell.replace("|", "\\|") for cell in row) for row in rows]
    return [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads), *(f"| {line} |" for line in lines)]


def sentence(text: str) -> str:
    return " ".join(text.split())


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, make in PAGES.items():
        (FOLDER / name).write_text(make(), encoding="utf-8")


if __name__ == "__main__":
    main()
