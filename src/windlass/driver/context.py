"""The recorded verbs of a kind."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager

from msgspec.structs import replace

from windlass.driver import run_fix
from windlass.driver.publisher import PublishRequest
from windlass.driver.scopes import RunScope, StepPlace
from windlass.engine.lookup import StepValues
from windlass.events import Event
from windlass.kinds.base import Call, CommandRun, Outcome, PublishResult, Reply
from windlass.model import Answer, Json, Key, Question

PROGRESS = "progress"
"""Where a report goes that becomes part of the run's branch."""


class StepContext:
    """What a phase, or a step of a task, may do at its place in the run."""

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
        """The phase itself, for a context that looks at the whole run."""
        self._stands_since = 0
        """The recorded step that the workspace's head comes from: a later one wins, whatever the order of a replay."""

    def stand(self, head: str, key: Key) -> None:
        """The step recorded under this key left the code here."""
        row = self._journal.recorded(key)
        if row is not None and row.seq > self._stands_since:
            self._stands_since = row.seq
            self._workspace.move(head)

    # -- agents and people

    def dispatch(self, id: str, call: Call, *, cycle: int | None = None) -> Awaitable[Reply]:
        place, key = self.place, self.place.at(id, cycle)
        completed = tuple(self._run.completed)
        phase = place.phase.id
        return self._run.dispatcher.run(call, self._workspace, key, phase, cycle or 0, place.task, completed)

    def earlier(self, id: str, call: Call, *, cycle: int | None = None) -> Reply | None:
        keys = [before.child(id, cycle=cycle) for before in self.place.befores]
        recall, task = self._run.dispatcher.recall, self.place.task
        replies = (recall(call, self._workspace, key, task) for key in keys)
        return next((reply for reply in replies if reply is not None), None)

    async def ask(self, question: Question, *, id: str = "", cycle: int | None = None) -> Answer:
        place, questions = self.place, self._run.questions
        name = place.id(id) if place.step or id else ""
        keys = (place.key, *place.befores)
        here, *befores = (key.child(name, visit=place.again.visit, cycle=cycle) if name else key for key in keys)
        settled = (questions.recorded_answer(before, question) for before in befores)
        answer = next((one for one in settled if one), None) or await questions.ask(here, question)
        self._run.values.answers[question.id] = answer
        return answer

    # -- values

    async def make(self, name: str, content: str, *, cycle: int | None = None) -> None:
        await self._run.artifacts.make(self.place.at(name, cycle), name, content)

    def refine(self, request: str) -> None:
        self._run.values.refine(request)

    def set_setting(self, name: str, value: str) -> None:
        self._run.values.settings[name] = value

    async def observe(self, id: str, fn: Callable[[], Awaitable[Json]]) -> Json:
        async def look(previous: Json) -> Json:
            return await fn()

        # What follows from it is recorded later and synced with it; lost before that, it is looked at anew.
        return await self._journal.step(self.place.at(id), None, look, synced=False)

    async def command(self, id: str, name: str, *, cycle: int | None = None) -> CommandRun:
        return await self._run.checker.command(self.place.at(id, cycle), name, self._workspace)

    # -- words

    def emit(self, *events: Event, at: str = "") -> None:
        visit, key = self.place.again.visit, self.place.key
        nth = f"+{visit}" if visit > 1 else ""
        self._journal.emit(f"{key}/{at}{nth}" if at else key.text, *events)

    def flush(self) -> None:
        self._journal.flush()

    async def report(self, template: str, to: Sequence[str]) -> None:
        artifacts, place = self._run.artifacts, self.place
        if PROGRESS in to:
            # First, so that the report names the tip with the page on it.
            key = place.key.child(PROGRESS)
            self.stand(await artifacts.commit_progress(key, place.phase.id, PROGRESS), key)
        await artifacts.report(place.key.child("text"), template)

    # -- the run as a whole

    async def publish(self, what: str, *, remote: str, base: str, tag: str) -> PublishResult:
        return await self._run.publisher.publish(self.place.key, what, PublishRequest(remote, base, tag))

    @asynccontextmanager
    async def whole_run(self) -> AsyncIterator[StepContext]:
        """Everything since the first task began, at the run's tip."""
        workspace = self._run.workspace(self._workspace.head)
        workspace.base = self._run.first_base[1] or self.values.facts.base
        workspace.changed = await workspace.files_since_base()
        place = replace(self.place, workspace=workspace, task=None, step="", befores=())
        try:
            yield StepContext(self._run, place, owner=self)
        finally:
            await workspace.leave(place.key.text)

    async def land_fix(self, id: str) -> str:
        assert self._owner is not None, "only a context that looks at the whole run lands a fix"
        run, key, workspace = self._run, self.place.key.child(id), self._workspace
        tip, refused = await run_fix.join(run.journal, run.engine, run.checker, key, workspace, self.emit)
        await run.tip.show()
        workspace.move(tip)
        workspace.changed = await workspace.files_since_base()
        if not refused:
            self._owner.stand(tip, key)
        return refused
