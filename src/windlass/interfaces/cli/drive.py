"""Commands that drive a run: run, task, workflow, resume, retry."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from msgspec.structs import replace

from windlass.answers import AnswerPolicy
from windlass.errors import Exit, UserError, near, require_text
from windlass.interfaces.cli import completion
from windlass.interfaces.cli.common import (
    app,
    echo_json,
    is_interactive,
    json_option,
    page,
    pairs,
    run_argument,
    session,
)
from windlass.interfaces.cli.display import make_display
from windlass.model import RunState, question_of
from windlass.runs.app import App
from windlass.runs.drive import DriveResult
from windlass.runs.start import Start, task_of_plan
from windlass.text import clean
from windlass.views.outlook import add_repository, program

ROLE_AGENT = "NAME=AGENT"


class RequestCommand(click.Command):
    """A quoted request may begin with dashes: an argument with spaces that is not an option is the request."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        known = tuple(f"{name}=" for option in self.get_params(ctx) for name in option.opts)
        texts = [] if "--" in args else [a for a in args if a.startswith("-") and " " in a and not a.startswith(known)]
        rest = [a for a in args if a not in texts]
        return super().parse_args(ctx, [*rest, "--", *texts] if texts else rest)


def run_options(command: Callable[..., Any]) -> Callable[..., Any]:
    options = [
        click.option(
            "--set",
            "settings",
            multiple=True,
            metavar="K=V",
            help="Set a setting of the flow, so that no question asks for it.",
        ),
        click.option(
            "--answer",
            "answers",
            multiple=True,
            metavar="KEY=VALUE",
            help="Answer question KEY the first time; KEY*=VALUE every time.",
        ),
        click.option(
            "--yes",
            "yes",
            multiple=True,
            metavar="[KEY]",
            is_flag=False,
            flag_value="*",
            help="Give the safe answer to questions. Name a mandatory question to answer it too.",
        ),
        click.option("--agent", default="", metavar="A", help="Use this agent for every role."),
        click.option(
            "--role",
            "roles",
            multiple=True,
            metavar=ROLE_AGENT,
            help="Use this agent for one role; also NAME=AGENT:MODEL:EFFORT.",
        ),
        click.option("--script", default="", metavar="FILE", help="The script of the scripted agent."),
        click.option(
            "--budget",
            type=click.FloatRange(min=0),
            metavar="USD",
            help="Stop the run before it spends more than this.",
        ),
        click.option("--slots", type=click.IntRange(min=1), metavar="N", help="Run up to N tasks in parallel."),
        click.option("--lean", is_flag=True, help="Use the flow's short mode."),
        click.option(
            "--in-place", is_flag=True, help="Check out the run's branch, and update your checkout as tasks land."
        ),
        click.option("--keep", is_flag=True, help="Keep the slots after the run, so that you can look at them."),
        click.option("--repo", default="", metavar="URL", help="Work in a clone of URL that Windlass manages."),
        click.option("--detach", is_flag=True, help="Drive the run in the background."),
        click.option("--wait", is_flag=True, help="Without a terminal: wait until another process answers."),
        click.option("--new", "parallel", is_flag=True, help="Start even if another run is active."),
        json_option,
    ]
    for option in reversed(options):
        command = option(command)
    return command


@click.command(cls=RequestCommand, short_help="Start a run.")
@click.argument("request", nargs=-1, required=True)
@click.option(
    "--flow",
    default="",
    metavar="F",
    shell_complete=completion.flows,
    help="The name or file of a flow; see `windlass flow list`.",
)
@run_options
def run(request: tuple[str, ...], flow: str, **options: Any) -> int:
    """Start a run: from REQUEST to reviewed, tested, landed code on a new branch.

    \b
      windlass run "Add rate limiting"
      windlass run "Add rate limiting" --set review_mode=iterative --yes --budget 5
      windlass run --flow task "Rename Config.load to Config.read"
      windlass run --flow team --repo https://host/owner/name.git "Add rate limiting"
      windlass run -- "--verbose should be the default"
    """
    return _begin(_start(" ".join(request), flow, "", options), options)


@click.command(cls=RequestCommand, short_help="Implement, review and land one task.")
@click.argument("request", nargs=-1)
@click.option(
    "--plan", type=click.Path(exists=True, dir_okay=False), help="Your own plan, with a superteam-tasks block."
)
@run_options
def task(request: tuple[str, ...], plan: str | None, **options: Any) -> int:
    """Implement, review and land one task, without planning and final review.

    With --plan, REQUEST names one task of that plan by its title, id or number. Without REQUEST, all tasks of the plan
    are carried out.

    \b
      windlass task "Rename Config.load to Config.read"
      windlass task --plan docs/plans/mine.md "Rate limit middleware"
      windlass task --plan docs/plans/mine.md 2
      windlass task --plan docs/plans/mine.md
    """
    words = " ".join(request)
    if not words and not plan:
        raise UserError("give a request or --plan", hint='windlass task "Rename Config.load"')
    if plan is None:
        return _begin(_start(words, "task", "", options), options)
    text = Path(plan).read_text(encoding="utf-8", errors="replace")
    if not words:
        return _begin(_start(Path(plan).stem, "task", text, options), options)
    title, text = task_of_plan(text, words)
    return _begin(_start(title, "task", text, options), options)


@click.command(cls=RequestCommand, short_help="Start, answer or continue, whichever fits.")
@click.argument("text", nargs=-1)
@click.pass_context
def workflow(ctx: click.Context, text: tuple[str, ...]) -> int:
    """One command for everything. If a question is open, TEXT answers it; otherwise TEXT is the request of a new run.

    Without TEXT, continue the active run. The texts `status` and `abort` do what these commands do.

    \b
      windlass workflow "Add rate limiting"
      windlass workflow approve
      windlass workflow
    """
    words = " ".join(text).strip()
    if not words:
        return resume_active()
    here = app()
    active = here.service.active()
    asked = here.service.questions.pending(active.id) if active else []
    offered = any(words in (option.key for option in question_of(row.data).options) for row in asked)
    if words in ("status", "abort") and not offered:
        from windlass.interfaces.cli.control import COMMANDS as CONTROL
        from windlass.interfaces.cli.read import COMMANDS as READ

        if not active:
            click.echo("No run is active here.")
        if active or (words == "status" and here.service.has_runs):
            ctx.invoke({**CONTROL, **READ}[words])
        return 0
    if active and asked:
        row, given = here.service.questions.answer(active.id, "", words, "", "windlass workflow")
        click.echo(f"{row.id}: {given.value}")
        return 0 if here.service.is_driven(active.id) else continue_run(here, active.id)
    return int(ctx.invoke(run, request=(words,)))


@click.command(short_help="Continue a run.")
@run_argument
@click.option("--budget", type=click.FloatRange(min=0), metavar="USD", help="Set a new spending limit.")
@click.option("--answer", "answers", multiple=True, metavar="KEY=VALUE", help="As for `windlass run`.")
@click.option(
    "--yes",
    "yes",
    multiple=True,
    metavar="[KEY]",
    is_flag=False,
    flag_value="*",
    help="As for `windlass run`.",
)
@click.option("--agent", default="", metavar="A", help="Use another agent for every role.")
@click.option(
    "--role",
    "roles",
    multiple=True,
    metavar=ROLE_AGENT,
    help="Use this agent for one role; also NAME=AGENT:MODEL:EFFORT.",
)
@click.option("--script", default="", metavar="FILE", help="Another script for the scripted agent.")
@click.option("--restart", "stage", default="", metavar="STAGE", help="Begin this stage again; see windlass restart.")
@click.option("--detach", is_flag=True, help="Drive the run in the background.")
@click.option("--wait", is_flag=True, help="Without a terminal: wait until another process answers.")
@json_option
def resume(
    run: str,
    budget: float | None,
    agent: str,
    script: str,
    stage: str,
    detach: bool,
    as_json: bool,
    **options: Any,
) -> int:
    """Continue a run where it stopped. Steps that have a result are not repeated.

    \b
      windlass resume
      windlass resume 3f2a --budget 40
      windlass resume --role implementer=codex
      windlass resume --restart PLAN
    """
    here = app()
    if stage:
        row = here.service.run_to_change(run)
        target = f"restart {_stage(here, row.id, stage)}"
        if here.service.controls.detour(row.id, target, "windlass resume"):
            click.echo(f"run {row.id} will {target} as soon as its agents have ended; see windlass status")
            return 0
    more = {"budget": budget, "agent": agent, "script": _path(script), "roles": _roles(options.pop("roles"))}
    policy = _policy(options) if any(options.values()) else None
    return continue_run(here, here.service.run_to_change(run).id, as_json, policy, detach=detach, **more)


@click.command(short_help="Repeat the step that stopped a run.")
@run_argument
@json_option
def retry(run: str, as_json: bool) -> int:
    """Repeat the phase or task that stopped a run, as a new visit. Everything else keeps its result.

    \b
      windlass retry
    """
    here = app()
    row = here.service.run_to_change(run)
    if row.state not in (RunState.STOPPED, RunState.BLOCKED):
        raise UserError(f"run {row.id} is {row.state}, not stopped", hint="continue it with windlass resume")
    return continue_run(here, row.id, as_json)


@click.command(short_help="Begin a stage of a run again.")
@run_argument
@click.option("--stage", default="", metavar="STAGE", help="The stage. Default: the one where the run is.")
@click.option("--why", default="", metavar="TEXT", help="What should be different. The agents of the stage get it.")
@json_option
def restart(run: str, stage: str, why: str, as_json: bool) -> int:
    """Begin a stage again. What its phases made is removed, and so is what later stages made; earlier stages stay.

    The code that has landed stays, unless the flow resets it. Running agents end, and their work is kept.

    \b
      windlass restart
      windlass restart --stage PLAN --why "split the tasks by module"
    """
    here = app()
    row = here.service.run_to_change(run)
    return _detour(here, row.id, f"restart {_stage(here, row.id, stage)}", why, as_json)


@click.command(short_help="Go on without the phase where a run is.")
@run_argument
@click.option("--why", default="", metavar="TEXT", help="The reason, for the report.")
@json_option
def skip(run: str, why: str, as_json: bool) -> int:
    """Go on without the phase where the run is, or without the files that it lacks to begin.

    The run records who skipped what, and its report repeats it. No file is made up.

    \b
      windlass skip --why "reviewed by hand"
    """
    here = app()
    row = here.service.run_to_change(run)
    _stage(here, row.id, "")
    return _detour(here, row.id, "waive", why, as_json)


def _stage(here: App, run: str, name: str) -> str:
    """The stage to restart: one that has begun and is not disabled."""
    view = here.service.view(run)
    if not view.stages:
        if view.phase is None and not view.state.final:
            raise UserError(f"run {run} has not begun", hint="windlass resume")
        raise UserError(f"flow '{view.flow}' has no stages", hint="windlass retry repeats a failed step")
    known, current = list(view.stages), view.stage or next(iter(view.stages))
    stage = name or current
    if stage not in known:
        raise UserError(f"there is no stage '{stage}'", hint=near(stage, known))
    if not view.stages[stage].enabled:
        raise UserError(f"stage {stage} is disabled in this run", hint="start a new run to enable it")
    if known.index(stage) > known.index(current):
        raise UserError(f"stage {stage} has not begun: the run is in {current}", hint="windlass status")
    return stage


def _detour(here: App, run: str, target: str, why: str, as_json: bool) -> int:
    command = "windlass skip" if target == "waive" else "windlass restart"
    driven = here.service.controls.detour(run, target, command, why)
    if not driven:
        return continue_run(here, run, as_json)
    what = "will go on without this phase" if target == "waive" else f"will {target}"
    if as_json:
        echo_json({"run": run, "state": here.service.run(run).state, "message": f"run {run} {what}"})
    else:
        click.echo(f"run {run} {what} as soon as its agents have ended; see windlass status")
    return 0


@click.command(hidden=True)
@click.argument("run")
def drive(run: str) -> int:
    """Drive a detached run."""
    return _drive(app(), run, as_json=False, alone=True)


def resume_active() -> int:
    """What `windlass` does without a command."""
    here = app()
    if here.service.active() is not None:
        return continue_run(here, here.service.run_to_change().id)
    request = ""
    if is_interactive():
        click.echo("─── Start Workflow ───")
        try:
            request = str(click.prompt("What do you want to build?", default="", show_default=False)).strip()
        except click.Abort:
            click.echo()
        require_text(request, "the request")
    if not request:
        click.echo('No run is active here. Start one: windlass run "what to build"')
        return 0
    return int(click.get_current_context().invoke(run, request=(request,)))


def continue_run(
    here: App, run: str, as_json: bool = False, policy: AnswerPolicy | None = None, *, detach: bool = False, **more: Any
) -> int:
    """Drive a run the way it was started: a detached run gets a background driver again."""
    row = here.service.run(run)
    if (detach or row.options.get("detached")) and not policy and not any(more.values()):
        return _drive_in_background(here, row.id, as_json)
    return _drive(here, row.id, as_json=as_json, policy=policy, **more)


# -- helpers


def _start(request: str, flow: str, plan: str, options: dict[str, Any]) -> Start:
    return Start(
        request=request,
        flow=flow,
        settings=pairs(options["settings"], "--set"),
        agent=options["agent"] or ("scripted" if options["script"] else ""),
        roles=_roles(options["roles"]),
        script=_path(options["script"]),
        budget=options["budget"],
        slots=options["slots"],
        keep=options["keep"],
        mode="lean" if options["lean"] else "",
        in_place=options["in_place"],
        detached=options["detach"],
        plan=plan,
        policy=_policy(options),
    )


def _begin(start: Start, options: dict[str, Any]) -> int:
    if not start.request.strip():
        raise UserError("the request is empty", hint='windlass run "what to build"')
    as_json = options["as_json"]
    here = session().apps.in_clone(options["repo"]) if options["repo"] else app()
    if options["repo"] and not as_json:
        where, again = here.host.cwd, program(here.host.named)
        click.echo(f"repository: {where}, a clone that Windlass manages; go there, or: {again} status")
    old = None if options["parallel"] else here.service.active()
    if old is not None and not _replace_active(here, old.id, as_json=as_json):
        return continue_run(here, old.id)
    run = here.start(start)
    return _drive_in_background(here, run, as_json) if start.detached else _drive(here, run, as_json=as_json)


def _replace_active(here: App, id: str, *, as_json: bool) -> bool:
    """Ask whether to abort the active run: a bare `windlass` can continue only one."""
    old = here.service.run(id)
    if as_json or not is_interactive():
        raise UserError(
            f"run {old.id} is {old.state}: {old.request[:60]}",
            hint="continue it with windlass resume, end it with windlass abort, or start a second one with run --new",
        )
    click.echo(f"Run {old.id} is {old.state}: {clean(old.request, 60)}")
    click.echo("If you abort it, its branch and its history are kept. If you do not, it continues.")
    if not click.confirm(f"Abort run {old.id} and start a new one?"):
        return False
    click.echo(here.service.controls.abort(id))
    return True


def _drive_in_background(here: App, run: str, as_json: bool) -> int:
    pid = here.detach(run)
    if as_json:
        echo_json({"run": run, "pid": pid})
    else:
        watch = f"{program(here.host.named)} log {run} --follow"
        click.echo(f"run {run} continues in the background (process {pid}); watch it: {watch}")
    return 0


def continue_silently(here: App, run: str) -> tuple[int, dict[str, Any]]:
    """As `continue_run`, without output. Returns the exit code and the result as data."""
    if here.service.run(run).options.get("detached"):
        return 0, {"pid": here.detach(run)}
    from windlass.runs.drive import drive

    ended = drive(here.project, run, on_event=lambda recorded: None)
    return int(ended.exit), _result_json(replace(ended, hint=add_repository(ended.hint, here.host.named)))


def _drive(here: App, run: str, *, as_json: bool, alone: bool = False, **more: Any) -> int:
    from windlass.runs.drive import drive

    display = make_display(here, run, as_json=as_json, alone=alone)
    try:
        ended = drive(
            here.project, run, on_event=display.on_event, asker=display.asker, interface=display.alongside, **more
        )
    finally:
        display.close()
    ended = replace(ended, hint=add_repository(ended.hint, here.host.named))
    if display.left(ended):
        here.service.controls.detach(run)
        return _drive_in_background(here, run, as_json)
    if as_json:
        click.echo(json.dumps(_result_json(ended)))
        return int(ended.exit)
    if ended.kept:
        out = page()
        out.line("Kept slots:", indent=2)
        for path in ended.kept:
            out.command(str(path), indent=4)
        out.line("Remove them with:", indent=2)
        out.command(f"{program(here.host.named)} gc {ended.run}", indent=4)
        click.echo(out.text(), nl=False)
    if ended.exit not in (0, 10, 11) and ended.reason:
        # Repeat on stderr what the last event printed, for callers that log only errors.
        state = "finished in part" if ended.exit is Exit.IN_PART else ended.state
        click.echo(f"{state}: {ended.reason}", err=True)
        if ended.hint:
            click.echo(f"hint: {ended.hint}", err=True)
    return int(ended.exit)


def _result_json(ended: DriveResult) -> dict[str, Any]:
    return {
        "run": ended.run,
        "state": ended.state,
        "in_part": ended.exit is Exit.IN_PART,
        "exit": int(ended.exit),
        "reason": ended.reason,
        "hint": ended.hint,
        "kept": [str(path) for path in ended.kept],
    }


def _policy(options: dict[str, Any]) -> AnswerPolicy:
    yes = set(options["yes"])
    return AnswerPolicy(pairs(options["answers"], "--answer"), "*" in yes, frozenset(yes - {"*"}), options["wait"])


def _roles(given: tuple[str, ...]) -> dict[str, str]:
    return pairs(given, "--role", example="implementer=claude:opus:high")


def _path(script: str) -> str:
    return str(Path(script).resolve()) if script else ""


COMMANDS = {
    "run": run,
    "task": task,
    "resume": resume,
    "retry": retry,
    "restart": restart,
    "skip": skip,
    "workflow": workflow,
    "drive": drive,
}
