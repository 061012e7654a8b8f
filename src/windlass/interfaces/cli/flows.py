"""Commands about flows: flow list, show, check, graph, simulate, new."""

from __future__ import annotations

from collections.abc import Sequence

import click
from msgspec import to_builtins

from windlass.errors import Exit
from windlass.interfaces.cli.common import app, echo_json, json_option, page, pairs
from windlass.runs.flows import Flows
from windlass.text import plain, plural

FLOW = "NAME|FILE"


@click.group(short_help="List, show, check, draw, simulate or create flows.")
def flow() -> None:
    """Work with flows. A flow is a YAML file: built in, in the repository's .windlass/flows, or in your config folder.

    \b
      windlass flow list
      windlass flow check .windlass/flows/mine.yaml
      windlass flow simulate plan --tasks 5
    """


@flow.command("list", short_help="List all flows.")
@json_option
def list_(as_json: bool) -> None:
    """List all flows, with their origin and purpose.

    \b
      windlass flow list
      windlass flow list --json
    """
    rows = _flows().rows()
    if as_json:
        return echo_json(rows)
    out = page()
    for row in rows:
        out.line(f"{row['name']}  ({row['origin']})")
        out.line(row["about"] or f"does not load: windlass flow check {row['name']}", indent=4, hang=0)
    click.echo(out.text(), nl=False)
    return None


@flow.command(short_help="Print a flow's YAML.")
@click.argument("name", metavar=FLOW)
def show(name: str) -> None:
    """Print a flow's YAML.

    \b
      windlass flow show plan
      windlass flow show plan > .windlass/flows/mine.yaml
    """
    click.echo(plain(_flows().text(name)), nl=False)


@flow.command(short_help="Check flows for problems.")
@click.argument("names", nargs=-1, metavar=f"[{FLOW}]...")
@json_option
def check(names: Sequence[str], as_json: bool) -> int:
    """Print `ok`, or every problem with its file and line. Without a name, check all flows.

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


@flow.command(short_help="Draw a flow.")
@click.argument("name", metavar=FLOW)
@click.option("--mermaid", is_flag=True, help="Print a Mermaid flowchart.")
def graph(name: str, mermaid: bool) -> None:
    """Draw a flow: its phases, its questions, and where each outcome leads.

    \b
      windlass flow graph plan
      windlass flow graph plan --mermaid > plan.mmd
    """
    click.echo(_flows().drawing(name, as_mermaid=mermaid), nl=False)


@flow.command(short_help="Estimate a flow's dispatches and questions.")
@click.argument("name", metavar=FLOW)
@click.option(
    "--tasks", type=click.IntRange(min=0), default=3, show_default=True, metavar="N", help="Tasks in the plan."
)
@click.option("--set", "given", multiple=True, metavar="K=V", help="A setting of the flow.")
@json_option
def simulate(name: str, tasks: int, given: tuple[str, ...], as_json: bool) -> None:
    """Compute the fewest and the most dispatches and questions of a flow, without running it.

    \b
      windlass flow simulate plan --tasks 5
      windlass flow simulate plan --tasks 5 --set max_cycles=2 --json
    """
    found = _flows().simulate(name, tasks, pairs(given, "--set"))
    if as_json:
        return echo_json({"flow": found.flow, "tasks": tasks, "settings": found.settings, **to_builtins(found.result)})
    out, result = page(), found.result
    out.line(f"{found.flow} with {plural(tasks, 'task')}:")
    out.line(f"dispatches  {result.min_dispatches} to {result.max_dispatches}", indent=2)
    out.line(f"questions   {result.min_questions} to {result.max_questions}", indent=2)
    if result.unbounded_by_person:
        out.line(f"more if a person chooses to repeat: {', '.join(result.unbounded_by_person)}", indent=2)
    out.line("A dispatch with several attempts counts once.", indent=2)
    return click.echo(out.text(), nl=False)


@flow.command(short_help="Create a flow.")
@click.argument("name")
@json_option
def new(name: str, as_json: bool) -> None:
    """Write .windlass/flows/NAME.yaml, a small valid flow. An existing file is not overwritten.

    \b
      windlass flow new mine
    """
    path, hidden = _flows().create(name)
    if as_json:
        return echo_json({"written": str(path), "instead_of": hidden})
    click.echo(f"written: {path}")
    for origin in hidden:
        click.echo(f"in this repository it replaces '{path.stem}' ({origin})", err=True)
    return click.echo(
        f"check it: windlass flow check {path.stem}; use it: windlass run --flow {path.stem} REQUEST", err=True
    )


# -- helpers


def _flows() -> Flows:
    return Flows(app().project)


COMMANDS = {"flow": flow}
