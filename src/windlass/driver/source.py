"""Before the first phase of a flow that says `source:`: look at the remote, a working folder, the run's branch."""

from __future__ import annotations

from windlass.dispatch.workspace import Workspace
from windlass.driver.context import StepContext
from windlass.driver.scopes import RunScope, StepPlace
from windlass.events import StepEntered, Warned
from windlass.kinds.spec import PhaseSpec
from windlass.model import Json, Key

KEY = Key().child("source")
QUEUED, SYNC, WORKSPACE, BRANCH = range(4)
"""The places of `source.labels`; the first is reached when the run is recorded."""


async def establish(run: RunScope, workspace: Workspace) -> None:
    """Recorded: a resume does none of it again."""
    spec = run.values.flow.source
    if spec.sync == "none":
        return
    here = StepContext(run, StepPlace(KEY, PhaseSpec(id="source"), workspace))
    _label(here, spec.labels, SYNC)
    behind = str(await here.observe("sync", run.publisher.missing_commits))
    if behind:
        here.emit(Warned("source", behind))
    await here.observe("workspace", lambda: _workspace(workspace))
    _label(here, spec.labels, WORKSPACE)
    await here.observe("branch", run.publisher.show_branch)
    _label(here, spec.labels, BRANCH)


def _label(here: StepContext, labels: tuple[str, ...], place: int) -> None:
    if place < len(labels):
        here.emit(StepEntered(KEY.text, labels[place]), at=str(place))
        here.flush()


async def _workspace(workspace: Workspace) -> Json:
    """A checkout of the base. What an earlier run left in it is kept under refs/windlass/keep first."""
    await workspace.ready("source", 1)
    return workspace.head
