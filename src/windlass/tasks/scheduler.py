"""Performs the schedule: starts tasks, follows each to its end, and ends them all together."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, assert_never

from msgspec import Struct

from windlass.errors import AbortedError, Exit, InterruptedDriverError, TakenOverError, WindlassError, exhausted
from windlass.events import StepEntered, TaskChanged, Warned
from windlass.kinds.base import Outcome
from windlass.kinds.routes import Target, To
from windlass.kinds.visit_cost import holds
from windlass.model import Task
from windlass.tasks.context import (
    COMPLETE,
    ESCAPED,
    FAILED,
    IMPLEMENTED,
    LANDED,
    SKIPPED,
    Ending,
    EndRunError,
    TaskContext,
    TasksContext,
)
from windlass.tasks.schedule import (
    ACTIVE,
    GiveSlot,
    LandWave,
    RetryTasks,
    SchedulePolicy,
    SkipTask,
    StartTask,
    TaskAction,
    TaskState,
    TaskStates,
    TaskStatus,
    next_actions,
    stop_reason,
)
from windlass.tasks.task import TaskVisit

if TYPE_CHECKING:
    from windlass.kinds.tasks import TasksSpec

SOON_S = 1.0
"""How long a landing task keeps its slot when other tasks wait for it: those may be better to start, and most landings
take a moment.
"""


class TaskScheduler:
    """Contract: when `work` returns or raises, none of its tasks runs any more."""

    def __init__(self, spec: TasksSpec, ctx: TasksContext, tasks: Sequence[Task]) -> None:
        self._spec = spec
        self._ctx = ctx
        self._policy = SchedulePolicy(spec.order, ctx.slots(spec.slots), ctx.values.setting(spec.failure))
        self._states = TaskStates(tasks, spec.order, {task.id for task in tasks if ctx.begun(task)})
        self._waits = TaskWaits(self._states, self._policy.slots)
        self._jobs: dict[asyncio.Task[Ending], str] = {}
        self._pause = ctx.values.setting(spec.pause) if spec.pause else "auto"
        self._rested = ctx.rested_after() if self._pause != "auto" else set()
        self._fresh: list[str] = []
        """Tasks that landed since the last pause of the run, under any driver: the next pause counts them."""
        route = spec.on.get("stopped")
        self._stops_here = route is None or route.target.to is To.STOP
        """A failure stops the run in this phase, so that a retry repeats only the failed task."""

    @property
    def endings(self) -> Mapping[str, Ending]:
        """How each task ended that has ended."""
        return self._states.endings

    async def work(self) -> Outcome:
        try:
            while True:
                await self._work_to_rest()
                held = [state.error for id in self._states.ids(TaskStatus.HELD) if (state := self._states[id]).error]
                if held:
                    raise min(held, key=_rank)
                outcome = await self._close()
                if outcome is not None:
                    return outcome
                self._states.closed, self._fresh = False, []
        finally:
            for job in self._jobs:
                job.cancel()
            await asyncio.gather(*self._jobs, return_exceptions=True)
            self._jobs.clear()
            self._ctx.go_on()

    async def _work_to_rest(self) -> None:
        """Until no task runs and none may start."""
        while True:
            actions = next_actions(self._states, self._policy)
            for action in actions:
                self._perform(action)
            if actions:
                continue
            if not self._states.count(*ACTIVE):
                return
            # Wait until a task ends, or waits: others may wait for that.
            awaited: list[asyncio.Future[Any]] = [*self._jobs, self._waits.watch()]
            await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)
            # In the plan's order, so that the result does not depend on their speed.
            ended = [job for job in self._jobs if job.done()]
            for job in sorted(ended, key=lambda job: self._states.places[self._jobs[job]]):
                id, error = self._jobs.pop(job), job.exception()
                if error is None:
                    self._end(id, job.result())
                else:
                    self._hold(id, error)
            if ended:
                # The others may run for long: show these endings now.
                self._ctx.flush()

    def _perform(self, action: TaskAction) -> None:
        tasks = self._states.tasks
        match action:
            case StartTask(id=id):
                self._begin(tasks[id], tasks[id].visit)
            case GiveSlot(id=id):
                self._waits.wake(id)
            case SkipTask(id=id, causes=causes):
                names = ", ".join(f"{cause} ({tasks[cause].title})" for cause in causes)
                self._end(id, Ending(SKIPPED, f"needs {names}, which did not complete", tasks[id].visit))
            case RetryTasks(ids=ids):
                for id in ids:
                    self._waits.wake(id)
            case LandWave(ids=ids):
                self._ctx.land_in_turn(ids)
                for id in ids:
                    self._waits.wake(id)
            case _:
                assert_never(action)

    def _begin(self, task: Task, visit: int, why: str = "") -> None:
        for earlier in range(1, visit):
            # A pause in a visit that a later one replaced: the lookup marks it as known to the journal.
            self._ctx.halted(_pause_id(task.id, earlier))
            self._ctx.halted(_stop_id(task.id, earlier))
        self._states.set(task.id, TaskState(TaskStatus.WORKING))
        self._jobs[asyncio.create_task(self._run(task, visit, why), name=task.id)] = task.id

    # -- one task

    async def _run(self, task: Task, visit: int, why: str) -> Ending:
        """Visit the task, and visit it again as long as it has to be repeated."""
        gives_slot = self._spec.order != "waves" and self._pause == "auto" and self._policy.slots > 1
        while True:
            here = self._ctx.enter_task(task, visit, why)
            try:
                await here.begin()
                turn = TaskTurn(self._waits, self._ctx, self._spec, here, task.id, visit, gives_slot)
                target, reason = await TaskVisit(self._spec, here, turn).run()
            finally:
                self._waits.end(task.id)
                await here.leave()
            retried = target.to is To.FAIL and self._policy.failure == "retry" and visit == task.visit
            if retried and self._spec.order == "waves":
                await self._waits.wait(task.id, TaskStatus.RETRYING)
            if not retried and target.to is not To.REDO:
                return self._ending(target, reason, visit)
            here.emit(TaskChanged(task.id, "pending", reason, visit=visit + 1), at="redo")
            why, visit = reason, visit + 1

    def _ending(self, target: Target, reason: str, visit: int) -> Ending:
        match target.to:
            case To.NEXT:
                reviews = [step for step in self._spec.steps if step.HAS_FINDINGS]
                reviewed = any(holds(step.when, self._ctx.values.fact) for step in reviews)
                # A later review, if the flow has one, completes a task that no step reviewed.
                state = COMPLETE if reviewed or not self._ctx.completed_later else IMPLEMENTED
                return Ending(state, reason, visit)
            case To.SKIP:
                return Ending(SKIPPED, reason, visit)
            case To.ESCAPE:
                return Ending(ESCAPED, reason, visit)
            case To.FAIL:
                return Ending(FAILED, reason, visit)
            case _:
                raise EndRunError(target, reason)

    # -- ends

    def _end(self, id: str, ending: Ending) -> None:
        task, ctx, states = self._states.tasks[id], self._ctx, self._states
        ctx.emit(TaskChanged(id, ending.state, ending.reason, visit=ending.visit), at=f"{id}+{ending.visit}")
        stop = _stop_id(id, ending.visit)
        if ending.state == FAILED and (ctx.halted(stop) if self._stops_here else ctx.retried(stop)):
            # A person has retried it: only this task runs again.
            self._begin(task, ending.visit + 1, ending.reason)
            return
        states.set(id, TaskState(TaskStatus.ENDED, ending))
        if ending.state == IMPLEMENTED:
            ctx.implemented(task)
        if ending.state == ESCAPED or (ending.state == FAILED and self._policy.failure == "stop"):
            states.closed = True
        elif ending.state == FAILED:
            ctx.emit(Warned("task", f"{task.title}: {ending.reason}; the run continues without it", task=id), at=id)
        paused = ctx.halted(_pause_id(id, ending.visit))
        if ending.state in LANDED and not paused and (id, ending.visit) not in self._rested:
            self._fresh.append(id)
            full = self._pause == "batch" and len(self._fresh) >= int(ctx.values.setting(self._spec.pause_every))
            states.closed = states.closed or self._pause == "checkpoint" or full

    async def _close(self) -> Outcome | None:
        """The list is idle. None: a halt was passed, and the list continues."""
        endings, ctx = self._states.endings, self._ctx
        escaped = [one for one in endings.values() if one.state == ESCAPED]
        if escaped:
            return Outcome("escape", escaped[0].reason)
        reason = stop_reason(self._states, self._policy)
        if reason is not None:
            stops = [_stop_id(id, one.visit) for id, one in endings.items() if one.state == FAILED]
            if not self._stops_here:
                for id in stops:
                    await ctx.mark_failure(id)
                return Outcome("stopped", reason)
            for id in stops[1:]:
                await ctx.mark_halt(id, reason)
            await ctx.halt(stops[0], reason, stop=True)
        if len(endings) == len(self._states):
            counts = Counter(ending.state for ending in endings.values())
            return Outcome("done", ", ".join(f"{number} {state}" for state, number in counts.items()))
        if self._fresh:
            last = self._fresh[-1]
            why = f"checkpoint after task {len(endings)} of {len(self._states)}"
            await ctx.halt(_pause_id(last, endings[last].visit), why)
        return None

    def _hold(self, id: str, error: BaseException) -> None:
        # A full disk is not a bug: the work of the others is recorded, as far as possible.
        error = exhausted(error) or error
        self._states.set(id, TaskState(TaskStatus.HELD, error=error))
        if isinstance(error, WindlassError) and error.exit is Exit.WAITING:
            # It waits for a person; the others do not.
            return
        self._states.closed = True
        self._ctx.wind_down(now=_ends_at_once(error))
        # Waiting tasks continue, and are refused at their next dispatch or landing.
        for waiting in self._states.ids(TaskStatus.SETTLED, TaskStatus.RETRYING, TaskStatus.RETURNING):
            self._waits.wake(waiting)


class TaskWaits:
    """Tasks that wait for an action of the scheduler, and slots that landing tasks are about to give away."""

    def __init__(self, states: TaskStates, slots: int) -> None:
        self._states = states
        self._slots = slots
        self._wakes: dict[str, asyncio.Future[None]] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._changed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def watch(self) -> asyncio.Future[None]:
        """Done when the next task waits or gives its slot away."""
        self._changed = asyncio.get_running_loop().create_future()
        return self._changed

    async def wait(self, id: str, status: TaskStatus) -> None:
        """Stay in this state until an action wakes the task."""
        self._states.set(id, TaskState(status))
        self._wakes[id] = asyncio.get_running_loop().create_future()
        self._note_change()
        await self._wakes[id]

    def wake(self, id: str) -> None:
        self._states.set(id, TaskState(TaskStatus.WORKING))
        self._wakes.pop(id).set_result(None)

    def give_slot_soon(self, id: str) -> None:
        seconds = SOON_S if self._states.is_awaited(id) else 0
        self._timers[id] = asyncio.get_running_loop().call_later(seconds, self._give_slot, id)

    def _give_slot(self, id: str) -> None:
        # The number of landing tasks is bounded too: each of them may be sent back.
        if self._states.count(TaskStatus.LANDING, TaskStatus.RETURNING) < self._slots:
            self._states.set(id, TaskState(TaskStatus.LANDING))
            self._note_change()

    async def take_slot(self, id: str) -> None:
        """Wait for a slot, unless the task still has its own."""
        self._keep_slot(id)
        if self._states[id].status is TaskStatus.LANDING:
            await self.wait(id, TaskStatus.RETURNING)

    def end(self, id: str) -> None:
        """The visit is over."""
        self._keep_slot(id)
        if self._states[id].status in (TaskStatus.LANDING, TaskStatus.RETURNING):
            self._states.set(id, TaskState(TaskStatus.WORKING))

    def _keep_slot(self, id: str) -> None:
        if id in self._timers:
            self._timers.pop(id).cancel()

    def _note_change(self) -> None:
        if not self._changed.done():
            self._changed.set_result(None)


class TaskTurn(Struct, frozen=True):
    """One visit's turns to land and to work."""

    waits: TaskWaits
    ctx: TasksContext
    spec: TasksSpec
    here: TaskContext
    id: str
    visit: int
    gives_slot: bool
    """With one slot, each task begins with the landed work of the one before; with pauses, each landing may end the
    run. Then a landing task keeps its slot."""

    async def to_land(self) -> None:
        if self.spec.order != "waves":
            await self.to_land_again()
            return
        await self.here.leave()
        if self.spec.done_label:
            at = f"{self.id}+{self.visit}/done"
            self.ctx.emit(StepEntered(self.ctx.place.key.text, self.spec.done_label, self.id), at=at)
            self.ctx.flush()
        await self.waits.wait(self.id, TaskStatus.SETTLED)

    async def to_work(self) -> None:
        await self.waits.take_slot(self.id)

    async def to_land_again(self) -> None:
        if self.gives_slot:
            await self.here.leave()
            self.waits.give_slot_soon(self.id)


def _stop_id(id: str, visit: int) -> str:
    return f"stop.{id}.{visit}"


def _pause_id(id: str, visit: int) -> str:
    return f"pause.{id}" if visit == 1 else f"pause.{id}.{visit}"


def _ends_at_once(error: BaseException) -> bool:
    """Whether the work of the other tasks is no longer needed."""
    if isinstance(error, EndRunError):
        return error.target.to is To.ABORT
    ours = AbortedError | InterruptedDriverError | TakenOverError
    return isinstance(error, ours) or not isinstance(error, WindlassError)


def _rank(error: BaseException) -> int:
    """Which of several errors ends the run: a bug first, a question last."""
    if isinstance(error, EndRunError):
        return 2
    if not isinstance(error, WindlassError):
        return 0
    exits = (Exit.ABORTED, Exit.INTERRUPTED, None, Exit.STOPPED, Exit.PAUSED, Exit.WAITING)
    return exits.index(error.exit) if error.exit in exits else 3
