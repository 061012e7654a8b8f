"""The tasks at work at the same time: started by the schedule, followed to their ends, called off together."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

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
from windlass.tasks.schedule import Schedule
from windlass.tasks.task import through
from windlass.tasks.turns import SlotTurns

if TYPE_CHECKING:
    from windlass.kinds.tasks import TasksSpec


class TaskScheduler:
    """Contract: when `work` returns or raises, nothing of it is at work any more."""

    def __init__(self, spec: TasksSpec, ctx: TasksContext, tasks: Sequence[Task]) -> None:
        self._spec = spec
        self._ctx = ctx
        self._tasks = tasks
        self._by_id = {task.id: task for task in tasks}
        self._place = {task.id: place for place, task in enumerate(tasks)}
        self._schedule = Schedule(tasks, spec.order, {task.id for task in tasks if ctx.begun(task)})
        self._slots = ctx.slots(spec.slots)
        self._policy = ctx.values.setting(spec.failure)
        self._pause = ctx.values.setting(spec.pause) if spec.pause else "auto"
        self._ended: dict[str, Ending] = {}
        self._working: dict[asyncio.Task[Ending], str] = {}
        self._parked: dict[str, asyncio.Future[None]] = {}
        """Done with their steps, until their wave has settled."""
        self._turns = SlotTurns(self._slots, self._stir)
        self._retrying: dict[str, asyncio.Future[None]] = {}
        """Failed and to be tried once more, when the others of the wave have settled."""
        self._held: dict[str, BaseException] = {}
        """What a task cannot go on from, as a question that nobody here can answer."""
        self._parking: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._closed = False
        """Nothing new starts."""
        self._rested = ctx.rested_after() if self._pause != "auto" else set()
        self._fresh: list[str] = []
        """Landed since the run last rested, whoever drove it: what the next pause counts."""

    async def work(self) -> Outcome:
        try:
            while True:
                await self._to_the_end()
                self._raise_held()
                outcome = await self._closing()
                if outcome is not None:
                    return outcome
                self._closed, self._fresh = False, []
        finally:
            await self._call_off()
            self._ctx.go_on()

    # -- the loop

    async def _to_the_end(self) -> None:
        """Until nothing is at work and nothing may start."""
        while True:
            self._give_up()
            self._start()
            if self._active:
                await self._next_end()
            elif not self._settle():
                return

    @property
    def _active(self) -> bool:
        return len(self._working) > len(self._parked) + len(self._retrying)

    def _give_up(self) -> None:
        """Dependents of what did not complete are named and never run."""
        while lacking := self._schedule.take_doomed():
            for id, causes in lacking.items():
                names = ", ".join(f"{cause} ({self._by_id[cause].title})" for cause in causes)
                self._end(id, Ending(SKIPPED, f"needs {names}, which did not complete", self._by_id[id].visit))

    def _start(self) -> None:
        # Who was sent back goes before anything new. Who waits for a person has left its slot.
        self._turns.take_back(self._slots - len(set(self._working.values()) - self._resting), self._place)
        if self._closed:
            runs_out = self._spec.order == "waves" and not self._held and self._stop_reason is not None
            if not runs_out or not self._has_failed_in(self._schedule.wave):
                return
        known = {*self._working.values(), *self._held}
        for task in self._schedule.start(self._slots - len(known - self._resting), known):
            self._begin(task, task.visit)

    def _has_failed_in(self, wave: int) -> bool:
        """A wave that one task failed in still runs to its end."""
        failed = (id for id, ending in self._ended.items() if ending.state == FAILED)
        return any(self._schedule.wave_of(id) >= wave for id in failed)

    def _begin(self, task: Task, visit: int, why: str = "") -> None:
        for earlier in range(1, visit):
            # Where it rested in a visit that a later one took the place of: known, and left behind.
            self._ctx.halted(_pause_id(task.id, earlier))
            self._ctx.halted(_stop_id(task.id, earlier))
        self._working[asyncio.create_task(self._settled(task, visit, why), name=task.id)] = task.id

    async def _next_end(self) -> None:
        """Or until one parks: that, too, can be what the others wait for."""
        self._parking = asyncio.get_running_loop().create_future()
        awaited: list[asyncio.Future[Any]] = [*self._working, self._parking]
        await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)
        # By the plan's order, so that what follows does not depend on the order of a set.
        done = [one for one in self._working if one.done()]
        for one in sorted(done, key=lambda one: self._place[self._working[one]]):
            id = self._working.pop(one)
            error = one.exception()
            if error is None:
                self._end(id, one.result())
            else:
                self._hold(id, error)
        if done:
            # Others may be at work for long: what became of these is seen now.
            self._ctx.flush()

    def _settle(self) -> bool:
        """A wave has come to rest: first who failed tries once more, then all land together. False: nobody waits."""
        waiting = self._retrying or self._parked
        if not waiting or (waiting is self._parked and self._held):
            return False
        ids = [task.id for task in self._tasks if task.id in waiting]
        if waiting is self._parked:
            self._ctx.land_in_turn(ids)
        for id in ids:
            waiting.pop(id).set_result(None)
        return True

    @property
    def _resting(self) -> set[str]:
        """Not at work, so that others may use their slots."""
        return {*self._parked, *self._retrying, *self._turns.landing}

    # -- one task

    async def _settled(self, task: Task, visit: int, why: str) -> Ending:
        while True:
            found = await self._visit(task, visit, why)
            if isinstance(found, Ending):
                return found
            why, visit = found, visit + 1

    async def _visit(self, task: Task, visit: int, why: str) -> Ending | str:
        """Words instead of an ending: why the task is to be done again, as a new visit."""
        here = self._ctx.enter_task(task, visit, why)
        try:
            await here.begin()
            target, reason = await through(self._spec, here, TaskTurn(self, task, visit, here))
        finally:
            self._turns.end(task.id)
            await here.leave()
        retried = target.to is To.FAIL and self._policy == "retry" and visit == task.visit
        if retried and self._spec.order == "waves":
            await self._park(self._retrying, task, visit)
        if retried or target.to is To.REDO:
            here.emit(TaskChanged(task.id, "pending", reason, visit=visit + 1), at="redo")
            return reason
        return self._ending(target, reason, visit)

    def _ending(self, target: Target, reason: str, visit: int) -> Ending:
        match target.to:
            case To.NEXT:
                return Ending(COMPLETE if self._is_reviewed else IMPLEMENTED, reason, visit)
            case To.SKIP:
                return Ending(SKIPPED, reason, visit)
            case To.ESCAPE:
                return Ending(ESCAPED, reason, visit)
            case To.FAIL:
                return Ending(FAILED, reason, visit)
            case _:
                raise EndRunError(target, reason)

    @property
    def _is_reviewed(self) -> bool:
        """False: nobody judged the task, and a later review completes it."""
        reviews = [step for step in self._spec.steps if step.HAS_FINDINGS]
        return not self._ctx.completed_later or any(holds(step.when, self._ctx.values.fact) for step in reviews)

    async def to_land(self, task: Task, visit: int, here: TaskContext) -> None:
        if self._spec.order == "waves":
            await here.leave()
            await self._park(self._parked, task, visit)
        else:
            await self.to_land_again(task.id, here)

    async def to_land_again(self, id: str, here: TaskContext) -> None:
        """With one slot each task begins on what the one before has landed, and a rest is due after a landing."""
        if self._spec.order != "waves" and self._pause == "auto" and self._slots > 1:
            await here.leave()
            self._turns.land(id, awaited=self._schedule.is_awaited(id))

    async def to_work(self, id: str) -> None:
        await self._turns.work(id)

    def _stir(self) -> None:
        if not self._parking.done():
            self._parking.set_result(None)

    async def _park(self, where: dict[str, asyncio.Future[None]], task: Task, visit: int) -> None:
        if where is self._parked and self._spec.done_label:
            at = f"{task.id}+{visit}/done"
            self._ctx.emit(StepEntered(self._ctx.place.key.text, self._spec.done_label, task.id), at=at)
            self._ctx.flush()
        opened = asyncio.get_running_loop().create_future()
        where[task.id] = opened
        self._stir()
        await opened

    # -- ends

    def _end(self, id: str, ending: Ending) -> None:
        task, ctx = self._by_id[id], self._ctx
        ctx.emit(TaskChanged(id, ending.state, ending.reason, visit=ending.visit), at=f"{id}+{ending.visit}")
        if ending.state == FAILED and self._is_retried(_stop_id(id, ending.visit)):
            # A person has retried it: this task alone is taken up again.
            self._begin(task, ending.visit + 1, ending.reason)
            return
        self._ended[id] = ending
        if ending.state in LANDED:
            self._schedule.land(id)
        else:
            self._schedule.lose(id)
        if ending.state == IMPLEMENTED:
            ctx.implemented(task)
        if ending.state == ESCAPED or (ending.state == FAILED and self._policy == "stop"):
            self._closed = True
        elif ending.state == FAILED:
            ctx.emit(Warned("task", f"{task.title}: {ending.reason}; the run goes on without it", task=id), at=id)
        paused = ctx.halted(_pause_id(id, ending.visit))
        if ending.state in LANDED and not paused and (id, ending.visit) not in self._rested:
            self._fresh.append(id)
            self._closed = self._closed or self._is_rest_due()

    def _is_rest_due(self) -> bool:
        if self._pause == "checkpoint":
            return True
        return self._pause == "batch" and len(self._fresh) >= int(self._ctx.values.setting(self._spec.pause_every))

    @property
    def _stop_reason(self) -> str | None:
        failed = [(id, one) for id, one in self._ended.items() if one.state == FAILED]
        if not failed or not (self._policy == "stop" or self._is_all_in_vain):
            return None
        return "; ".join(f"{self._by_id[id].title}: {one.reason}" for id, one in failed)

    @property
    def _is_all_in_vain(self) -> bool:
        """To go on without what failed, there must be something to go on with."""
        return len(self._ended) == len(self._tasks) and not any(one.state in LANDED for one in self._ended.values())

    @property
    def _stops_here(self) -> bool:
        """The failure stops the run where it is, so that a retry takes up this task alone."""
        route = self._spec.on.get("stopped")
        return route is None or route.target.to is To.STOP

    def _is_retried(self, stop: str) -> bool:
        return self._ctx.halted(stop) if self._stops_here else self._ctx.retried(stop)

    async def _closing(self) -> Outcome | None:
        """Everything has come to rest. None: a halt was passed, go on."""
        escaped = [one for one in self._ended.values() if one.state == ESCAPED]
        if escaped:
            return Outcome("escape", escaped[0].reason)
        reason = self._stop_reason
        if reason is not None and self._stops_here:
            await self._halt_failed(reason)
        elif reason is not None:
            for id, one in self._ended.items():
                if one.state == FAILED:
                    await self._ctx.mark_failure(_stop_id(id, one.visit))
            return Outcome("stopped", reason)
        if len(self._ended) == len(self._tasks):
            return Outcome("done", _counts(self._ended))
        if self._fresh:
            last = self._fresh[-1]
            why = f"checkpoint after task {len(self._ended)} of {len(self._tasks)}"
            await self._ctx.halt(_pause_id(last, self._ended[last].visit), why)
        return None

    async def _halt_failed(self, reason: str) -> None:
        failed = {id: one for id, one in self._ended.items() if one.state == FAILED}
        ids = [_stop_id(id, one.visit) for id, one in failed.items()]
        for id in ids[1:]:
            await self._ctx.mark_halt(id, reason)
        await self._ctx.halt(ids[0], reason, stop=True)

    # -- trouble

    def _hold(self, id: str, error: BaseException) -> None:
        # A full disk is nobody's bug: what the others are at is recorded, as far as it can be.
        error = exhausted(error) or error
        self._held[id] = error
        if isinstance(error, WindlassError) and error.exit is Exit.WAITING:
            # It waits for a person; the others need not.
            return
        self._closed = True
        self._ctx.wind_down(now=_at_once(error))
        self._let_go()

    def _let_go(self) -> None:
        """Who waits is woken, to be turned away at the next dispatch or landing."""
        for waiting in (self._parked, self._retrying, self._turns.returning):
            for id in list(waiting):
                waiting.pop(id).set_result(None)

    def _raise_held(self) -> None:
        if self._held:
            raise min(self._held.values(), key=_rank)

    async def _call_off(self) -> None:
        for one in self._working:
            one.cancel()
        await asyncio.gather(*self._working, return_exceptions=True)
        self._working.clear()


class TaskTurn(Struct, frozen=True):
    """One task's turns to land and to work."""

    crew: TaskScheduler
    task: Task
    visit: int
    here: TaskContext

    async def to_land(self) -> None:
        await self.crew.to_land(self.task, self.visit, self.here)

    async def to_work(self) -> None:
        await self.crew.to_work(self.task.id)

    async def to_land_again(self) -> None:
        await self.crew.to_land_again(self.task.id, self.here)


def _stop_id(id: str, visit: int) -> str:
    return f"stop.{id}.{visit}"


def _pause_id(id: str, visit: int) -> str:
    return f"pause.{id}" if visit == 1 else f"pause.{id}.{visit}"


def _at_once(error: BaseException) -> bool:
    """Nobody wants what is still at work."""
    if isinstance(error, EndRunError):
        return error.target.to is To.ABORT
    ours = AbortedError | InterruptedDriverError | TakenOverError
    return isinstance(error, ours) or not isinstance(error, WindlassError)


def _rank(error: BaseException) -> int:
    """Which of several reasons to end is told: a bug first, a question last."""
    if isinstance(error, EndRunError):
        return 2
    if not isinstance(error, WindlassError):
        return 0
    order = (Exit.ABORTED, Exit.INTERRUPTED, None, Exit.STOPPED, Exit.PAUSED, Exit.WAITING)
    return order.index(error.exit) if error.exit in order else 3


def _counts(ended: dict[str, Ending]) -> str:
    counts = Counter(ending.state for ending in ended.values())
    return ", ".join(f"{number} {state}" for state, number in counts.items())
