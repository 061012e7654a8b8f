"""Commands that only read: status, runs, show, log."""

from __future__ import annotations

import time

import click
from msgspec import to_builtins

from windlass.errors import UserError
from windlass.interfaces.cli.common import app, echo_json, event_json, json_option, run_argument, unicode_fits, width
from windlass.views.log import log_line
from windlass.views.show import render_show
from windlass.views.status import RunSummary, render_runs, render_status, status_json

DIFF_BYTES = 2_000_000


@click.command(short_help="Show a run's progress and what it waits for.")
@run_argument
@click.option(
    "--brief", is_flag=True, help="Print one line if a run is in progress here, otherwise nothing. For shell prompts."
)
@json_option
def status(run: str, brief: bool, as_json: bool) -> None:
    """Show a run's progress, what it waits for and since when, and the next command.

    Without RUN, show the active run, or the newest one if none is active. Other active runs are listed below it.

    \b
      windlass status
      windlass status 3f2a --json
      windlass status --brief
    """
    if brief and (run or as_json):
        raise click.UsageError("--brief cannot be combined with RUN or --json")
    if brief:
        return _print_brief()
    service = app().service
    if not service.has_runs:
        return (
            echo_json({"runs": 0})
            if as_json
            else click.echo('No runs here yet. Start one: windlass run "what to build"')
        )
    row = service.run(run)
    view, driven = service.view(row.id), service.is_driven(row.id)
    if as_json:
        return echo_json(status_json(view, service.host.clock(), driver_alive=driven))
    text = render_status(view, service.host.clock(), width=width(), driver_alive=driven, unicode=unicode_fits())
    if not run and view.state.final:
        click.echo("No run is active here. The newest run:\n")
    click.echo(text, nl=False)
    others = [other for other in service.runs() if not other.state.final and other.id != row.id]
    if not run and others:
        click.echo("\nAlso active: " + ", ".join(f"{other.id} ({other.state})" for other in others))
    return None


@click.command(short_help="List the runs of this repository.")
@json_option
def runs(as_json: bool) -> None:
    """List the runs of this repository, newest first.

    \b
      windlass runs
      windlass runs --json
    """
    service = app().service
    views = [service.view(row.id) for row in service.runs()]
    if as_json:
        return echo_json([status_json(view, service.host.clock()) for view in views])
    if not views:
        return click.echo('No runs here yet. Start one: windlass run "what to build"')
    click.echo(render_runs([RunSummary.of(view) for view in views], width=width(), unicode=unicode_fits()), nl=False)
    return None


@click.command(short_help="Show everything about one run.")
@run_argument
@click.option(
    "--diff", "task", is_flag=False, flag_value="", default=None, metavar="[TASK]",
    help="Show the diff of TASK, or of the whole run without TASK.",
)  # fmt: skip
@json_option
def show(run: str, task: str | None, as_json: bool) -> None:
    """Show a run's tasks, reviews, findings, cost, branch, work that has not landed, and the command to land it.

    \b
      windlass show
      windlass show 3f2a
      windlass show 3f2a --diff t2
    """
    from windlass.runs.unlanded import diff_of, find_work, unlanded_work
    from windlass.text import plain

    service = app().service
    row = service.run(run)
    view, driven = service.view(row.id), service.is_driven(row.id)
    if task is not None:
        found = find_work(service, view, task)
        diff = diff_of(service, found, DIFF_BYTES)
        if as_json:
            return echo_json({"run": view.run, **to_builtins(found), "diff": diff})
        return click.echo(plain(diff), nl=False)
    work = unlanded_work(service, view)
    if as_json:
        status = status_json(view, service.host.clock(), driver_alive=driven)
        return echo_json({**status, "work": [to_builtins(one) for one in work]})
    refs = [(one.task, one.ref, one.commit) for one in work]
    text = render_show(
        view, service.host.clock(), width=width(), driver_alive=driven, unicode=unicode_fits(), work=refs
    )
    click.echo(text, nl=False)
    click.echo(f"\nFiles: {service.host.place.run_folder(row.id)}")
    return None


@click.command(short_help="Print a run's events.")
@run_argument
@click.option("--follow", "-f", is_flag=True, help="Keep printing while a driver is at work.")
@json_option
def log(run: str, follow: bool, as_json: bool) -> None:
    """Print a run's events, one line each.

    \b
      windlass log
      windlass log --follow
      windlass log --json | jq .type
    """
    service = app().service
    row = service.run(run)
    unicode = unicode_fits()
    for page in service.watch(row.id, 0, time.sleep) if follow else service.event_pages(row.id):
        # One write and flush for each page.
        lines = [event_json(recorded) if as_json else log_line(recorded, unicode=unicode) for recorded in page]
        click.echo("\n".join(lines))


def _print_brief() -> None:
    """Print nothing if no run is in progress, or if the folder is not a repository: every shell prompt calls this."""
    from windlass.model import question_of
    from windlass.text import to_ascii
    from windlass.views.brief import brief_line

    try:
        service = app().service
    except UserError:
        return
    rows = [row for row in service.runs() if not row.state.final]
    if not rows:
        return
    first, pending = rows[0], service.questions.pending(rows[0].id)
    question = question_of(pending[0].data).text if pending else ""
    line = brief_line(
        *(first.id, first.request, first.state),
        driven=service.is_driven(first.id),
        question=question,
        others=len(rows) - 1,
    )
    click.echo(line if unicode_fits() else to_ascii(line))


COMMANDS = {"status": status, "runs": runs, "show": show, "log": log}
