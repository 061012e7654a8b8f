"""A phase of the `tasks` kind: its list of tasks, its pauses, and the visits to its tasks."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Awaitable, Mapping, Sequence

from msgspec.structs import replace

from windlass.agents.contracts import registry as contracts
from windlass.agents.contracts.task_list import match_tasks
from windlass.driver.adoption import is_landed, is_step_of
from windlass.driver.context import StepContext
from windlass.driver.scopes import Reentry, RunScope, StepPlace
from windlass.engine.journal import Journal, again_count, retried_since
from windlass.engine.lookup import StepValues
from windlass.engine.questions import PausedError
from windlass.errors import StoppedError
from windlass.events import HANDED_OVER, Event, LandingRefused, RunEnded, RunResumed, TaskChanged
from windlass.kinds.base import NOBODY_REVIEWED, Outcome
from windlass.kinds.task_graph import with_groups
from windlass.kinds.tasks import TasksSpec
from windlass.kinds.walker import UNCHANGED
from windlass.model import Finding, Json, Key, Task, content_id
from windlass.tasks.context import Ending, Landed
from windlass.tasks.lander import LandingRequest, catch_up
from windlass.tasks.scheduler import TaskScheduler


class PhaseContext(StepContext):
    """The context of a phase, which can also run a list of tasks."""

    def run_tasks(self, spec: TasksSpec) -> Awaitable[Outcome]:
        return TasksPhase(self._run, self).work(spec)


class TasksPhase:
    """The verbs of the scheduler in the phase."""

    def __init__(self, run: RunScope, ctx: StepContext) -> None:
        self.place = ctx.place
        self.values = ctx.values
        self.emit = ctx.emit
        self.flush = ctx.flush
        self.set_head = ctx.set_head
        self._make = ctx.make
        self._run = run
        self._journal = run.journal
        self._key = ctx.place.key
        self.positions: Mapping[str, int] = {}
        """The position of each task in the plan."""

    async def work(self, spec: TasksSpec) -> Outcome:
        contract = self._run.values.flow.artifacts[spec.source].contract
        content = self.values.artifact(spec.source) or ""
        tasks = await record_task_list(self._journal, self._key, spec.source, contract, content)
        self.positions = {task.id: place for place, task in enumerate(tasks)}
        for task in tasks:
            for earlier in range(1, task.visit):
                self._journal.pass_over(self._key.child(task.id, visit=earlier))
        scheduler = TaskScheduler(spec, self, tasks)
        outcome = await scheduler.work()
        if spec.out:
            await self._make(spec.out, _results(tasks, scheduler.endings), id="result")
        return outcome

    def enter_task(self, task: Task, visit: int, why: str = "") -> VisitContext:
        return VisitContext(self._run, self, replace(task, visit=visit), why or self.place.why)

    def slots(self, wanted: int | str) -> int:
        # With --in-place the user's checkout moves at each landing. During a dispatch that would look like a trespass.
        if self._run.values.in_place:
            return 1
        return self._run.slots or self._run.values.number(wanted)

    def begun(self, task: Task) -> bool:
        return self._journal.recorded(self._key.child(task.id, visit=task.visit).child("base")) is not None

    def land_in_turn(self, ids: Sequence[str]) -> None:
        self._run.lander.turns = list(ids)

    def wind_down(self, *, now: bool = False) -> None:
        self._run.requests.wind_down(now=now)

    def go_on(self) -> None:
        self._run.requests.go_on()

    def implemented(self, task: Task) -> None:
        self._run.implemented.setdefault(self.place.phase.id, []).append(task)

    @property
    def completed_later(self) -> bool:
        phases = self._run.values.flow.sequence(self._run.values.mode)
        return any(phase.completes_tasks_of() == self.place.phase.id for phase in phases)

    async def mark_halt(self, id: str, reason: str) -> None:
        async def record_halt(previous: Json) -> Json:
            self._run.dispatcher.live_keys.add(self._key.child(id).text)
            return reason

        await self._journal.step(self._key.child(id), None, record_halt)

    async def halt(self, id: str, reason: str, *, stop: bool = False) -> None:
        await self.mark_halt(id, reason)
        if self._key.child(id).text in self._run.dispatcher.live_keys:
            if stop:
                raise StoppedError(reason, hint="to try that task again: windlass retry")
            raise PausedError(reason, hint="to continue: windlass resume")

    async def mark_failure(self, id: str) -> None:
        async def count_retries(previous: Json) -> Json:
            return again_count(self._journal, self._key)

        await self._journal.step(self._key.child(id), None, count_retries)

    def retried(self, id: str) -> bool:
        return retried_since(self._journal, self._key, id)

    def halted(self, id: str) -> bool:
        return self._journal.find(self._key.child(id), None) is not None

    def rested_after(self) -> set[tuple[str, int]]:
        """Tasks and visits that landed before the run last rested.

        The attempt of a landing has the epoch of its driver, and a driver's last event records that the run rests. A
        driver that was killed, or that handed the run over to one in the background, has recorded no rest.
        """
        epoch, rested = 1, 0
        for event in self._journal.store.events.of_kinds(self._journal.run, RunResumed, RunEnded):
            if isinstance(event, RunResumed):
                epoch = event.epoch
            elif isinstance(event, RunEnded) and event.reason != HANDED_OVER:
                rested = epoch
        since = {row.intent.key for row in self._journal.store.attempts.done_since(self._journal.run, rested + 1)}
        depth = len(self._key.parts)
        landings, paused = [], 0
        for row in self._journal.recorded_keys():
            key = Key.parse(row.key)
            if key.parts[:depth] != self._key.parts or len(key.parts) == depth:
                continue
            if key.parts[depth].id.startswith("pause."):
                paused = max(paused, row.seq)
            elif is_landed(row.result):
                landings.append((row, key.parts[depth]))
        return {(task.id, task.visit) for row, task in landings if row.key not in since or row.seq < paused}


def _results(tasks: Sequence[Task], endings: Mapping[str, Ending]) -> str:
    """The results of the tasks as a JSON file."""
    found: list[Json] = [
        {
            "id": task.id,
            "title": task.title,
            "difficulty": task.difficulty,
            "depends_on": [*task.depends_on],
            "status": ending.state,
            "reason": ending.reason,
            "visits": ending.visit,
        }
        for task in tasks
        if (ending := endings.get(task.id))
    ]
    counts = Counter(ending.state for ending in endings.values())
    return json.dumps({"counts": dict(counts), "tasks": found}, indent=2, ensure_ascii=False) + "\n"


async def record_task_list(journal: Journal, phase: Key, source: str, contract: str, content: str) -> tuple[Task, ...]:
    """The tasks of a plan as the phase records them. A changed plan keeps the ids of the tasks that it still has."""

    async def parse(previous: Json) -> Json:
        return [task.to_json() for task in _match_plan(journal, phase, contract, content, _tasks_of(previous))]

    def list_events(tasks: Json) -> list[Event]:
        return [with_groups(phase.text, _tasks_of(tasks))]

    inputs: Json = {source: content_id(content)}
    return tuple(_tasks_of(await journal.step(phase.child("tasks"), inputs, parse, events=list_events)))


def _tasks_of(listed: Json) -> list[Task]:
    return [Task.from_json(task) for task in listed if isinstance(task, dict)] if isinstance(listed, list) else []


def _match_plan(journal: Journal, phase: Key, contract: str, content: str, old: Sequence[Task]) -> list[Task]:
    parsed = contracts.plan_of(contract, content)
    steps: dict[str, list[tuple[Key, Json]]] = defaultdict(list)
    depth = len(phase.parts)
    for row in journal.recorded_keys():
        key = Key.parse(row.key)
        if len(key.parts) > depth and is_step_of(phase, key, key.parts[depth].id):
            steps[key.parts[depth].id].append((key, row.result))
    started = {task.id for task in old if task.id in steps}
    landed = {id for id in started if any(is_landed(result) for _, result in steps[id])}
    matched = match_tasks(old, parsed.tasks, started=started, landed=landed)
    problem = parsed.problem or matched.problem
    if problem:
        raise StoppedError(
            f"the plan cannot be carried out: {problem}", hint="fix the plan file, then: windlass resume"
        )
    before = {task.id: task.visit for task in old}
    return [
        # A landed task that the plan changed gets a new visit.
        replace(task, visit=1 + max((key.parts[depth].visit for key, _ in steps[task.id]), default=0))
        if task.visit > before.get(task.id, task.visit)
        else task
        for task in matched.tasks
    ]


class VisitContext:
    """One visit to one task, in its own workspace."""

    def __init__(self, run: RunScope, phase: TasksPhase, task: Task, why: str) -> None:
        self._run = run
        self._phase = phase
        self._task = task
        self._journal = run.journal
        self._key = phase.place.key.child(task.id, visit=task.visit)
        self._workspace = run.workspace(phase.place.head)
        self._outcomes: Mapping[str, Outcome] = {**run.outcomes}
        """The outcomes of earlier phases, and of the task's steps so far."""
        self.place = StepPlace(self._key, phase.place.phase, self._workspace, task, again=Reentry(why=why))
        self._ctx = StepContext(run, self.place, outcomes=self._outcomes)
        self.emit = self._ctx.emit

    @property
    def values(self) -> StepValues:
        run = self._run
        return StepValues(run.values, run.assignments, self.place.phase, self._outcomes, self._task)

    def step_scope(
        self, id: str, *, visit: int = 1, to_fix: tuple[Finding, ...] = (), since: str = "", why: str = ""
    ) -> StepContext:
        again = Reentry(visit, to_fix, since, why or self.place.why)
        return StepContext(self._run, replace(self.place, step=id, again=again), outcomes=self._outcomes)

    def ended(self, step: str, outcome: Outcome) -> None:
        self._outcomes = {**self._outcomes, step: outcome}

    async def leave(self) -> None:
        await self._workspace.leave(self._key.text)

    async def begin(self) -> None:
        task = self._task

        async def tip() -> Json:
            return self._journal.tips.now

        base = str(await self._ctx.observe("base", tip))
        self._workspace.base = base
        self._workspace.move(base)
        row = self._journal.recorded(self._key.child("base"))
        if row is not None:
            self._run.note_base(row.seq, base)
        self.emit(TaskChanged(task.id, "pending", base=base, visit=task.visit), at="begin")

    async def land(self, cycle: int, *, checked: bool, waived: bool = False) -> Landed:
        key = self._key.child("land", cycle=cycle)
        reviews = [step.id for step in self.place.phase.task_steps() if step.judges_changes()]
        ended = [self._outcomes[id] for id in reviews if id in self._outcomes]
        confirmed = any(outcome.name == "pass" and outcome.detail != NOBODY_REVIEWED for outcome in ended)
        # If the flow has no steps for the task, no agent claimed to have built it. A later review judges the claim.
        claimed = bool(self._outcomes) and not confirmed and not self._phase.completed_later
        if not waived and self._journal.recorded(key) is None and self._workspace.is_unchanged and claimed:
            await self._run.lander.give_up_turn(self._task.id)
            return Landed(UNCHANGED, "it changed no file, and no review confirmed that nothing has to change")
        # The lander refuses a task with an open conflict, and its fixer must hear of the conflict first.
        proves = not waived and not await self.has_open_conflicts()
        refused = await self._proof_problem(cycle, key) if proves else ""
        if refused:
            await self._run.lander.give_up_turn(self._task.id)
            return Landed("unproved", refused, self._workspace.changed)
        place = self._phase.positions.get(self._task.id, 0)
        request = LandingRequest(key, self._task, self._workspace, place, checked=checked, waived=waived)
        landed, tip = await self._run.lander.land(request)
        if landed.kind == "landed":
            self._phase.set_head(tip, key)
            self._run.completed.append(self._task)
        return landed

    async def _proof_problem(self, cycle: int, landing: Key) -> str:
        """The problem that the proof found, for the fixer; '' when the task may land."""
        # A late import: the proof loads grammars of several languages, and the first dispatch must not wait for them.
        from windlass.tasks.proof import proof_question

        task = self._task
        key = self._key.child("proof", cycle=cycle)
        proven = await self._run.prover().prove(key, landing, task, self._workspace)
        if proven.ask and (await self._ctx.ask(proof_question(proven, task, cycle))).value == "refuse":
            self.emit(LandingRefused(task.id, "unproved", proven.detail[:2000], []), at=f"{proven.proof.value}#{cycle}")
            return proven.detail
        return "" if proven.ok else proven.detail

    async def catch_up(self, cycle: int) -> None:
        key = self._key.child("land.onto", cycle=cycle)
        await catch_up(self._journal, self._run.engine, key, self._task, self._workspace)

    async def has_open_conflicts(self) -> bool:
        return bool(await self._workspace.unresolved())

    def mark_resolved(self, paths: Sequence[str]) -> None:
        self._workspace.resolved_paths |= set(paths)

    async def patch(self) -> str:
        return await self._workspace.patch()
