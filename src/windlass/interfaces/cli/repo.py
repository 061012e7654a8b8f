"""Commands about the repository: land, take, gc, check."""

from __future__ import annotations

import click
from msgspec import to_builtins

from windlass.errors import Exit
from windlass.interfaces.cli.common import app, echo_json, json_option, page, run_argument
from windlass.model import GcKept, GcRemoved, LandResult, LandStyle
from windlass.runs.check import CheckReport, CheckSetup
from windlass.text import plural, short_sha


@click.command(short_help="Merge a run's result into your branch.")
@run_argument
@click.option("--unfinished", is_flag=True, help="Land an unfinished run: the tasks that have landed so far.")
@click.option("--squash", is_flag=True, help="Make one commit instead of the run's commits.")
@click.option("--no-ff", "no_ff", is_flag=True, help="Make a merge commit even if a fast-forward is possible.")
@click.option(
    "--message",
    "-m",
    default="",
    metavar="TEMPLATE",
    help="The commit message; may use {run} {branch} {into} {request} {title} {tip} {tasks}. Always makes a commit.",
)
@click.option("--signoff", "-s", is_flag=True, help="Add your Signed-off-by line. Always makes a commit.")
@click.option("--force-red", is_flag=True, help="Land even if the checks fail on the result.")
@json_option
def land(
    run: str,
    unfinished: bool,
    squash: bool,
    no_ff: bool,
    message: str,
    signoff: bool,
    force_red: bool,
    as_json: bool,
) -> None:
    """Merge a run's work into the branch you have checked out.

    The checks run on the merged result first, in a separate folder. If they fail (exit 12) or the merge conflicts
    (exit 1), nothing changes. Commits are signed if your git signs commits (commit.gpgSign).

    \b
      windlass land
      windlass land 3f2a --unfinished
      windlass land --squash -m "{title} (run {run})" --signoff
    """
    from windlass.runs.land import LandOptions
    from windlass.runs.land import land as take

    if squash and no_ff:
        raise click.UsageError("--squash and --no-ff cannot be used together")
    style = LandStyle.SQUASH if squash else LandStyle.NO_FF if no_ff else LandStyle.AUTO
    here = app()
    row = here.service.run_to_change(run)
    options = LandOptions(unfinished, style, message, signoff, force_red)
    done = take(here.project, here.service, row, options, lambda text: click.echo(text, err=True))
    result = done.result
    undo = f"git reset --keep {short_sha(result.before)}" if result.kind != "already" else ""
    if as_json:
        return echo_json(
            {"run": row.id, "landed": done.name, **to_builtins(result), "checks": done.checks, "undo": undo}
        )
    return click.echo(_landing_text(done.name, result, done.checks, undo), nl=False)


@click.command(short_help="Remove files and refs of finished runs.")
@click.argument("runs", nargs=-1, metavar="[RUN]...")
@click.option("--dry-run", "-n", "dry", is_flag=True, help="Show what would be removed, and remove nothing.")
@click.option("--keep", multiple=True, metavar="RUN", help="Keep everything of this run.")
@click.option("--drop", multiple=True, metavar="REF", help="Remove this ref even if no branch contains it.")
@click.option("--keep-transcripts", is_flag=True, help="Keep the output of agents and checks.")
@click.option("--gone", is_flag=True, help="Also remove the data of repositories that no longer exist.")
@json_option
def gc(
    runs: tuple[str, ...],
    dry: bool,
    keep: tuple[str, ...],
    drop: tuple[str, ...],
    keep_transcripts: bool,
    gone: bool,
    as_json: bool,
) -> None:
    """Remove the slots, refs and transcripts of finished and aborted runs, and their merged or empty branches.

    Work that no branch contains is kept, unless you name it with --drop. A branch that you moved or checked out is
    kept too. Events, results and reports stay in the database.

    \b
      windlass gc --dry-run
      windlass gc 3f2a --drop refs/windlass/keep/3f2a.../plan/planner/@1
      windlass gc --gone
    """
    from windlass.runs.land import collect

    if gone and runs:
        raise click.UsageError("--gone is about other repositories and takes no RUN")
    found = collect(app().service, runs, keep, drop, dry=dry, keep_transcripts=keep_transcripts, gone=gone)
    removed = [entry for entry in found if isinstance(entry, GcRemoved)]
    if as_json:
        reasons = ((entry.what, entry.reason if isinstance(entry, GcKept) else None) for entry in found)
        return echo_json([{"what": what, "removed": why is None, "reason": why or ""} for what, why in reasons])
    out = page()
    for entry in removed:
        out.command(f"{'would remove' if dry else 'removed'}  {entry.what}", indent=0)
    for left in (entry for entry in found if isinstance(entry, GcKept)):
        out.command(f"kept  {left.what}", indent=0)
        out.line(left.reason, indent=6)
    verb = "would be removed" if dry else "removed"
    out.line(f"{plural(len(removed), 'thing')} {verb}, {len(found) - len(removed)} kept")
    return click.echo(out.text(), nl=False)


@click.command(short_help="Put a task's work on a branch.")
@click.argument("words", nargs=-1, required=True, metavar="[RUN] TASK")
@click.option(
    "--branch", default="", metavar="NAME", help="The branch to make. By default its name starts with the run's branch."
)
@json_option
def take(words: tuple[str, ...], branch: str, as_json: bool) -> None:
    """Make a branch from the work of a task that did not land: it was refused, skipped or failed.

    TASK is an id, a number, a title, or a ref that `windlass show` lists. Your checkout does not change.

    \b
      windlass take t2
      windlass take 3f2a t2 --branch rescue
    """
    from windlass.runs.unlanded import take_work

    if len(words) > 2:
        raise click.UsageError("give at most one RUN and one TASK")
    service = app().service
    row = service.run_to_change(words[0] if len(words) == 2 else "")
    work, name, made = take_work(service, service.view(row.id), words[-1], branch)
    if as_json:
        return echo_json({"run": row.id, **to_builtins(work), "branch": name, "made": made})
    out = page()
    out.line(f"{work.task} is on branch {name} at {short_sha(work.commit)}{'' if made else ' already'}")
    out.command(f"git diff {short_sha(work.base)}..{name}")
    return click.echo(out.text(), nl=False)


@click.command(short_help="Run the configured checks on HEAD.")
@click.option("--explain", is_flag=True, help="Also show how they run, and verify that they test the slot.")
@json_option
def check(explain: bool, as_json: bool) -> int:
    """Run the configured checks on HEAD in a separate folder, as a run does. Exit 12 if they fail.

    \b
      windlass check
      windlass check --explain
    """
    from windlass.runs.check import check_head, check_setup

    project = app().project
    setup = check_setup(project)
    if not as_json:
        click.echo(f"running {plural(len(setup.commands), 'check')} on HEAD ...", err=True)
    found = check_head(project, canary=explain)
    if as_json:
        echo_json({**to_builtins(found), **({"how": to_builtins(setup)} if explain else {})})
    else:
        click.echo(_check_text(found, setup if explain else None), nl=False)
    return Exit.OK if found.ok else Exit.STOPPED


# -- helpers

HOW = {"fast-forward": "fast-forward", "merge": "merge commit", "squash": "one commit"}


def _landing_text(branch: str, result: LandResult, checks: str, undo: str) -> str:
    out = page()
    if result.kind == "already":
        out.line(f"'{result.branch}' already contains '{branch}'; nothing changed")
        return out.text()
    how = HOW[result.kind] + f", checks: {checks}"
    out.line(
        f"'{result.branch}' now contains '{branch}' ({how}): {short_sha(result.before)} -> {short_sha(result.after)}"
    )
    out.line("undo it with:")
    out.command(undo)
    return out.text()


def _check_text(found: CheckReport, setup: CheckSetup | None) -> str:
    out = page()
    out.line(f"HEAD {short_sha(found.head)}{', without your uncommitted changes' if found.dirty else ''}")
    for result in found.results:
        word = (
            "ok"
            if result.ok
            else f"red (exit {result.code})"
            if result.code is not None
            else "red (it could not start, or a signal or the time limit ended it)"
        )
        out.line(f"{word}  {result.command}  {result.seconds:.1f} s", hang=4)
        if not result.ok:
            out.block(result.tail, indent=4)
    if setup is not None:
        limit = f"{setup.setup_timeout_s:g} s each"
        once = f"{'; '.join(setup.setup)}, {limit}; once per slot and after a lock file changes"
        out.line()
        out.field("Where", "a slot: a clean checkout of HEAD outside your repository, without ignored files", column=13)
        out.field("Commands", f"in this order, up to the first that fails: {'; '.join(setup.commands)}", column=13)
        out.field("Time limit", f"{setup.timeout_s:g} s each", column=13)
        out.field("Set-up", once if setup.setup else "none (workspace.setup)", column=13)
        out.field("Copied in", ", ".join(setup.copied) or "nothing (workspace.copy)", column=13)
        out.field("Environment", f"{', '.join(setup.variables)}; add more with workspace.env", column=13)
        out.field("Canary", found.canary or "not tried, because the checks failed", column=13)
    return out.text()


COMMANDS = {"land": land, "take": take, "gc": gc, "check": check}
