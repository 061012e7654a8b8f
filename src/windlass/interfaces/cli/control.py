"""Commands that ask something of a run: pause, abort, fork."""

from __future__ import annotations

import click

from windlass.casting import check_role
from windlass.interfaces.cli.common import app, run_argument
from windlass.projections.outlook import called


@click.command(short_help="Let a run rest when its agents are done.")
@run_argument
def pause(run: str) -> None:
    """Let a run rest: agents at work finish, nothing new starts.

    \b
      windlass pause
    """
    service = app().service
    click.echo(service.pause(service.run(run).id))


@click.command(short_help="End a run for good; its work stays.")
@run_argument
def abort(run: str) -> None:
    """End a run for good. Its branch, its commits and its record stay.

    \b
      windlass abort
    """
    service = app().service
    click.echo(service.abort(service.run(run).id))


@click.command(short_help="Say something to a run at work.")
@click.argument("run")
@click.argument("text", nargs=-1, required=True)
@click.option("--role", default="", metavar="ROLE", help="Whom it is for; default: the next agent that writes code.")
def tell(run: str, text: tuple[str, ...], role: str) -> None:
    """Say something to a run. The next dispatch of the role is given it, once; `status` and `log` say when.

    \b
      windlass tell 3f2a "use the existing Clock class"
      windlass tell 3f2a --role planner "keep the tasks small"
    """
    here = app()
    row = here.service.run(run)
    if role:
        check_role(here.kit, row, role)
    click.echo(here.service.tell(row.id, " ".join(text), "windlass tell", role))


@click.command(short_help="A new run that shares the beginning of another.")
@click.argument("run")
@click.option("--at", "phase", required=True, metavar="PHASE", help="The first phase to do anew.")
def fork(run: str, phase: str) -> None:
    """A new run with everything that was recorded before PHASE; nothing of that is paid for again.

    \b
      windlass fork 3f2a --at plan-review
      windlass resume NEWRUN
    """
    from windlass.forking import fork_run

    here = app()
    row = here.service.run(run)
    new = fork_run(here.kit, here.service.store, row, phase, here.new_id())
    go_on = called(here.world.named)
    click.echo(f"run {new} shares everything before '{phase}' with {row.id}; go on with: {go_on} resume {new}")


COMMANDS = {"tell": tell, "pause": pause, "abort": abort, "fork": fork}
