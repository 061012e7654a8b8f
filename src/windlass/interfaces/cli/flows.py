"""Commands about flows: flow list, show, check, graph, simulate, new."""

from __future__ import annotations

from collections.abc import Sequence

import click
from msgspec import to_builtins

from windlass.errors import Exit
from windlass.interfaces.cli.common import app, echo_json, json_option, page, pairs
from windlass.runs.flows import Flows, SimulatedFlow
from windlass.text import plain, plural

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
    rows = _flows().listed()
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
    click.echo(plain(_flows().text(name)), nl=False)


@flow.command(short_help="Everything that is wrong with a flow.")
@click.argument("names", nargs=-1, metavar=f"[{FLOW}]...")
@json_option
def check(names: Sequence[str], as_json: bool) -> int:
    """Say `ok`, or everything that is wrong, with file and line. Without a name: all flows.

    \b
      windlass flow check .windlass/flows/mine.yaml
      windlass flow check
    """
    found = _flows().check(names)
    if as_json:
        echo_json([{"file": one.file, "ok": one.ok, "problems": one.problems, "notes": one.notes} for one in found])
    else:
        for one in found:
            lines = [f"{one.name}: ok"] if one.ok else [problem["text"] for problem in one.problems]
            click.echo("\n".join((*lines, *one.notes)))
    return Exit.OK if all(one.ok for one in found) else Exit.USER


@flow.command(short_help="A flow as a drawing.")
@click.argument("name", metavar=FLOW)
@click.option("--mermaid", is_flag=True, help="As a Mermaid flowchart, for a page.")
def graph(name: str, mermaid: bool) -> None:
    """A flow as a drawing: its phases, where each outcome leads, its questions.

    \b
      windlass flow graph plan
      windlass flow graph plan --mermaid > plan.mmd
    """
    click.echo(_flows().drawing(name, as_mermaid=mermaid), nl=False)


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
    found = _flows().simulate(name, tasks, pairs(given, "--set"))
    if as_json:
        return echo_json({"flow": found.flow, "tasks": tasks, "settings": found.settings, **to_builtins(found.result)})
    return click.echo(_simulated(found, tasks), nl=False)


@flow.command(short_help="Begin a flow of your own.")
@click.argument("name")
@json_option
def new(name: str, as_json: bool) -> None:
    """Write .windlass/flows/NAME.yaml, a small flow that passes the check. Nothing is overwritten.

    \b
      windlass flow new mine
    """
    path, hidden = _flows().begin(name)
    if as_json:
        return echo_json({"written": str(path), "instead_of": hidden})
    click.echo(f"written: {path}")
    for origin in hidden:
        click.echo(f"it is used instead of '{path.stem}' ({origin}) in this repository", err=True)
    return click.echo(
        f"check it: windlass flow check {path.stem}; use it: windlass run --flow {path.stem} REQUEST", err=True
    )


# -- inside


def _flows() -> Flows:
    return Flows(app().kit)


def _simulated(simulated: SimulatedFlow, tasks: int) -> str:
    out, found = page(), simulated.result
    out.line(f"{simulated.flow} with {plural(tasks, 'task')}:")
    out.line(f"dispatches  {found.min_dispatches} to {found.max_dispatches}", indent=2)
    out.line(f"questions   {found.min_questions} to {found.max_questions}", indent=2)
    if found.unbounded_by_person:
        out.line(f"more if a person goes round again: {', '.join(found.unbounded_by_person)}", indent=2)
    out.line("A dispatch that fails and is repeated counts once.", indent=2)
    return out.text()


COMMANDS = {"flow": flow}
