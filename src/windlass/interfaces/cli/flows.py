"""Commands about flows: flow list, show, check, graph, simulate, new."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from msgspec import to_builtins

from windlass.errors import Exit, UserError
from windlass.flow.check_values import instruction_files
from windlass.flow.graph import graph as draw
from windlass.flow.graph import mermaid as draw_mermaid
from windlass.flow.load import FlowSource, find_flow, list_flows, template
from windlass.flow.problem import FlowError
from windlass.flow.schema import Flow
from windlass.flow.simulate import Simulation
from windlass.flow.simulate import simulate as walk
from windlass.git import plain
from windlass.interfaces.cli.common import app, echo_json, json_option, page, pairs
from windlass.kit import Kit
from windlass.projections.text import plural
from windlass.starting import settings_for

FLOW = "NAME|FILE"


@click.group(short_help="What can be run: list, show, check, graph, simulate, new.")
def flow() -> None:
    """Flows are YAML files: built in, in .windlass/flows of the repository, or in your configuration folder.

    \b
      windlass flow list
      windlass flow check .windlass/flows/mine.yaml
      windlass flow simulate plan --tasks 5
    """


@flow.command("list", short_help="All flows, where they come from and what they do.")
@json_option
def list_(as_json: bool) -> None:
    """All flows, where they come from and what they do.

    \b
      windlass flow list
      windlass flow list --json
    """
    kit = app().kit
    rows = [_row(kit, source) for source in list_flows(_folders(kit))]
    if as_json:
        return echo_json(rows)
    out = page()
    for row in rows:
        out.line(f"{row['name']}  ({row['origin']})")
        out.line(row["about"] or f"does not load: windlass flow check {row['name']}", indent=4, hang=0)
    click.echo(out.text(), nl=False)
    return None


@flow.command(short_help="The YAML of a flow.")
@click.argument("name", metavar=FLOW)
def show(name: str) -> None:
    """The YAML of a flow, as it is.

    \b
      windlass flow show plan
      windlass flow show plan > .windlass/flows/mine.yaml
    """
    click.echo(plain(_find(app().kit, name).text), nl=False)


@flow.command(short_help="Everything that is wrong with a flow.")
@click.argument("names", nargs=-1, metavar=f"[{FLOW}]...")
@json_option
def check(names: Sequence[str], as_json: bool) -> int:
    """Say `ok`, or everything that is wrong, with file and line. Without a name: all flows.

    \b
      windlass flow check .windlass/flows/mine.yaml
      windlass flow check
    """
    kit = app().kit
    sources = [_find(kit, name) for name in names] or list_flows(_folders(kit))
    found = [_checked(kit, source) for source in sources]
    if as_json:
        echo_json(found)
    else:
        for source, one in zip(sources, found, strict=True):
            lines = [f"{source.name}: ok"] if one["ok"] else [error["text"] for error in one["problems"]]
            click.echo("\n".join((*lines, *one["notes"])))
    return Exit.OK if all(one["ok"] for one in found) else Exit.USER


@flow.command(short_help="A flow as a drawing.")
@click.argument("name", metavar=FLOW)
@click.option("--mermaid", is_flag=True, help="As a Mermaid flowchart, for a page.")
def graph(name: str, mermaid: bool) -> None:
    """A flow as a drawing: its phases, where each outcome leads, its questions.

    \b
      windlass flow graph plan
      windlass flow graph plan --mermaid > plan.mmd
    """
    kit = app().kit
    loaded = _load(kit, _find(kit, name))
    click.echo(draw_mermaid(loaded) if mermaid else draw(loaded), nl=False)


@flow.command(short_help="The fewest and the most dispatches and questions a flow can cause.")
@click.argument("name", metavar=FLOW)
@click.option(
    "--tasks", type=click.IntRange(min=0), default=3, show_default=True, metavar="N", help="Tasks in the plan."
)
@click.option("--set", "given", multiple=True, metavar="K=V", help="A setting of the flow.")
@json_option
def simulate(name: str, tasks: int, given: tuple[str, ...], as_json: bool) -> None:
    """The fewest and the most dispatches and questions a flow can cause, before anything is spent.

    \b
      windlass flow simulate plan --tasks 5
      windlass flow simulate plan --tasks 5 --set max_cycles=2 --json
    """
    kit = app().kit
    loaded = _load(kit, _find(kit, name))
    settings = settings_for(loaded, kit.config(), pairs(given, "--set"))
    result = walk(loaded, tasks, settings)
    if as_json:
        return echo_json({"flow": loaded.flow, "tasks": tasks, "settings": settings, **to_builtins(result)})
    return click.echo(_simulated(loaded, tasks, result), nl=False)


@flow.command(short_help="Begin a flow of your own.")
@click.argument("name")
@json_option
def new(name: str, as_json: bool) -> None:
    """Write .windlass/flows/NAME.yaml, a small flow that passes the check. Nothing is overwritten.

    \b
      windlass flow new mine
    """
    kit = app().kit
    name = name.removesuffix(".yaml")
    path = _folders(kit)[0] / f"{name}.yaml"
    hides = [source for source in list_flows(_folders(kit)) if source.name == name]
    _write_new(path, template(name))
    if as_json:
        return echo_json({"written": str(path), "instead_of": [source.origin for source in hides]})
    click.echo(f"written: {path}")
    for source in hides:
        click.echo(f"it is used instead of '{name}' ({source.origin}) in this repository", err=True)
    return click.echo(f"check it: windlass flow check {name}; use it: windlass run --flow {name} REQUEST", err=True)


# -- inside


def _folders(kit: Kit) -> list[Path]:
    return [folder / "flows" for folder in kit.folders()]


def _find(kit: Kit, name: str) -> FlowSource:
    return find_flow(name, _folders(kit))


def _load(kit: Kit, source: FlowSource) -> Flow:
    """With the roles beside it: X/flows/f.yaml may use X/roles."""
    beside = source.path if source.path.resolve().parent.name == "flows" else None
    return kit.parse(source, kit.roles(beside.resolve() if beside else None))


def _row(kit: Kit, source: FlowSource) -> dict[str, str]:
    try:
        about = _load(kit, source).about
    except FlowError:
        about = ""
    return {"name": source.name, "origin": source.origin, "path": str(source.path), "about": about}


def _checked(kit: Kit, source: FlowSource) -> dict[str, Any]:
    try:
        notes = _absent_instructions(kit, _load(kit, source))
    except FlowError as error:
        problems = [{**to_builtins(problem), "text": problem.at(error.where)} for problem in error.problems]
        return {"file": str(source.path), "ok": False, "problems": problems, "notes": []}
    return {"file": str(source.path), "ok": True, "problems": [], "notes": notes}


def _absent_instructions(kit: Kit, flow: Flow) -> list[str]:
    """No fault of the flow: another repository may have them."""
    files = dict.fromkeys(file for _, file in instruction_files(flow))
    absent = [file for file in files if not (kit.world.place.root / file).is_file()]
    return [f"note: '{file}' of its instructions is not in this repository; agents work without it" for file in absent]


def _simulated(flow: Flow, tasks: int, found: Simulation) -> str:
    out = page()
    out.line(f"{flow.flow} with {plural(tasks, 'task')}:")
    out.line(f"dispatches  {found.min_dispatches} to {found.max_dispatches}", indent=2)
    out.line(f"questions   {found.min_questions} to {found.max_questions}", indent=2)
    if found.unbounded_by_person:
        out.line(f"more if a person goes round again: {', '.join(found.unbounded_by_person)}", indent=2)
    if found.per_finding:
        out.line(f"more if a review finds more than one thing: {', '.join(found.per_finding)}", indent=2)
    out.line("A dispatch that fails and is repeated counts once.", indent=2)
    return out.text()


def _write_new(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise UserError(f"'{path}' exists already", hint="choose another name, or edit that file") from None
    except OSError as error:
        raise UserError(
            f"cannot write '{path}': {error.strerror}", hint="check the permissions of its folder"
        ) from None


COMMANDS = {"flow": flow}
