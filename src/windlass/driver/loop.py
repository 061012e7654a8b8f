"""Asks the machine for the next decision, performs it and records it, until the run ends."""

from __future__ import annotations

from typing import assert_never

from windlass.dispatch.workspace import Workspace
from windlass.driver import adoption, baseline, source
from windlass.driver.context import StepContext
from windlass.driver.scopes import Reentry, RunScope, StepPlace
from windlass.driver.tasks_phase import PhaseContext
from windlass.engine import machine
from windlass.engine.journal import again_count, refuse_unknown
from windlass.engine.machine import AskQuestion, End, RunPhase, SkipPhase, State
from windlass.events import PhaseEntered, PhaseFinished, PhaseSkipped, TaskChanged
from windlass.kinds import KINDS
from windlass.kinds.base import Outcome
from windlass.kinds.routes import To
from windlass.kinds.spec import PhaseSpec
from windlass.model import Json, Key, RunState
from windlass.tasks.context import COMPLETE, EndRunError


class RunLoop:
    """One pass over the run. It replays recorded steps and performs the others."""

    def __init__(self, run: RunScope, *, retry: bool) -> None:
        self._run = run
        self._flow = run.values.flow
        self._journal = run.journal
        self._retry = retry
        """A person asked to retry after a stop."""
        self._stops = 0
        self._continued: set[tuple[str, int]] = set()
        """Phases and visits that continue the visit before, because a person asked to try again."""

    async def run(self) -> End:
        run = self._run
        workspace = run.workspace(run.values.facts.base)
        try:
            await source.establish(run, workspace)
            await baseline.establish(run, workspace)
            end = await self._loop(workspace)
        finally:
            try:
                await workspace.leave("driver")
                await run.site.close()
                await run.lander.branch.publish()
            finally:
                await run.lander.branch.close()
        run.lander.branch.require_published()
        return end

    async def _loop(self, workspace: Workspace) -> End:
        values = self._run.values
        state = machine.start(self._flow, values.mode)
        while True:
            values.mode = state.mode
            decision = machine.decide(self._flow, state, values)
            match decision:
                case RunPhase():
                    state = await self._phase(state, decision, workspace)
                case SkipPhase():
                    key = Key().child(decision.phase.id, visit=decision.visit).text
                    self._journal.emit(key, PhaseSkipped(decision.phase.id, key, decision.reason))
                    state = machine.after_skip(self._flow, state, values)
                case AskQuestion():
                    state = await self._ask(state, decision, workspace)
                case End():
                    again = await self._retry_stop(state, decision)
                    if again is None:
                        return decision
                    state = again
                case _:
                    assert_never(decision)

    # -- performing

    async def _phase(self, state: State, todo: RunPhase, workspace: Workspace) -> State:
        phase, values = todo.phase, self._run.values
        key = Key().child(phase.id, visit=todo.visit)
        found = self._run.outcomes.get(phase.id)
        to_fix = found.findings if found and todo.fixing else ()
        earlier_visits = self._earlier_visits(phase.id, todo.visit)
        ctx = PhaseContext(
            self._run, StepPlace(key, phase, workspace, again=Reentry(to_fix=to_fix), earlier_visits=earlier_visits)
        )
        stage, label = self._flow.stage_of(phase.id), phase.label.enter or phase.id
        ctx.emit(PhaseEntered(phase.id, key.text, phase.kind, label, stage.id if stage else ""))
        await adoption.apply(self._run, ctx)
        if phase.OWN_SLOTS:
            # Tasks take their own slots.
            await workspace.leave(key.text)
        try:
            outcome = await KINDS[phase.kind].run(phase, ctx)
        except EndRunError as end:
            self._leave(ctx, phase, Outcome(str(end.target), end.reason))
            return machine.after_target(self._flow, state, values, end.target, end.reason)
        # Designs and plans are committed to the run's branch when their phase ends.
        names = sorted(name for name in phase.artifacts_out() if self._flow.artifacts[name].commit)
        made = [name for name in names if ctx.values.artifact(name) is not None]
        if made:
            commit = key.child("commit")
            ctx.set_head(await self._run.artifacts.commit(commit, made, phase.id), commit)
        refuse_unknown(self._journal, key)
        self._run.outcomes[phase.id] = outcome
        if outcome.name in ("pass", "noted"):
            # A passed review of the whole list completes its implemented tasks.
            for task in self._run.implemented.pop(phase.completes_tasks_of(), ()):
                ctx.emit(TaskChanged(task.id, COMPLETE, visit=task.visit), at=f"completes.{task.id}")
        self._leave(ctx, phase, outcome)
        return machine.after_outcome(self._flow, state, values, outcome.name, outcome.detail)

    async def _ask(self, state: State, todo: AskQuestion, workspace: Workspace) -> State:
        key = Key().child(todo.phase.id, visit=todo.visit).child("asked", cycle=todo.nth)
        ctx = StepContext(self._run, StepPlace(key, todo.phase, workspace))
        answer = await ctx.ask(ctx.values.question(todo.question, todo.reason))
        after = machine.after_answer(self._flow, state, self._run.values, answer.value)
        if self._flow.questions[todo.question].options[answer.value].to is To.AGAIN:
            self._note_continued(state, after)
        return after

    def _note_continued(self, before: State, after: State) -> None:
        if after.visit > before.visits.get(after.at, 0):
            self._continued.add((after.at, after.visit))

    def _earlier_visits(self, phase: str, visit: int) -> tuple[Key, ...]:
        found: list[Key] = []
        while (phase, visit) in self._continued:
            visit -= 1
            found.append(Key().child(phase, visit=visit))
        return tuple(found)

    async def _retry_stop(self, state: State, end: End) -> State | None:
        """Continue after a stop that a person has retried. A request for a retry counts for one stop."""
        if end.state not in (RunState.STOPPED, RunState.BLOCKED):
            return None
        if state.failed_in and self._flow.phase(state.failed_in).OWN_SLOTS:
            # Retries of a list of tasks are counted from its records, because a replay skips retried stops there.
            tasks = Key().child(state.failed_in, visit=state.visits[state.failed_in])
            key = tasks.child("again", cycle=again_count(self._journal, tasks) + 1)
        else:
            self._stops += 1
            key = Key().child("retry", cycle=self._stops)
        if self._journal.recorded(key) is None and not self._retry:
            return None
        self._retry = self._retry and self._journal.recorded(key) is not None

        async def record(previous: Json) -> Json:
            return True

        await self._journal.step(key, None, record)
        after = machine.after_retry(self._flow, state if state.ended else machine.after_block(state, end.reason))
        self._note_continued(state, after)
        return after

    # -- events

    def _leave(self, ctx: StepContext, phase: PhaseSpec, outcome: Outcome) -> None:
        ctx.emit(PhaseFinished(phase.id, ctx.place.key.text, outcome.name, outcome.detail[:2000], phase.label.done))
        if phase.label.done:
            # Write the label at once, because a stopped run may rest at this checkpoint.
            ctx.flush()
