"""Asks the machine for the next decision, performs it and records it, until the run ends."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import assert_never

from msgspec import Struct
from msgspec.structs import replace

from windlass.dispatch.workspace import Workspace
from windlass.driver import adoption, baseline, source, stages
from windlass.driver.context import StepContext
from windlass.driver.scopes import Reentry, RunScope, StepPlace
from windlass.driver.tasks_phase import PhaseContext
from windlass.engine import machine
from windlass.engine.journal import again_count, refuse_unknown
from windlass.engine.machine import AskQuestion, End, RunPhase, SkipPhase, State
from windlass.errors import DetourError
from windlass.events import PhaseEntered, PhaseFinished, PhaseSkipped, QuestionAnswered, TaskChanged, Warned
from windlass.kinds import KINDS
from windlass.kinds.base import Outcome
from windlass.kinds.routes import Target, To
from windlass.kinds.spec import PhaseSpec
from windlass.model import Json, Key, RunState
from windlass.tasks.context import COMPLETE, EndRunError

WINDLASS = "windlass"
ASKED = "asked"
"""The key of a route's questions, below their phase."""
RESTORE = "restore"
"""The key of the question about deleted files. It is asked before the loop begins."""


class Turn(Struct, frozen=True):
    """The state after a decision, and why it came to that."""

    state: State
    reason: str = ""
    by: str = WINDLASS
    told: str = ""
    """For the agents of a stage that begins again."""


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
        self._looks: Counter[str] = Counter()
        """How often the gate of a phase was looked at, by the key of the phase."""
        self._told: dict[str, str] = {}
        """What the agents of a restarted stage are told, by stage."""

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
        stages.announce(self._run)
        state = machine.start(self._flow, values.mode)
        while True:
            values.mode = state.mode
            decision = machine.decide(self._flow, state, values)
            match decision:
                case RunPhase():
                    turn = await self._gated(state, decision, workspace)
                case SkipPhase():
                    key = Key().child(decision.phase.id, visit=decision.visit).text
                    self._journal.emit(key, PhaseSkipped(decision.phase.id, key, decision.reason))
                    turn = Turn(machine.after_skip(self._flow, state, values))
                case AskQuestion():
                    turn = await self._ask(state, decision, workspace)
                case End():
                    again = await self._retry_stop(state, decision, workspace)
                    if again is None:
                        return decision
                    turn = again
                case _:
                    assert_never(decision)
            state = await self._after(state, turn, workspace)

    async def _after(self, before: State, turn: Turn, workspace: Workspace) -> State:
        """What a turn does to the stages: one begins again, or ends and is summed up."""
        after = turn.state
        stage = next((id for id, count in after.restarts.items() if count > before.restarts.get(id, 0)), "")
        if stage:
            restart = stages.Restart(stage, before.at, turn.reason, turn.by, after.restarts)
            workspace.move(await stages.restart(self._run, restart))
            self._told = {**self._told, stage: turn.told or turn.reason}
        elif after.at != before.at or after.ended:
            place = Key().child(before.at, visit=before.visit)
            await stages.summarize(self._run, place, after.at if not after.ended else "")
        return after

    # -- performing

    async def _gated(self, state: State, todo: RunPhase, workspace: Workspace) -> Turn:
        """Perform a phase, unless a person deleted a file that its gate needs."""
        key = Key().child(todo.phase.id, visit=todo.visit)
        for text in todo.waived:
            self._journal.emit(key.text, Warned("gate", f"{todo.phase.id} begins although {text}", key.text))
        if todo.files and self._flow.stages:
            self._looks[key.text] += 1
            look = key.child("gate", cycle=self._looks[key.text])
            gone = await self._run.artifacts.missing_files(look, todo.files)
            if gone and todo.phase.id not in state.waived:
                names = ", ".join(f"'{path}'" for path in gone)
                return Turn(machine.after_block(state, f"{todo.phase.id} cannot begin: {names} was deleted"))
        is_done = self._journal.events.has_mark(key.text, PhaseFinished.type)
        return await self._unless_left(state, key, workspace, is_done, lambda: self._phase(state, todo, workspace))

    async def _phase(self, state: State, todo: RunPhase, workspace: Workspace) -> Turn:
        phase, values = todo.phase, self._run.values
        key = Key().child(phase.id, visit=todo.visit)
        found = self._run.outcomes.get(phase.id)
        stage, label = self._flow.stage_of(phase.id), phase.label.enter or phase.id
        again = Reentry(
            to_fix=found.findings if found and todo.fixing else (), why=self._told.get(stage.id, "") if stage else ""
        )
        earlier_visits = self._earlier_visits(phase.id, todo.visit)
        ctx = PhaseContext(self._run, StepPlace(key, phase, workspace, again=again, earlier_visits=earlier_visits))
        ctx.emit(PhaseEntered(phase.id, key.text, phase.kind, label, stage.id if stage else ""))
        await adoption.apply(self._run, ctx)
        await stages.note_tip(self._run, ctx)
        if phase.OWN_SLOTS:
            # Tasks take their own slots.
            await workspace.leave(key.text)
        try:
            outcome = await KINDS[phase.kind].run(phase, ctx)
        except EndRunError as end:
            self._leave(ctx, phase, Outcome(str(end.target), end.reason))
            return Turn(machine.after_target(self._flow, state, values, end.target, end.reason), end.reason)
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
        after = machine.after_outcome(self._flow, state, values, outcome.name, outcome.detail)
        return Turn(after, outcome.detail, told=outcome.evidence)

    async def _ask(self, state: State, todo: AskQuestion, workspace: Workspace) -> Turn:
        key = Key().child(todo.phase.id, visit=todo.visit).child(ASKED, cycle=todo.nth)
        ctx = StepContext(self._run, StepPlace(key, todo.phase, workspace))
        found = self._run.outcomes.get(todo.phase.id)
        question = ctx.values.question(todo.question, todo.reason, found.findings if found else ())
        is_done = self._run.questions.recorded_answer(key, question) is not None

        async def ask() -> Turn:
            answer = await ctx.ask(question)
            target = self._flow.questions[todo.question].options[answer.value]
            after = machine.after_answer(self._flow, state, self._run.values, answer.value)
            if target.to is To.AGAIN:
                self._note_continued(state, after)
            reason = f"{todo.reason}: {answer.comment}" if answer.comment else todo.reason
            if target.to is To.WAIVE:
                self._waive(state, key, reason, answer.by)
            told = "\n\n".join(filter(None, (answer.comment, found.evidence or found.detail if found else "")))
            return Turn(after, reason, answer.by, told)

        # Two questions of a phase may have the same number.
        return await self._unless_left(state, key.child(todo.question), workspace, is_done, ask)

    # -- a person's own way

    async def _unless_left(
        self, state: State, key: Key, workspace: Workspace, is_done: bool, work: Callable[[], Awaitable[Turn]]
    ) -> Turn:
        """Do the work of a place, unless a person has the run leave it: then go the person's way.

        `is_done`: the place has its result already, so a new request is not about it.
        """
        # Not below the phase: the phase does not know this step when it is replayed.
        run, left = self._run, Key((*Key().child("left").parts, *key.parts))
        if self._journal.recorded(left) is None:
            if is_done:
                return await work()
            restore = run.snapshot()
            try:
                if run.requests.detour is None:
                    with run.requests.leaving_allowed():
                        return await work()
            except DetourError:
                restore()
        phase = Key(key.parts[:1])
        found = await self._record_detour(left, key, workspace)
        run.note_bases(phase)
        target, reason = Target.parse(str(found["target"])), _reason(found)
        if target.to is To.WAIVE:
            self._waive(state, phase, reason, str(found["by"]))
        after = machine.after_target(self._flow, machine.after_question(state), run.values, target, reason)
        return Turn(after, reason, str(found["by"]), str(found["comment"]))

    async def _record_detour(self, key: Key, place: Key, workspace: Workspace) -> dict[str, Json]:
        """Record the request under this key, once, and close the questions of the place that is left. A new request
        also answers the question about deleted files. A replay closes no question that was asked later."""
        run, journal = self._run, self._journal

        async def record(previous: Json) -> Json:
            detour = run.requests.detour
            assert detour is not None
            wish = {"id": detour.id, "target": detour.target, "by": detour.by, "comment": detour.comment}
            return {**wish, "at": journal.tips.now}

        found = await journal.step(key, None, record)
        assert isinstance(found, dict)
        is_new = run.requests.detour is not None and run.requests.detour.id == found["id"]
        target, by = str(found["target"]), str(found["by"])
        for row in journal.store.questions.all(journal.run, pending=True):
            at = row.key.replace("!", "/")
            is_left = at == place.text or (at.startswith(f"{place}/") and not at.startswith(f"{place}/{ASKED}#"))
            if is_left or (is_new and at.startswith(f"{RESTORE}#")):
                with journal.writing(f"{row.key}.left"):
                    if journal.store.questions.answer(journal.claim, row.key, target, "", by):
                        journal.events.add(QuestionAnswered(row.key, row.id, target, by))
        if is_new:
            run.requests.detour = None
            journal.store.runs.request(journal.run, "")
        run.requests.go_on()
        workspace.move(str(found["at"]))
        return found

    def _waive(self, state: State, key: Key, reason: str, by: str) -> None:
        skipped = PhaseSkipped(state.at, key.text, reason, waived=True, by=by)
        self._journal.emit(f"{key}/waived", skipped)

    def _note_continued(self, before: State, after: State) -> None:
        if after.visit > before.visits.get(after.at, 0):
            self._continued.add((after.at, after.visit))

    def _earlier_visits(self, phase: str, visit: int) -> tuple[Key, ...]:
        found: list[Key] = []
        while (phase, visit) in self._continued:
            visit -= 1
            found.append(Key().child(phase, visit=visit))
        return tuple(found)

    async def _retry_stop(self, state: State, end: End, workspace: Workspace) -> Turn | None:
        """Continue after a stop that a person has retried. A request for a retry counts for one stop."""
        if end.state not in (RunState.STOPPED, RunState.BLOCKED):
            return None
        journal = self._journal
        if state.failed_in and self._flow.phase(state.failed_in).OWN_SLOTS:
            # Retries of a list of tasks are counted from its records, because a replay skips retried stops there.
            tasks = Key().child(state.failed_in, visit=state.visits[state.failed_in])
            key = tasks.child("again", cycle=again_count(journal, tasks) + 1)
        else:
            self._stops += 1
            key = Key().child("retry", cycle=self._stops)
        row = journal.recorded(key)
        if (row is None and self._run.requests.detour) or (row is not None and isinstance(row.result, dict)):
            self._retry = False
            place = Key().child(state.at, visit=state.visit)
            found = await self._record_detour(key, place, workspace)
            return self._leave_stop(state, end, found)
        if row is None and not self._retry:
            return None
        self._retry = self._retry and row is not None

        async def record(previous: Json) -> Json:
            return True

        await journal.step(key, None, record)
        stopped = state if state.ended else machine.after_block(state, end.reason)
        after = machine.after_retry(self._flow, stopped)
        self._note_continued(state, after)
        return Turn(after)

    def _leave_stop(self, state: State, end: End, found: dict[str, Json]) -> Turn:
        target, by, reason = Target.parse(str(found["target"])), str(found["by"]), _reason(found)
        key = Key().child(state.at, visit=state.visit)
        if target.to is To.WAIVE and not (state.ended and state.ended.fresh):
            # The gate stopped the run: the phase begins without what the gate misses.
            self._waive(state, key.child("gate"), f"{reason}; its gate was waived: {end.reason}", by)
            return Turn(machine.after_waived_gate(state), reason, by)
        if target.to is To.WAIVE:
            self._waive(state, key, f"{reason}; {end.reason}", by)
        rested = replace(state, ended=None, asking=None, failed_in="", failure="")
        after = machine.after_target(self._flow, rested, self._run.values, target, reason)
        return Turn(after, reason, by, str(found["comment"]) or end.reason)

    # -- events

    def _leave(self, ctx: StepContext, phase: PhaseSpec, outcome: Outcome) -> None:
        ctx.emit(PhaseFinished(phase.id, ctx.place.key.text, outcome.name, outcome.detail[:2000], phase.label.done))
        if phase.label.done or self._flow.stages:
            # Write the event at once, because a stopped run may rest at this checkpoint.
            ctx.flush()


def _reason(found: dict[str, Json]) -> str:
    what = "restarted" if str(found["target"]).startswith("restart") else "skipped"
    return f"{what} by {found['by']}" + (f": {found['comment']}" if found["comment"] else "")
