"""The recorded verbs that a kind can use."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager

from msgspec.structs import replace

from windlass.driver import run_fix
from windlass.driver.publisher import PublishRequest
from windlass.driver.scopes import RunScope, StepPlace
from windlass.engine.lookup import StepValues
from windlass.events import ArtifactsRemoved, Event
from windlass.kinds.base import Call, CommandRun, Outcome, PublishResult, Reply
from windlass.model import Answer, Json, Key, Question

PROGRESS = "progress"
"""The destination of a report that is committed to the run's branch."""


class StepContext:
    """The verbs of a phase, or of a step of a task."""

    def __init__(
        self,
        run: RunScope,
        place: StepPlace,
        *,
        outcomes: Mapping[str, Outcome] | None = None,
        owner: StepContext | None = None,
    ) -> None:
        self.place = place
        known = run.outcomes if outcomes is None else outcomes
        self.values = StepValues(run.values, run.assignments, place.phase, known, place.task, place.step)
        self._run = run
        self._journal = run.journal
        self._workspace = place.workspace
        self._owner = owner
        """The context of the phase, if this context is about the whole run."""
        self._head_seq = 0
        """The number of the recorded step that set the workspace's head. A replay in another order keeps the latest."""

    def set_head(self, head: str, key: Key) -> None:
        """Move the workspace to the commit of the step that is recorded under this key."""
        row = self._journal.recorded(key)
        if row is not None and row.seq > self._head_seq:
            self._head_seq = row.seq
            self._workspace.move(head)

    # -- agents and people

    def dispatch(self, id: str, call: Call, *, cycle: int | None = None) -> Awaitable[Reply]:
        place, key = self.place, self.place.at(id, cycle)
        completed = tuple(self._run.completed)
        phase = place.phase.id
        return self._run.dispatcher.run(call, self._workspace, key, phase, cycle or 0, place.task, completed)

    def earlier(self, id: str, call: Call, *, cycle: int | None = None) -> Reply | None:
        keys = [before.child(id, cycle=cycle) for before in self.place.earlier_visits]
        recall, task = self._run.dispatcher.recall, self.place.task
        replies = (recall(call, self._workspace, key, task) for key in keys)
        return next((reply for reply in replies if reply is not None), None)

    async def ask(self, question: Question, *, id: str = "", cycle: int | None = None) -> Answer:
        place, questions = self.place, self._run.questions
        name = place.id(id) if place.step or id else ""
        keys = (place.key, *place.earlier_visits)
        here, *earlier_visits = (key.child(name, visit=place.again.visit, cycle=cycle) if name else key for key in keys)
        answers = (questions.recorded_answer(before, question) for before in earlier_visits)
        answer = next((one for one in answers if one), None) or await questions.ask(here, question)
        self._run.values.answers[question.id] = answer
        return answer

    # -- values

    async def make(self, name: str, content: str, *, id: str = "", cycle: int | None = None) -> None:
        await self._run.artifacts.make(self.place.at(id or name, cycle), name, content)

    def withdraw(self, name: str, why: str) -> None:
        if self._run.values.artifacts.drop([name]):
            self.emit(ArtifactsRemoved(self.place.key.text, [name], why), at=f"{name}.withdrawn")

    def refine(self, request: str) -> None:
        self._run.values.refine(request)

    def set_setting(self, name: str, value: str) -> None:
        self._run.values.settings[name] = value

    async def observe(self, id: str, fn: Callable[[], Awaitable[Json]]) -> Json:
        async def look(previous: Json) -> Json:
            return await fn()

        # The next synced step also syncs this one. If a power cut loses it before that, it is observed again.
        return await self._journal.step(self.place.at(id), None, look, synced=False)

    async def command(
        self, id: str, names: Sequence[str], *, otherwise: str = "", cycle: int | None = None
    ) -> CommandRun:
        return await self._run.checker.command(self.place.at(id, cycle), names, otherwise, self._workspace)

    # -- events and reports

    def emit(self, *events: Event, at: str = "") -> None:
        visit, key = self.place.again.visit, self.place.key
        nth = f"+{visit}" if visit > 1 else ""
        self._journal.emit(f"{key}/{at}{nth}" if at else key.text, *events)

    def flush(self) -> None:
        self._journal.flush()

    async def report(self, template: str, to: Sequence[str]) -> None:
        artifacts, place = self._run.artifacts, self.place
        if PROGRESS in to:
            # Commit the page first, so that the report names the tip with the page.
            key = place.key.child(PROGRESS)
            self.set_head(await artifacts.commit_progress(key, place.phase.id, PROGRESS), key)
        await artifacts.report(place.key.child("text"), template)

    # -- the run as a whole

    async def publish(self, what: str, *, remote: str, base: str, tag: str) -> PublishResult:
        return await self._run.publisher.publish(self.place.key, what, PublishRequest(remote, base, tag))

    @asynccontextmanager
    async def whole_run(self) -> AsyncIterator[StepContext]:
        """A context for all work since the first task began, at the run's tip."""
        workspace = self._run.workspace(self._workspace.head)
        workspace.base = self._run.first_base[1] or self.values.facts.base
        workspace.changed = await workspace.files_since_base()
        place = replace(self.place, workspace=workspace, task=None, step="", earlier_visits=())
        try:
            yield StepContext(self._run, place, owner=self)
        finally:
            await workspace.leave(place.key.text)

    async def land_fix(self, id: str, *, cycle: int | None = None) -> str:
        assert self._owner is not None, "only a context of the whole run lands a fix"
        run, key, workspace = self._run, self.place.key.child(id, cycle=cycle), self._workspace
        change = run_fix.named_change(self.place.phase)
        tip, refused = await run_fix.join(run.journal, run.engine, run.checker, key, change, workspace, self.emit)
        await run.tip.show()
        workspace.move(tip)
        workspace.changed = await workspace.files_since_base()
        if not refused:
            self._owner.set_head(tip, key)
        return refused
