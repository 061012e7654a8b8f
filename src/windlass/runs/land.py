"""After a run: land its result, and remove what is no longer needed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from msgspec import Struct

from windlass.agents.process.supervise import ProcessActivity, running_processes
from windlass.errors import StoppedError, UserError
from windlass.events import BranchPublished, CommandFinished
from windlass.git import run as git
from windlass.git import user_repo
from windlass.git.engine_repo import EngineRepo
from windlass.git.gc import OwnBranch, collect_homes, gc
from windlass.git.publish import LandPlan, copy_tip, land_commit, land_plan, plan_landing, publish
from windlass.git.slots import Lease
from windlass.locks import is_driven
from windlass.model import Collected, GcRemoved, LandResult, LandStyle, RunState
from windlass.paths import state_dir
from windlass.runs.check import RUN as CHECK
from windlass.runs.check import check_tree
from windlass.runs.project import Project
from windlass.runs.service import Host, Service
from windlass.runs.settle import record_landing, settle_checkout
from windlass.runs.unlanded import tip_of
from windlass.store.epoch import Person
from windlass.store.port import Store
from windlass.store.rows import RunRow
from windlass.text import plain, plural
from windlass.views.state import View

PLACEHOLDERS = ("run", "branch", "into", "request", "title", "tip", "tasks")
TITLE = 72


class LandOptions(Struct, frozen=True):
    unfinished: bool = False
    style: LandStyle = LandStyle.AUTO
    message: str = ""
    """A template with PLACEHOLDERS. '': git's default text for a merge, the request for a squash."""
    signoff: bool = False
    force_red: bool = False


class LandReport(Struct, frozen=True):
    name: str
    """What landed: the run's branch, or the run if it has no branch."""
    result: LandResult
    checks: str
    """passed | known failures | unchecked | failed; '' if there was nothing to do."""


def land(
    project: Project, service: Service, row: RunRow, options: LandOptions, say: Callable[[str], None]
) -> LandReport:
    """Merge the run's tip into the current branch. `say` prints progress. If it raises, nothing has changed."""
    settled = settle_checkout(service)
    if settled:
        say(settled.text)
    if row.state is not RunState.FINISHED and not options.unfinished:
        raise UserError(
            f"run {row.id} is {row.state}, not finished",
            hint=f"windlass resume {row.id} continues it; windlass land {row.id} --unfinished lands what is done",
        )
    view, user = service.view(row.id), user_repo.discover(service.host.cwd)
    engine = EngineRepo.open(user, state_dir(service.host.environ))
    tip = tip_of(service, engine, row.id)
    if tip == view.base:
        raise UserError(f"run {row.id} has no landed tasks", hint=f"windlass show {row.id}")
    name = view.published or f"run {row.id}"
    copy_tip(engine, tip)
    # After a squash, the branch does not contain the tip: the journal records the landing.
    landed = view.landed if view.landed and view.landed.tip == tip else None
    is_landed = landed is not None and git.is_ancestor(user.root, landed.commit, user.head)
    # A message or a sign-off needs a commit.
    wants_commit = options.style is LandStyle.AUTO and (options.message or options.signoff)
    plan = None if is_landed else plan_landing(user, tip, name, LandStyle.NO_FF if wants_commit else options.style)
    if plan is None or plan.kind == "already":
        catch_up(service, engine, row.id, tip)
        return LandReport(name, LandResult(user.branch, user.head, user.head, "already"), "")
    message = _message(options, plan, view, name)
    checks = _run_checks(project, service, row.id, user, plan, options, say)
    after = land_commit(user, plan, message, signoff=options.signoff)
    facts = {"tip": tip, "how": plan.kind, "checks": checks}
    result = land_plan(user, plan, after, row.id, facts, lambda move: record_landing(service.store, move))
    catch_up(service, engine, row.id, tip)
    return LandReport(name, result, checks)


def catch_up(service: Service, engine: EngineRepo, run: str, tip: str) -> None:
    """Move the run's branch to its tip, if it stayed behind because it was checked out.

    A branch that the user moved or deleted is not touched.
    """
    last = service.store.events.last(run, BranchPublished)
    if last is None or last.commit == tip or service.is_driven(run):
        return
    ref = f"refs/heads/{last.branch}"
    now = git.read_refs(engine.user.root, ref).get(ref, "")
    if now not in (last.commit, tip) or not now:
        return
    copy_tip(engine, tip)
    done = publish(engine, run, last.branch, tip, now)
    if done.commit == tip:
        service.store.events.add(Person(run), BranchPublished(done.branch, done.commit, done.note, tip))


def _message(options: LandOptions, plan: LandPlan, view: View, name: str) -> str:
    words = " ".join(plain(view.request).split())
    values = {
        "run": view.run,
        "branch": name,
        "into": plan.branch,
        "request": plain(view.request).strip(),
        "title": words if len(words) <= TITLE else words[: TITLE - 1].rsplit(" ", 1)[0] + "…",
        "tip": plan.tip,
        "tasks": "\n".join(f"- {plain(task.title)}" for task in view.tasks if task.landed),
    }
    default = "{title}\n\n{tasks}\n\nWindlass-Run: {run}" if plan.kind == "squash" else "Merge branch '{branch}'"
    try:
        text = (options.message or default).format_map(values).strip()
    except (KeyError, IndexError, ValueError, AttributeError) as error:
        known = ", ".join(f"{{{name}}}" for name in PLACEHOLDERS)
        raise UserError(
            f"--message cannot be used as a template: {error}", hint=f"it may contain {known}; {{{{ is a brace"
        ) from None
    if not text:
        raise UserError("--message is empty", hint='--message "{title}"')
    return text


def _run_checks(
    project: Project,
    service: Service,
    run: str,
    user: user_repo.UserRepo,
    plan: LandPlan,
    options: LandOptions,
    say: Callable[[str], None],
) -> str:
    """Run the checks on the merged files. Refuse if they fail, unless the person forces it."""
    commands = project.config().checks.commands
    if not commands:
        return "unchecked"
    say(f"running {plural(len(commands), 'check')} on the merged result ...")
    verdict = check_tree(project, user, plan.tree, [plan.before, plan.tip], known_failures(service.store, run))
    if verdict.ok or options.force_red:
        return verdict.label
    red = [event for event in verdict.events if isinstance(event, CommandFinished) and not event.ok]
    raise StoppedError(
        f"the checks fail on the merged result: {', '.join(event.command for event in red)}\n"
        f"{verdict.output.strip()[-2000:]}",
        hint=f"nothing was changed; windlass land {run} --force-red lands it anyway",
    )


def known_failures(store: Store, run: str) -> frozenset[str]:
    """Tests that failed before the run started and that a person accepted."""
    accepted = any(q.answer == "accept" for q in store.questions.all(run) if q.id.startswith("baseline"))
    looks = [step.result for step in store.steps.all(run) if step.key.startswith("baseline/checks")]
    if not accepted or not looks or not isinstance(looks[-1], dict):
        return frozenset()
    failing = looks[-1].get("failing")
    return frozenset(str(test) for test in failing) if isinstance(failing, list) else frozenset()


def collect(
    service: Service,
    runs: Sequence[str],
    keep: Collection[str],
    refs: Collection[str],
    *,
    dry: bool,
    keep_transcripts: bool = False,
    gone: bool = False,
) -> list[Collected]:
    """Remove data of final runs. Returns what was removed and what was kept.

    `runs`: only these, including their slots that `--keep` kept; empty means all final runs. `keep`: skip these.
    `refs`: remove these even if no branch contains them. `keep_transcripts`: keep the output of agents and checks.
    `gone`: also remove all data of repositories that no longer exist.
    """
    chosen = [service.run(id) for id in runs] or [row for row in service.runs() if row.state.final]
    for row in chosen:
        _require_final(row)
    spared = {service.run(id).id for id in keep}
    rows = {row.id: row for row in chosen if row.id not in spared and not service.is_driven(row.id)}
    host, final = service.host, set(rows)
    settle_checkout(service)
    engine = EngineRepo.open(user_repo.discover(host.cwd), state_dir(host.environ))
    _require_known(engine, refs, final)
    for id in () if dry else rows:
        last = service.store.events.last(id, BranchPublished)
        if last and last.tip not in ("", last.commit):
            catch_up(service, engine, id, last.tip)
    branches = [branch for row in rows.values() for branch in _own_branch(service.store, row)]
    # A killed `windlass check` leaves a slot too.
    checks = set() if is_driven(host.place.lock(CHECK)) else {CHECK}
    found = gc(
        engine,
        final | checks,
        dry=dry,
        date=host.clock(),
        named=refs,
        chosen=final if runs else set(),
        occupant=partial(_occupant, running_processes()),
        branches=branches,
    )
    removed = [] if keep_transcripts else [_remove_transcripts(host, run, dry=dry) for run in sorted(final)]
    homes = collect_homes(state_dir(host.environ), gone=gone, dry=dry) if not runs else ()
    return [*found, *(one for one in removed if one), *homes]


def _occupant(processes: Sequence[ProcessActivity], lease: Lease, path: Path) -> str:
    """Names a process that works in the slot. Such a slot is never removed, whatever the records say."""
    for process in processes:
        if process.cwd.is_relative_to(path) or (lease.run and process.marker.startswith(f"{lease.run}:")):
            return f"process {process.pid} is running in it; `kill {process.pid}`, then `windlass gc`"
    return ""


def _remove_transcripts(host: Host, run: str, *, dry: bool) -> GcRemoved | None:
    """Remove the attempts' folders: prompts, streams, output of checks. The database keeps events and results."""
    folders = [host.place.run_folder(run) / name for name in ("attempts", "setup")]
    size = sum(_bytes_below(folder) for folder in folders)
    if not any(folder.is_dir() for folder in folders):
        return None
    for folder in () if dry else folders:
        if folder.is_dir():
            shutil.rmtree(folder)
    return GcRemoved(f"transcripts of run {run}, {size / 2**20:.1f} MB")


def _bytes_below(folder: Path) -> int:
    """The size on disk; links are not followed."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                total += os.lstat(os.path.join(place, name)).st_blocks * 512
    return total


def _own_branch(store: Store, row: RunRow) -> list[OwnBranch]:
    """The branch that this run made, at the commit where the run left it."""
    last = store.events.last(row.id, BranchPublished)
    return [OwnBranch(row.id, last.branch, last.commit, row.facts.base)] if last and last.commit else []


def _require_final(row: RunRow) -> None:
    if not row.state.final:
        raise UserError(
            f"run {row.id} is {row.state}, so its work is still needed", hint=f"end it with windlass abort {row.id}"
        )


def _require_known(engine: EngineRepo, refs: Collection[str], final: Collection[str]) -> None:
    ours = [f"refs/windlass/{run}/" for run in final] + [f"refs/windlass/keep/{run}/" for run in final]
    present = {*engine.refs.all(), *git.read_refs(engine.user.root, "refs/windlass/")}
    for name in refs:
        if name not in present or not name.startswith(tuple(ours)):
            raise UserError(
                f"'{name}' is not a ref of a finished or aborted run", hint="windlass gc --dry-run lists them"
            )
