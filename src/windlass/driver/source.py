"""Prepares the source before the first phase of a flow with `source:`: remote, checkout and run branch."""

from __future__ import annotations

from windlass.dispatch.workspace import Workspace
from windlass.driver.context import StepContext
from windlass.driver.scopes import RunScope, StepPlace
from windlass.events import StepEntered, Warned
from windlass.kinds.spec import PhaseSpec
from windlass.model import Json, Key

KEY = Key().child("source")
QUEUED, SYNC, WORKSPACE, BRANCH = range(4)
"""Indexes of `source.labels`. The run reaches the first one when it is recorded."""


async def establish(run: RunScope, workspace: Workspace) -> None:
    """All steps are recorded, so a resume does not repeat them."""
    spec = run.values.flow.source
    if spec.sync == "none":
        return
    ctx = StepContext(run, StepPlace(KEY, PhaseSpec(id="source"), workspace))
    _label(ctx, spec.labels, SYNC)
    behind = str(await ctx.observe("sync", run.publisher.missing_commits))
    if behind:
        ctx.emit(Warned("source", behind))
    await ctx.observe("workspace", lambda: _workspace(workspace))
    _label(ctx, spec.labels, WORKSPACE)
    await ctx.observe("branch", run.publisher.show_branch)
    _label(ctx, spec.labels, BRANCH)


def _label(ctx: StepContext, labels: tuple[str, ...], place: int) -> None:
    if place < len(labels):
        ctx.emit(StepEntered(KEY.text, labels[place]), at=str(place))
        ctx.flush()


async def _workspace(workspace: Workspace) -> Json:
    """Check out the base. The work of an earlier run in the slot is first kept under refs/windlass/keep."""
    await workspace.ready("source", 1)
    return workspace.head
