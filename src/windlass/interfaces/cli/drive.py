"""Commands that drive: run, resume, retry, task."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from msgspec.structs import replace

from windlass.answers import AnswerPolicy
from windlass.errors import Exit, UserError, require_text
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
from windlass.interfaces.cli.display import watching
from windlass.model import RunState, question_of
from windlass.runs.app import App
from windlass.runs.drive import DriveResult
from windlass.runs.start import Start, task_of_plan
from windlass.text import clean
from windlass.views.outlook import addressed, called

CASTING = "NAME=AGENT"


class RequestCommand(click.Command):
    """A quoted request may begin with dashes: a word with spaces that is no option of ours is text."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        known = tuple(f"{name}=" for option in self.get_params(ctx) for name in option.opts)
        texts = [] if "--" in args else [a for a in args if a.startswith("-") and " " in a and not a.startswith(known)]
        rest = [a for a in args if a not in texts]
        return super().parse_args(ctx, [*rest, "--", *texts] if texts else rest)


def run_options(command: Callable[..., Any]) -> Callable[..., Any]:
    options = [
        click.option("--set", "settings", multiple=True, metavar="K=V", help="A setting of the flow; it is not asked."),
        click.option("--answer", "answers", multiple=True, metavar="KEY=VALUE", help="Answer KEY once; KEY*=V always."),
        click.option(
            "--yes",
            "yes",
            multiple=True,
            metavar="[KEY]",
            is_flag=False,
            flag_value="*",
            help="Take the safe answer; name mandatory ones.",
        ),
        click.option("--agent", default="", metavar="A", help="This agent for every role."),
        click.option(
            "--role", "roles", multiple=True, metavar=CASTING, help="For a role; also NAME=AGENT:MODEL:EFFORT."
        ),
        click.option("--script", default="", metavar="FILE", help="What the scripted agent says."),
        click.option("--budget", type=click.FloatRange(min=0), metavar="USD", help="Stop before spending more."),
        click.option("--slots", type=click.IntRange(min=1), metavar="N", help="Tasks at work at the same time."),
        click.option("--lean", is_flag=True, help="The flow's short mode."),
        click.option("--in-place", is_flag=True, help="Your checkout follows the run's branch."),
        click.option("--keep", is_flag=True, help="The folders agents worked in stay as they are, for you to look at."),
        click.option("--repo", default="", metavar="URL", help="In a clone of URL that Windlass keeps for itself."),
        click.option("--detach", is_flag=True, help="Drive in the background."),
        click.option("--wait", is_flag=True, help="Without a terminal: wait for an answer from elsewhere."),
        click.option("--new", "beside", is_flag=True, help="Start although another run is active."),
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
    help="A flow's name or file; windlass flow list.",
)
@run_options
def run(request: tuple[str, ...], flow: str, **options: Any) -> int:
    """Start a run: from REQUEST to reviewed, tested, landed code on a branch of its own.

    \b
      windlass run "Add rate limiting"
      windlass run "Add rate limiting" --set review_mode=iterative --yes --budget 5
      windlass run --flow task "Rename Config.load to Config.read"
      windlass run --flow team --repo https://host/owner/name.git "Add rate limiting"
      windlass run -- "--verbose should be the default"
    """
    return _begin(_start(" ".join(request), flow, "", options), options)


@click.command(cls=RequestCommand, short_help="One task, without the ceremony.")
@click.argument("request", nargs=-1)
@click.option(
    "--plan", type=click.Path(exists=True, dir_okay=False), help="A plan you wrote, with a superteam-tasks block."
)
@run_options
def task(request: tuple[str, ...], plan: str | None, **options: Any) -> int:
    """Implement, review and land one task: no plan, no configuration, no final review.

    With --plan, REQUEST names one task of that plan by its title, id or number. Without REQUEST all of them are
    carried out.

    \b
      windlass task "Rename Config.load to Config.read"
      windlass task --plan docs/plans/mine.md "Rate limit middleware"
      windlass task --plan docs/plans/mine.md 2
      windlass task --plan docs/plans/mine.md
    """
    words = " ".join(request)
    if not words and not plan:
        raise UserError("a request or --plan is needed", hint='windlass task "Rename Config.load"')
    if plan is None:
        return _begin(_start(words, "task", "", options), options)
    text = Path(plan).read_text(encoding="utf-8", errors="replace")
    if not words:
        return _begin(_start(Path(plan).stem, "task", text, options), options)
    title, text = task_of_plan(text, words)
    return _begin(_start(title, "task", text, options), options)


@click.command(cls=RequestCommand, short_help="Start, answer or go on, whichever fits.")
@click.argument("text", nargs=-1)
@click.pass_context
def workflow(ctx: click.Context, text: tuple[str, ...]) -> int:
    """One command for everything: TEXT answers the open question, else it is what to build. Without TEXT the active
    run goes on. `status` and `abort` are commands here too.

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
    asked = here.service.pending(active.id) if active else []
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
        row, given = here.service.answer(active.id, "", words, "", "windlass workflow")
        click.echo(f"{row.id}: {given.value}")
        return 0 if here.service.driven(active.id) else go_on(here, active.id)
    return int(ctx.invoke(run, request=(words,)))


@click.command(short_help="Go on with a run.")
@run_argument
@click.option("--budget", type=click.FloatRange(min=0), metavar="USD", help="A new limit.")
@click.option("--answer", "answers", multiple=True, metavar="KEY=VALUE")
@click.option("--yes", "yes", multiple=True, metavar="[KEY]", is_flag=False, flag_value="*")
@click.option("--agent", default="", metavar="A", help="Another agent for every role.")
@click.option("--role", "roles", multiple=True, metavar=CASTING, help="For a role; also NAME=AGENT:MODEL:EFFORT.")
@click.option("--script", default="", metavar="FILE")
@click.option("--detach", is_flag=True)
@click.option("--wait", is_flag=True)
@json_option
def resume(run: str, budget: float | None, agent: str, script: str, detach: bool, as_json: bool, **said: Any) -> int:
    """Go on where a run stopped; what has a result is not done again.

    \b
      windlass resume
      windlass resume 3f2a --budget 40
      windlass resume --role implementer=codex
    """
    here = app()
    more = {"budget": budget, "agent": agent, "script": _path(script), "roles": _roles(said.pop("roles"))}
    policy = _policy(said) if any(said.values()) else None
    return go_on(here, here.service.meant(run).id, as_json, policy, detach=detach, **more)


@click.command(short_help="Try again what a run stopped at.")
@run_argument
@json_option
def retry(run: str, as_json: bool) -> int:
    """Try again what a run stopped at, as a new visit; everything else stays as it is.

    \b
      windlass retry
    """
    here = app()
    row = here.service.meant(run)
    if row.state not in (RunState.STOPPED, RunState.BLOCKED):
        raise UserError(f"run {row.id} is {row.state}, not stopped", hint="windlass resume goes on with it")
    return go_on(here, row.id, as_json)


@click.command(hidden=True)
@click.argument("run")
def drive(run: str) -> int:
    """What a detached run starts."""
    return _drive(app(), run, as_json=False, alone=True)


def resume_active() -> int:
    """A bare `windlass`."""
    here = app()
    if here.service.active() is not None:
        return go_on(here, here.service.meant().id)
    request = require_text(_wished(), "the request") if is_interactive() else ""
    if not request:
        click.echo('No run is active here. Start one: windlass run "what to build"')
        return 0
    return int(click.get_current_context().invoke(run, request=(request,)))


def _wished() -> str:
    try:
        click.echo("─── Start Workflow ───")
        return str(click.prompt("What is to be built?", default="", show_default=False)).strip()
    except click.Abort:
        click.echo()
        return ""


def go_on(
    here: App, run: str, as_json: bool = False, policy: AnswerPolicy | None = None, *, detach: bool = False, **more: Any
) -> int:
    """As the run was started: a detached one gets a driver of its own again."""
    row = here.service.run(run)
    if (detach or row.options.get("detached")) and not policy and not any(more.values()):
        return _detached(here, row.id, as_json)
    return _drive(here, row.id, as_json=as_json, policy=policy, **more)


# -- inside


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
    here = _in_clone(options["repo"], options["as_json"]) if options["repo"] else app()
    old = None if options["beside"] else here.service.active()
    if old is not None and not _replaced(here, old.id, as_json=options["as_json"]):
        return go_on(here, old.id)
    run = here.start(start)
    if start.detached:
        return _detached(here, run, options["as_json"])
    return _drive(here, run, as_json=options["as_json"])


def _in_clone(url: str, as_json: bool) -> App:
    found = session().apps.in_clone(url)
    if not as_json:
        where, again = found.world.cwd, called(found.world.named)
        click.echo(f"repository: {where}, a clone that Windlass keeps; go there, or: {again} status")
    return found


def _replaced(here: App, id: str, *, as_json: bool) -> bool:
    """One active run per repository is what a bare `windlass` means: a new one takes the old one's place, or waits."""
    old = here.service.run(id)
    if as_json or not is_interactive():
        raise UserError(
            f"run {old.id} is {old.state}: {old.request[:60]}",
            hint="windlass resume goes on with it, windlass abort ends it, run --new starts another beside it",
        )
    click.echo(f"Run {old.id} is {old.state}: {clean(old.request, 60)}")
    click.echo("Yes aborts it (its branch and its record stay) and starts the new one; no goes on with it.")
    if not click.confirm("Start the new one?"):
        return False
    click.echo(here.service.abort(id))
    return True


def _detached(here: App, run: str, as_json: bool) -> int:
    pid = here.detach(run)
    if as_json:
        echo_json({"run": run, "pid": pid})
    else:
        watch = f"{called(here.world.named)} log {run} --follow"
        click.echo(f"run {run} goes on in the background (process {pid}); watch it: {watch}")
    return 0


def go_on_silently(here: App, run: str) -> tuple[int, dict[str, Any]]:
    """As `go_on`, for who wants to know only what it came to: the exit code, and that as data."""
    if here.service.run(run).options.get("detached"):
        return 0, {"pid": here.detach(run)}
    from windlass.runs.drive import drive

    ended = drive(here.kit, run, on_event=lambda recorded: None)
    return int(ended.exit), _in_short(replace(ended, hint=addressed(ended.hint, here.world.named)))


def _drive(here: App, run: str, *, as_json: bool, alone: bool = False, **more: Any) -> int:
    from windlass.runs.drive import drive

    face = watching(here, run, as_json=as_json, alone=alone)
    try:
        ended = drive(here.kit, run, on_event=face.on_event, asker=face.asker, beside=face.beside, **more)
    finally:
        face.gone()
    ended = replace(ended, hint=addressed(ended.hint, here.world.named))
    if face.left(ended):
        here.service.leave(run)
        return _detached(here, run, as_json)
    if as_json:
        click.echo(json.dumps(_in_short(ended)))
    else:
        _tell_kept(ended, here.world.named)
        _last_words(ended)
    return int(ended.exit)


def _in_short(ended: DriveResult) -> dict[str, Any]:
    told = {"run": ended.run, "state": ended.state, "in_part": ended.exit is Exit.IN_PART, "exit": int(ended.exit)}
    kept = [str(path) for path in ended.kept]
    return {**told, "reason": ended.reason, "hint": ended.hint, "kept": kept}


def _tell_kept(ended: DriveResult, place: str) -> None:
    if not ended.kept:
        return
    out = page()
    out.line("Kept for you to look at, as agents left them:", indent=2)
    for path in ended.kept:
        out.command(str(path), indent=4)
    out.line("Remove them with:", indent=2)
    out.command(f"{called(place)} gc {ended.run}", indent=4)
    click.echo(out.text(), nl=False)


def _last_words(ended: DriveResult) -> None:
    """What stopped it was said by the event; on stderr it also reaches those who log only errors."""
    if ended.exit not in (0, 10, 11) and ended.reason:
        state = "finished in part" if ended.exit is Exit.IN_PART else ended.state
        click.echo(f"{state}: {ended.reason}", err=True)
        if ended.hint:
            click.echo(f"hint: {ended.hint}", err=True)


def _policy(options: dict[str, Any]) -> AnswerPolicy:
    yes = set(options["yes"])
    return AnswerPolicy(pairs(options["answers"], "--answer"), "*" in yes, frozenset(yes - {"*"}), options["wait"])


def _roles(told: tuple[str, ...]) -> dict[str, str]:
    return pairs(told, "--role", example="implementer=claude:opus:high")


def _path(script: str) -> str:
    return str(Path(script).resolve()) if script else ""


COMMANDS = {"run": run, "task": task, "resume": resume, "retry": retry, "workflow": workflow, "drive": drive}
