"""Commands that ask something of a run: pause, abort, tell, fork."""

from __future__ import annotations

import click

from windlass.interfaces.cli.common import app, echo_json, json_option, run_argument
from windlass.runs.role_overrides import check_role
from windlass.runs.service import Service
from windlass.views.outlook import called


@click.command(short_help="Let a run rest when its agents are done.")
@run_argument
@json_option
def pause(run: str, as_json: bool) -> None:
    """Let a run rest: agents at work finish, nothing new starts.

    \b
      windlass pause
    """
    service = app().service
    id = service.meant(run).id
    _report(service, id, service.pause(id), as_json)


@click.command(short_help="End a run for good; its work stays.")
@run_argument
@json_option
def abort(run: str, as_json: bool) -> None:
    """End a run for good. Its branch, its commits and its record stay.

    \b
      windlass abort
    """
    service = app().service
    id = service.meant(run).id
    _report(service, id, service.abort(id), as_json)


@click.command(short_help="Say something to a run at work.")
@click.argument("words", nargs=-1, required=True, metavar="[RUN] TEXT")
@click.option("--role", default="", metavar="ROLE", help="Whom it is for; default: the next agent that writes code.")
@json_option
def tell(words: tuple[str, ...], role: str, as_json: bool) -> None:
    """Say something to a run. The next dispatch of the role is given it, once; `status` and `log` say when.

    A single word or quoted text is for the only active run; before more words stands the run.

    \b
      windlass tell "use the existing Clock class"
      windlass tell 3f2a use the existing Clock class
      windlass tell 3f2a --role planner "keep the tasks small"
    """
    here = app()
    run, text = ("", words) if len(words) == 1 else (words[0], words[1:])
    row = here.service.meant(run)
    if role:
        check_role(here.kit, row, role)
    _report(here.service, row.id, here.service.tell(row.id, " ".join(text), "windlass tell", role), as_json)


@click.command(short_help="A new run that shares the beginning of another.")
@click.argument("run")
@click.option("--at", "phase", required=True, metavar="PHASE", help="The first phase to do anew.")
@json_option
def fork(run: str, phase: str, as_json: bool) -> None:
    """A new run with everything that was recorded before PHASE; nothing of that is paid for again.

    \b
      windlass fork 3f2a --at plan-review
      windlass resume NEWRUN
    """
    from windlass.runs.fork import fork_run

    here = app()
    row = here.service.run(run)
    new = fork_run(here.kit, here.service.store, row, phase, here.world.new_id())
    go_on = f"{called(here.world.named)} resume {new}"
    if as_json:
        return echo_json({"run": new, "from": row.id, "at": phase, "next": go_on})
    return click.echo(f"run {new} shares everything before '{phase}' with {row.id}; go on with: {go_on}")


def _report(service: Service, run: str, message: str, as_json: bool) -> None:
    if as_json:
        return echo_json({"run": run, "state": service.run(run).state, "message": message})
    return click.echo(message)


COMMANDS = {"tell": tell, "pause": pause, "abort": abort, "fork": fork}
