"""The verbs of a kind, recorded."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence

from msgspec.structs import replace

from windlass.agents.contracts import registry as contracts
from windlass.agents.contracts.task_list import match_tasks
from windlass.dispatch.request import DispatchPlace
from windlass.dispatch.workspace import Workspace
from windlass.driver import artifacts as keeping
from windlass.driver import run_fix
from windlass.driver.adoption import is_landed, is_step_of
from windlass.driver.publisher import PublishRequest
from windlass.driver.scopes import FIRST, Reentry, RunScope
from windlass.engine.journal import again_count, retried_since
from windlass.engine.lookup import Lookup
from windlass.engine.questions import PausedError
from windlass.errors import StoppedError
from windlass.events import HANDED_OVER, Event, LandingRefused, RunEnded, RunResumed, TaskChanged
from windlass.git.trees import commit_artifacts
from windlass.kinds.base import NOBODY_REVIEWED, Call, CommandRun, Outcome, PublishResult, Reply
from windlass.kinds.spec import PhaseSpec
from windlass.kinds.task_graph import with_groups
from windlass.kinds.tasks import TasksSpec
from windlass.kinds.walker import UNCHANGED
from windlass.model import Answer, Finding, Json, Key, Question, Task, content_id
from windlass.tasks.context import Landed
from windlass.tasks.lander import LandingRequest, catch_up
from windlass.tasks.scheduler import TaskScheduler


class StepContext(Lookup):
    """A place in the run: a phase, a task, a step of a task."""

    _stands_since = 0
    """The recorded step that the desk's head comes from: a later one wins, whatever the order of a replay."""

    def __init__(
        self,
        shared: RunScope,
        key: Key,
        phase: PhaseSpec,
        desk: Workspace,
        *,
        task: Task | None = None,
        step: str = "",
        befores: tuple[Key, ...] = (),
        again: Reentry = FIRST,
        outcomes: Mapping[str, Outcome] | None = None,
    ) -> None:
        super().__init__(shared.parts, key, phase, shared.outcomes if outcomes is None else outcomes, task)
        self.shared = shared
        self.desk = desk
        self.step_id = step
        self.again = again
        self._befores = befores
        """Visits that this one goes on from, newest first: what has a good result there is not done again."""
        self._journal = shared.parts.journal

    def stand(self, head: str, key: Key) -> None:
        row = self._journal.recorded(key)
        if row is not None and row.seq > self._stands_since:
            self._stands_since = row.seq
            self.desk.move(head)

    @property
    def to_fix(self) -> tuple[Finding, ...]:
        return self.again.to_fix

    @property
    def since(self) -> str:
        return self.again.since

    @property
    def why(self) -> str:
        return self.again.why

    @property
    def tree(self) -> str:
        return self.desk.tree

    @property
    def head(self) -> str:
        return self.desk.head

    @property
    def changed(self) -> tuple[str, ...]:
        return self.desk.changed

    def id(self, name: str = "") -> str:
        if not self.step_id:
            return name or "main"
        return f"{self.step_id}.{name}" if name else self.step_id

    def _at(self, id: str, cycle: int | None = None) -> Key:
        return self.key.child(id, visit=self.again.visit, cycle=cycle)

    # -- verbs

    async def dispatch(self, id: str, call: Call, *, cycle: int | None = None) -> Reply:
        key = self._at(id, cycle)
        completed = tuple(self.shared.completed)
        place = DispatchPlace(key, self.phase.id, cycle or 0, self.task, self.desk, completed)
        return await self.shared.dispatcher.run(place, call)

    def earlier(self, id: str, call: Call, *, cycle: int | None = None) -> Reply | None:
        """The same step's reply in a visit that a person's retry repeats."""
        places = [
            DispatchPlace(b.child(id, cycle=cycle), self.phase.id, cycle or 0, self.task, self.desk)
            for b in self._befores
        ]
        replies = (self.shared.dispatcher.recall(place, call) for place in places)
        return next((reply for reply in replies if reply is not None), None)

    async def ask(self, question: Question, *, id: str = "", cycle: int | None = None) -> Answer:
        name, broker, visit = self.id(id) if self.step_id or id else "", self.parts.broker, self.again.visit
        keys = (self.key, *self._befores)
        here, *befores = (key.child(name, visit=visit, cycle=cycle) if name else key for key in keys)
        settled = (broker.answered(before, question) for before in befores)
        answer = next((one for one in settled if one), None) or await broker.ask(here, question)
        self.parts.world.answers[question.id] = answer
        return answer

    async def step(self, id: str, inputs: Json, fn: Callable[[Json], Awaitable[Json]]) -> Json:
        return await self._journal.step(self._at(id), inputs, fn)

    async def make(self, name: str, content: str, *, cycle: int | None = None) -> None:
        await keeping.make(self, self._at(name, cycle), name, content)

    async def observe(self, id: str, fn: Callable[[], Awaitable[Json]]) -> Json:
        async def look(previous: Json) -> Json:
            return await fn()

        # What follows from it is recorded later and synced with it; lost before that, it is looked at anew.
        return await self._journal.step(self._at(id), None, look, synced=False)

    async def command(self, id: str, name: str, *, cycle: int | None = None) -> CommandRun:
        return await self.shared.checker.command(self._at(id, cycle), name, self.desk)

    def emit(self, *events: Event, at: str = "") -> None:
        nth = f"+{self.again.visit}" if self.again.visit > 1 else ""
        self._journal.emit(f"{self.key}/{at}{nth}" if at else self.key.text, *events)

    def flush(self) -> None:
        self._journal.flush()

    async def publish(self, what: str, *, remote: str, base: str, tag: str) -> PublishResult:
        return await self.shared.publisher.publish(self.key, what, PublishRequest(remote, base, tag))

    async def run_scope(self) -> StepContext:
        """Everything since the first task began, at the run's tip."""
        desk = self.shared.desk(self.desk.head)
        desk.base = self.shared.first_base[1] or self.facts.base
        desk.changed = await desk.files_since_base()
        return WholeRunContext(self.shared, self.key, self.phase, desk, again=self.again, owner=self)

    async def land_fix(self, id: str) -> str:
        raise AssertionError("only who looks at the whole run mends it")

    async def report(self, template: str, to: Sequence[str]) -> None:
        if keeping.PROGRESS in to:
            # First, so that the report names the tip with the page on it.
            await keeping.commit_progress(self)
        await keeping.report(self, template)

    async def leave(self) -> None:
        await self.desk.leave(self.key.text)


class WholeRunContext(StepContext):
    """The same place, looking at everything the run has changed."""

    def __init__(
        self, shared: RunScope, key: Key, phase: PhaseSpec, desk: Workspace, *, again: Reentry, owner: StepContext
    ) -> None:
        super().__init__(shared, key, phase, desk, again=again)
        self._owner = owner

    async def land_fix(self, id: str) -> str:
        tip, refused = await run_fix.join(self, id)
        self.desk.move(tip)
        self.desk.changed = await self.desk.files_since_base()
        if not refused:
            self._owner.stand(tip, self.key.child(id))
        return refused


class PhaseContext(StepContext):
    """A phase; also what the `tasks` kind works with."""

    places: Mapping[str, int] = {}
    """Where each task stands in the plan."""

    async def run_tasks(self, spec: TasksSpec) -> Outcome:
        return await TaskScheduler(spec, self, await self.task_list(spec.source)).work()

    async def task_list(self, source: str) -> tuple[Task, ...]:
        content = self.artifact(source) or ""

        async def parse(previous: Json) -> Json:
            return [task.to_json() for task in self._matched(source, content, previous)]

        def listed(tasks: Json) -> list[Event]:
            known = (
                [Task.from_json(task) for task in tasks if isinstance(task, dict)] if isinstance(tasks, list) else []
            )
            return [with_groups(self.key.text, known)]

        key = self.key.child("tasks")
        found = await self._journal.step(key, {source: content_id(content)}, parse, events=listed)
        assert isinstance(found, list)
        tasks = tuple(Task.from_json(task) for task in found if isinstance(task, dict))
        self.places = {task.id: place for place, task in enumerate(tasks)}
        for task in tasks:
            for earlier in range(1, task.visit):
                self._journal.pass_over(self.key.child(task.id, visit=earlier))
        return tasks

    def _matched(self, source: str, content: str, previous: Json) -> list[Task]:
        old = [Task.from_json(t) for t in previous if isinstance(t, dict)] if isinstance(previous, list) else []
        parsed = contracts.plan_of(self._world.flow.artifacts[source].contract, content)
        steps = self._steps_by_task()
        started = {task.id for task in old if task.id in steps}
        landed = {id for id in started if any(is_landed(result) for _, result in steps[id])}
        matched = match_tasks(old, parsed.tasks, started=started, landed=landed)
        problem = parsed.problem or matched.problem
        if problem:
            raise StoppedError(
                f"the plan cannot be carried out: {problem}", hint="mend the plan file, then: windlass resume"
            )
        before = {task.id: task.visit for task in old}
        return [
            # A landed task that the plan changed: a visit nobody has made yet.
            replace(task, visit=1 + max((key.parts[len(self.key.parts)].visit for key, _ in steps[task.id]), default=0))
            if task.visit > before.get(task.id, task.visit)
            else task
            for task in matched.tasks
        ]

    def _steps_by_task(self) -> Mapping[str, list[tuple[Key, Json]]]:
        """Recorded below this phase: each key with its result, by the id of its task."""
        found: dict[str, list[tuple[Key, Json]]] = defaultdict(list)
        depth = len(self.key.parts)
        for row in self._journal.recorded_keys():
            key = Key.parse(row.key)
            if len(key.parts) > depth and is_step_of(self.key, key, key.parts[depth].id):
                found[key.parts[depth].id].append((key, row.result))
        return found

    def enter_task(self, task: Task, visit: int, why: str = "") -> TaskStepContext:
        key = self.key.child(task.id, visit=visit)
        desk = self.shared.desk(self.desk.head)
        return TaskStepContext(self.shared, key, self.phase, desk, task=replace(task, visit=visit), owner=self, why=why)

    def slots(self, wanted: int | str) -> int:
        # A checkout that follows the run must not move while a dispatch is watched for touching it.
        if self.parts.world.in_place:
            return 1
        return self.parts.slots_wanted or self.parts.config.workspace.slots or self.parts.world.number(wanted)

    def begun(self, task: Task) -> bool:
        return self._journal.recorded(self.key.child(task.id, visit=task.visit).child("base")) is not None

    def land_in_turn(self, ids: Sequence[str]) -> None:
        self.shared.lander.turns = list(ids)

    def wind_down(self, *, now: bool = False) -> None:
        self.parts.wanted.wind_down(now=now)

    def go_on(self) -> None:
        self.parts.wanted.go_on()

    def implemented(self, task: Task) -> None:
        self.shared.implemented.setdefault(self.phase.id, []).append(task)

    @property
    def completed_later(self) -> bool:
        phases = self.parts.world.flow.sequence(self.parts.world.mode)
        return any(phase.completes_tasks_of() == self.phase.id for phase in phases)

    async def commit_files(self, id: str, names: Sequence[str], why: str) -> None:
        """Put artifacts in force on the run's tip, once."""
        if not names:
            return
        world, engine, tip = self.parts.world, self.parts.engine, self.parts.tip
        contents = {world.path(name): world.content(name) or "" for name in names}
        message = f"{', '.join(sorted(contents))}\n\nWindlass-Phase: {why}\n"
        date = float(int(self.parts.machine.clock()))

        async def commit(previous: Json) -> Json:
            return await asyncio.to_thread(commit_artifacts, engine, tip.now, contents, message, date)

        inputs: Json = {world.path(name): world.artifacts.held[name].sha for name in names}
        made = str(await self._journal.step(self.key.child(id), inputs, commit, tip=str))
        await tip.show()
        self.stand(made, self.key.child(id))

    async def mark_halt(self, id: str, reason: str) -> None:
        async def reached(previous: Json) -> Json:
            self.shared.dispatcher.lived.add(self.key.child(id).text)
            return reason

        await self._journal.step(self.key.child(id), None, reached)

    async def halt(self, id: str, reason: str, *, stop: bool = False) -> None:
        await self.mark_halt(id, reason)
        if self.key.child(id).text in self.shared.dispatcher.lived:
            if stop:
                raise StoppedError(reason, hint="windlass retry tries that task again")
            raise PausedError(reason, hint="windlass resume goes on")

    async def mark_failure(self, id: str) -> None:
        async def so_far(previous: Json) -> Json:
            return again_count(self._journal, self.key)

        await self._journal.step(self.key.child(id), None, so_far)

    def retried(self, id: str) -> bool:
        return retried_since(self._journal, self.key, id)

    def halted(self, id: str) -> bool:
        return self._journal.find(self.key.child(id), None) is not None

    def rested_after(self) -> set[tuple[str, int]]:
        """A landing's attempt says under which driver it was made; a driver's last event is that the run rests.

        A driver that was killed, or that handed the run over to one in the background, has recorded no rest.
        """
        epoch, rested = 1, 0
        for event in self.parts.store.events.of_kinds(self._journal.run, RunResumed, RunEnded):
            if isinstance(event, RunResumed):
                epoch = event.epoch
            elif isinstance(event, RunEnded) and event.reason != HANDED_OVER:
                rested = epoch
        since = {row.intent.key for row in self.parts.store.attempts.done_since(self._journal.run, rested + 1)}
        depth = len(self.key.parts)
        landings, paused = [], 0
        for row in self._journal.recorded_keys():
            key = Key.parse(row.key)
            if key.parts[:depth] != self.key.parts or len(key.parts) == depth:
                continue
            if key.parts[depth].id.startswith("pause."):
                paused = max(paused, row.seq)
            elif is_landed(row.result):
                landings.append((row, key.parts[depth]))
        return {(task.id, task.visit) for row, task in landings if row.key not in since or row.seq < paused}


class TaskStepContext(StepContext):
    """One visit to one task."""

    def __init__(
        self,
        shared: RunScope,
        key: Key,
        phase: PhaseSpec,
        desk: Workspace,
        *,
        task: Task,
        owner: PhaseContext,
        why: str = "",
    ) -> None:
        super().__init__(shared, key, phase, desk, task=task, again=Reentry(why=why), outcomes={**shared.outcomes})
        self._owner = owner

    def step_scope(
        self, id: str, *, visit: int = 1, to_fix: tuple[Finding, ...] = (), since: str = "", why: str = ""
    ) -> StepContext:
        again, seen = Reentry(visit, to_fix, since, why or self.why), self._outcomes
        return StepContext(
            self.shared, self.key, self.phase, self.desk, task=self.task, step=id, again=again, outcomes=seen
        )

    def ended(self, step: str, outcome: Outcome) -> None:
        self._outcomes = {**self._outcomes, step: outcome}

    async def begin(self) -> None:
        task = self._own_task

        async def tip() -> Json:
            return self.parts.tip.now

        base = str(await self.observe("base", tip))
        self.desk.base = base
        self.desk.move(base)
        self._note_first(base)
        self.emit(TaskChanged(task.id, "pending", base=base, visit=task.visit), at="begin")

    def _note_first(self, base: str) -> None:
        row, (first, _) = self._journal.recorded(self.key.child("base")), self.shared.first_base
        if row is not None and (not first or row.seq < first):
            self.shared.first_base = (row.seq, base)

    async def land(self, cycle: int, *, checked: bool, waived: bool = False) -> Landed:
        key = self.key.child("land", cycle=cycle)
        # Where the flow had no step for the task, nobody claimed to have built it.
        claimed = bool(self._outcomes) and not self._is_confirmed
        if not waived and self._journal.recorded(key) is None and self.desk.is_unchanged and claimed:
            await self.shared.lander.give_up_turn(self._own_task.id)
            return Landed(UNCHANGED, "it changed no file, and no review confirmed that nothing has to change")
        # With an open conflict the lander refuses it anyway: that is what its fixer must be told.
        proves = not waived and not await self.has_open_conflicts()
        refused = await self._unproved(cycle, key) if proves else ""
        if refused:
            await self.shared.lander.give_up_turn(self._own_task.id)
            return Landed("unproved", refused, self.desk.changed)
        place = self._owner.places.get(self._own_task.id, 0)
        order = LandingRequest(key, self._own_task, self.desk, place, checked=checked, waived=waived)
        landed, tip = await self.shared.lander.land(order)
        if landed.kind == "landed":
            self._owner.stand(tip, key)
            self.shared.completed.append(self._own_task)
        return landed

    @property
    def _is_confirmed(self) -> bool:
        """A review of this visit passed the task as it is."""
        reviews = [step.id for step in self.phase.task_steps() if step.judges_changes()]
        ended = [self._outcomes[id] for id in reviews if id in self._outcomes]
        return any(outcome.name == "pass" and outcome.detail != NOBODY_REVIEWED for outcome in ended)

    async def _unproved(self, cycle: int, landing: Key) -> str:
        """'' when the task may land; else what the proof found, for whoever mends it."""
        # Loaded here: the proof knows the grammars of several languages, and the first dispatch does not wait for them.
        from windlass.tasks.proof import Prover, proof_question

        task = self._own_task
        prover = Prover(self.parts, self.shared.checker)
        proven = await prover.prove(self.key.child("proof", cycle=cycle), landing, task, self.desk)
        if proven.ask and (await self.ask(proof_question(proven, task, cycle))).value == "refuse":
            self.emit(LandingRefused(task.id, "unproved", proven.detail[:2000], []), at=f"{proven.proof.value}#{cycle}")
            return proven.detail
        return "" if proven.ok else proven.detail

    async def catch_up(self, cycle: int) -> None:
        key = self.key.child("land.onto", cycle=cycle)
        await catch_up(self.parts, key, self._own_task, self.desk)

    async def has_open_conflicts(self) -> bool:
        return bool(await self.desk.unresolved())

    def say_resolved(self, paths: Sequence[str]) -> None:
        self.desk.said_resolved |= set(paths)

    async def patch(self) -> str:
        return await self.desk.patch()

    @property
    def _own_task(self) -> Task:
        assert self.task is not None
        return self.task
