"""Before the first phase of a flow that says `source:`: look at the remote, a working folder, the run's branch."""

from __future__ import annotations

import asyncio

from windlass.dispatch.workspace import Workspace
from windlass.driver.context import StepContext
from windlass.driver.scopes import RunScope
from windlass.events import BranchPublished, StepEntered, Warned
from windlass.git import remote
from windlass.git import run as git
from windlass.git.publish import publish
from windlass.git.remote import Remote
from windlass.kinds.spec import PhaseSpec
from windlass.model import Json, Key

KEY = Key().child("source")
QUEUED, SYNC, WORKSPACE, BRANCH = range(4)
"""The places of `source.labels`; the first is reached when the run is recorded."""


async def establish(shared: RunScope, desk: Workspace) -> None:
    """Recorded: a resume does none of it again."""
    spec = shared.parts.world.flow.source
    if spec.sync == "none":
        return
    here = StepContext(shared, KEY, PhaseSpec(id="source"), desk)
    _label(here, spec.labels, SYNC)
    behind = str(await here.observe("sync", lambda: _sync(shared)))
    if behind:
        here.emit(Warned("source", behind))
    await here.observe("workspace", lambda: _workspace(desk))
    _label(here, spec.labels, WORKSPACE)
    await here.observe("branch", lambda: _branch(shared))
    _label(here, spec.labels, BRANCH)


def _label(here: StepContext, labels: tuple[str, ...], place: int) -> None:
    if place < len(labels):
        here.emit(StepEntered(here.key.text, labels[place]), at=str(place))
        here.flush()


async def _sync(shared: RunScope) -> Json:
    """What the remote has that this run does not begin with, in words; '' when nothing. Changes no ref of the user."""
    world, root = shared.parts.world, shared.parts.engine.user.root
    name = remote.choose(root, world.base_branch)
    if not name or not world.base_branch:
        return ""
    there = Remote(root, name, shared.parts.machine.environ)
    ours = f"refs/windlass/fetched/{world.base_branch}"
    failed = await asyncio.to_thread(there.fetch, world.base_branch, ours)
    if failed:
        return shared.parts.redactor.text(f"'{name}' could not be asked for '{world.base_branch}': {failed}")
    newer = git.run(["rev-list", "--count", f"{world.facts.base}..{ours}"], root).line
    return f"'{name}/{world.base_branch}' has {newer} commits that this run does not begin with" if newer != "0" else ""


async def _workspace(desk: Workspace) -> Json:
    """A working folder at the base. What an earlier run left in it is kept under refs/windlass/keep first."""
    await desk.ready("source", 1)
    return desk.head


async def _branch(shared: RunScope) -> Json:
    world, engine = shared.parts.world, shared.parts.engine
    facts, last = world.facts, world.published_tip
    tip = shared.parts.tip.now
    made = await asyncio.to_thread(lambda: publish(engine, facts.id, facts.branch, tip, last))
    world.published_tip, world.branch = made.commit, made.branch
    with shared.parts.journal.writing("publish", BranchPublished(made.branch, made.commit, made.note, tip)):
        pass
    return made.branch
