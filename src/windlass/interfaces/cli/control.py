"""Commands that change a run without driving it: pause, abort, tell, fork."""

from __future__ import annotations

import click

from windlass.interfaces.cli.common import app, echo_json, json_option, run_argument
from windlass.runs.role_overrides import check_role
from windlass.runs.service import Service
from windlass.views.outlook import program


@click.command(short_help="Pause a run when its running agents finish.")
@run_argument
@json_option
def pause(run: str, as_json: bool) -> None:
    """Pause a run: running agents finish, nothing new starts.

    \b
      windlass pause
    """
    service = app().service
    id = service.run_to_change(run).id
    _report(service, id, service.controls.pause(id), as_json)


@click.command(short_help="End a run for good; its work is kept.")
@run_argument
@json_option
def abort(run: str, as_json: bool) -> None:
    """End a run for good. Its branch, its commits and its history are kept.

    \b
      windlass abort
    """
    service = app().service
    id = service.run_to_change(run).id
    _report(service, id, service.controls.abort(id), as_json)


@click.command(short_help="Send a message to a run's agents.")
@click.argument("words", nargs=-1, required=True, metavar="[RUN] TEXT")
@click.option(
    "--role", default="", metavar="ROLE", help="The role that receives it. Default: the next agent that writes code."
)
@json_option
def tell(words: tuple[str, ...], role: str, as_json: bool) -> None:
    """Send a message to a run. The next dispatch of the role receives it, once. `status` and `log` show when.

    With a single word or quoted text, the run is the active one. With more words, the first one is the run.

    \b
      windlass tell "use the existing Clock class"
      windlass tell 3f2a use the existing Clock class
      windlass tell 3f2a --role planner "keep the tasks small"
    """
    here = app()
    run, text = ("", words) if len(words) == 1 else (words[0], words[1:])
    row = here.service.run_to_change(run)
    if role:
        check_role(here.project, row, role)
    _report(here.service, row.id, here.service.controls.tell(row.id, " ".join(text), "windlass tell", role), as_json)


@click.command(short_help="Start a run from the middle of another.")
@click.argument("run")
@click.option("--at", "phase", required=True, metavar="PHASE", help="The first phase to repeat.")
@json_option
def fork(run: str, phase: str, as_json: bool) -> None:
    """Create a run that reuses every result recorded before PHASE. These steps are not paid for again.

    \b
      windlass fork 3f2a --at plan-review
      windlass resume NEWRUN
    """
    from windlass.runs.fork import fork_run

    here = app()
    row = here.service.run(run)
    new = fork_run(here.project, here.service.store, row, phase, here.host.new_id())
    resume = f"{program(here.host.named)} resume {new}"
    if as_json:
        return echo_json({"run": new, "from": row.id, "at": phase, "next": resume})
    return click.echo(f"run {new} reuses everything before '{phase}' of run {row.id}; continue it with: {resume}")


def _report(service: Service, run: str, message: str, as_json: bool) -> None:
    if as_json:
        return echo_json({"run": run, "state": service.run(run).state, "message": message})
    return click.echo(message)


COMMANDS = {"tell": tell, "pause": pause, "abort": abort, "fork": fork}
