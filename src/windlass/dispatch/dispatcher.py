"""Performs one dispatch: reserves money, runs attempts at the site, has them judged, and returns the recorded reply."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress

from msgspec.structs import replace

from windlass.agents.base import Adapter, Job, Limits
from windlass.config.schema import Config
from windlass.dispatch.instructions import read_instructions
from windlass.dispatch.monitor import DispatchMonitor
from windlass.dispatch.request import DispatchRequest, addressees, inputs_of, make_job, recovery_text
from windlass.dispatch.site import Site
from windlass.dispatch.verdict import AttemptJudge, AttemptResult, reply_of
from windlass.dispatch.workspace import Workspace
from windlass.engine.attempts import AttemptFailure
from windlass.engine.budget import Budget
from windlass.engine.journal import Journal
from windlass.engine.quota import WAITS, QuotaTurn, QuotaWaits
from windlass.engine.retry import Fail, Next, Stop, TryAgain, after
from windlass.engine.services import Assignments, StopRequests
from windlass.engine.values import RunValues
from windlass.errors import StoppedError
from windlass.events import DispatchStarted, Warned
from windlass.kinds.base import Call, Reply
from windlass.model import ErrorClass, Key, Task, digest
from windlass.store.rows import Intent
from windlass.text import plain

MOST_NAMED = 20


class Dispatcher:
    """Contract: a step with a recorded result never reaches the site."""

    def __init__(
        self,
        site: Site,
        journal: Journal,
        values: RunValues,
        assignments: Assignments,
        config: Config,
        budget: Budget,
        quota: QuotaWaits,
        requests: StopRequests,
    ) -> None:
        self._site = site
        self._journal = journal
        self._values = values
        self._assignments = assignments
        self._config = config
        self._budget = budget
        self._quota = quota
        self._requests = requests
        self._judge = AttemptJudge(site, journal, values, config, requests)
        self.live_keys: set[str] = set()
        """Keys of the dispatches that ran under this driver."""

    async def run(
        self,
        call: Call,
        workspace: Workspace,
        key: Key,
        phase: str,
        cycle: int = 0,
        task: Task | None = None,
        completed: Sequence[Task] = (),
    ) -> Reply:
        row = self._journal.find(key, inputs_of(call))
        if row is not None:
            return self._recall(call, workspace, key, task, reply_of(row.result))
        self.live_keys.add(key.text)
        with workspace.free_workspace() as free:
            try:
                request = self._request(call, key, phase, cycle, task, completed)
                done = await self._attempt_until_done(request, free)
            finally:
                if free is not workspace:
                    await free.leave(key.text)
        return self._apply_reply(call, workspace, key, task, done.reply, done.contents)

    def recall(self, call: Call, workspace: Workspace, key: Key, task: Task | None) -> Reply | None:
        """The recorded reply of the step, if its inputs are the same; else None."""
        row = self._journal.recorded(key)
        if row is None or row.fingerprint != digest(inputs_of(call)):
            return None
        return self._recall(call, workspace, key, task, reply_of(row.result))

    # -- attempts

    def _request(
        self, call: Call, key: Key, phase: str, cycle: int, task: Task | None, completed: Sequence[Task]
    ) -> DispatchRequest:
        assignment = self._assignments.assignment(call.role, call.profile)
        adapter = self._assignments.adapters(assignment.agent)
        return DispatchRequest(
            key=key,
            phase=phase,
            call=call,
            flow=self._values.flow,
            role=self._assignments.roles[call.role],
            assignment=assignment,
            agent=adapter.name,
            resumes=adapter.capabilities.resume,
            outs={name: path for name in call.outs if (path := self._values.path(name))},
            secret=self._values.tag_secret,
            cycle=cycle,
            task=task,
            completed=tuple(completed),
        )

    async def _attempt_until_done(self, request: DispatchRequest, workspace: Workspace) -> AttemptResult:
        key, began, reminder = request.key, time.monotonic(), ""
        left = self._site.take_interrupted(key.text)
        while True:
            self._requests.check()
            adapter = self._assignments.adapters(request.assignment.agent)
            turn = await self._quota.turn(key.text, adapter.credential)
            if left and left.agent not in ("", adapter.name):
                # Another agent plays the role now. Keep the work in the checkout, then clean it.
                workspace.resume(left.checkout)
                workspace.mark_dirty()
                left = None
            request = replace(
                request,
                attempt=self._journal.attempts.next(key),
                reminder=reminder,
                messages=tuple(self._journal.store.messages.waiting(self._journal.run, addressees(request.role))),
                interrupted=left,
                instructions={},
            )
            try:
                done, _ = await asyncio.gather(
                    self._attempt(request, adapter, workspace, turn),
                    # At the same time, because some CLIs need a second to print their version.
                    self._warn_about(adapter.name),
                )
                if done.failure and done.failure.error in WAITS:
                    # Hold before the turn ends, so that no other dispatch starts in between.
                    reason, retry_at = done.failure.reason, done.failure.retry_at
                    self._quota.hold(key.text, adapter.credential, turn, reason, retry_at)
            finally:
                turn.end()
            if done.failure is None or done.final:
                return done
            reminder, left = done.reminder, done.left
            if done.failure.error is ErrorClass.OVER_BUDGET and not done.failure.hint:
                # The limit of the run: this dispatch continues when a person raises it.
                cap, reports = request.assignment.usd, _reports(adapter)
                await self._budget.require_room(request.call.role, cap, reports=reports)
                continue
            await self._pause(key, done.failure, began)

    async def _warn_about(self, agent: str) -> None:
        text = await self._site.agent_warning(agent)
        if text:
            self._journal.emit("agents", Warned("agent", text))
            self._journal.flush()

    def _next(self, key: Key, failure: AttemptFailure, recorded: int) -> Next:
        """Count the recorded attempts, so that a restart does not allow more attempts."""
        errors = Counter(row.error for row in self._journal.attempts.all(key))
        return after(failure.error, errors[failure.error] - recorded, self._config.retries)

    async def _pause(self, key: Key, failure: AttemptFailure, began: float) -> None:
        match self._next(key, failure, 1):
            case Stop(hint=hint):
                raise StoppedError(failure.reason, hint=failure.hint or hint)
            case TryAgain(shared=True):
                pass  # the quota delays the next attempt
            case TryAgain() if time.monotonic() - began > self._config.retries.longest_wait:
                self._requests.check()
                raise StoppedError(
                    f"{key} does not succeed (retries.longest_wait): {failure.reason}",
                    hint="to try again: windlass resume",
                )
            case TryAgain(pause_s=seconds):
                with suppress(TimeoutError):
                    async with asyncio.timeout(seconds):
                        await self._requests.stop.wait()
            case Fail():
                pass  # only a lost session: the next attempt starts at once

    # -- one attempt

    async def _attempt(
        self, request: DispatchRequest, adapter: Adapter, workspace: Workspace, turn: QuotaTurn
    ) -> AttemptResult:
        token, role, cap = request.token, request.call.role, request.assignment.usd
        reserved = await self._budget.reserve(token, role, cap, reports=_reports(adapter))
        monitor = DispatchMonitor(request, self._journal, self._budget, self._requests.stop, turn.answered)
        try:
            # The reservation may have waited. A person may have asked for a stop in the meantime.
            self._requests.check()
            if not request.interrupted:
                # A session that continues already has the instructions.
                found = await read_instructions(request, workspace, self._config, self._journal)
                request = replace(request, instructions=found)
            job = await self._prepare(request, workspace)
            self._begin(request, job, adapter, workspace, reserved)
            if job.files:
                workspace.mark_dirty()
            done = await self._site.run(job, workspace.checkout, monitor)
            monitor.end()
            return await self._judge.judge(
                request,
                adapter,
                workspace,
                done,
                lambda failure: isinstance(self._next(request.key, failure, 0), Fail),
            )
        finally:
            monitor.end()
            self._budget.release(token)

    async def _prepare(self, request: DispatchRequest, workspace: Workspace) -> Job:
        half_done = ""
        if request.interrupted:
            workspace.resume(request.interrupted.checkout)
        else:
            await workspace.ready(request.key.text, request.attempt)
            if request.attempt > 1 and request.role.writes == "code":
                files, commits = await workspace.checkout.half_done(workspace.head)
                named = {"uncommitted": files, "committed": commits}
                found = "; ".join(f"{what}: {_name_list(names)}" for what, names in named.items() if names)
                advice = "look at it, keep what is right"
                half_done = f"their unfinished work is in this directory ({found}): {advice}" if found else ""
        limits = Limits(
            request.assignment.wall_s or 1800.0,
            request.assignment.turns,
            request.assignment.usd,
            self._config.limits.output_mb << 20,
            self._budget.left,
        )
        recovery = recovery_text(self._journal.attempts.all(request.key), half_done)
        return await make_job(request, self._values, workspace, limits, recovery)

    def _begin(
        self, request: DispatchRequest, job: Job, adapter: Adapter, workspace: Workspace, reserved: float
    ) -> None:
        key, n = request.key, request.attempt
        intent = Intent(
            key=key.text,
            n=n,
            folder=self._site.attempt_name(key.text, n),
            host=self._site.address.host,
            boot=self._site.address.boot,
            slot=workspace.checkout.name,
            base=job.base,
            role=job.role,
            agent=job.agent,
            model=job.model,
            credential=adapter.credential,
            reserved=reserved,
            wall_s=job.limits.wall_s,
        )
        started = DispatchStarted(
            key=key.text,
            attempt=n,
            role=job.role,
            agent=job.agent,
            model=job.model,
            purpose=job.purpose,
            task=request.task_id,
            cycle=request.cycle,
            cycles=request.call.cycles,
            reserved_usd=reserved,
            told=list(request.messages),
        )
        self._journal.attempts.begin(intent, started, message_roles=request.addressees if request.messages else ())
        if job.session:
            self._journal.attempts.note_session(key, n, job.session)

    # -- replies

    def _recall(self, call: Call, workspace: Workspace, key: Key, task: Task | None, reply: Reply) -> Reply:
        store = self._journal.store
        contents = {
            name: store.blobs.get(adopted_content(self._journal, key, name, sha)) for name, sha in reply.outs.items()
        }
        return self._apply_reply(call, workspace, key, task, reply, contents)

    def _apply_reply(
        self,
        call: Call,
        workspace: Workspace,
        key: Key,
        task: Task | None,
        reply: Reply,
        contents: Mapping[str, str],
    ) -> Reply:
        """Put the artifacts and the code of the dispatch in force."""
        self._values.roles_ran.add(call.role)
        for name, content in contents.items():
            self._values.artifacts.hold(name, content, key.text, task.id if task else "")
        if reply.head:
            workspace.move(reply.head)
            workspace.changed = reply.files
        return reply


def adopted_content(journal: Journal, key: Key, name: str, sha: str) -> str:
    """The id of the content in force: a person may have replaced the output of the step."""
    for adoption in journal.adoptions:
        if (adoption.producer, adoption.artifact) == (key.text, name):
            sha = adoption.new_sha
    return sha


def _reports(adapter: Adapter) -> bool:
    """The agent reports its usage while it works."""
    return adapter.flat_usd is not None or adapter.capabilities.cost in ("stream", "tokens")


def _name_list(names: Sequence[str]) -> str:
    quoted = [f"'{plain(name)}'" for name in names[:MOST_NAMED]]
    more = len(names) - MOST_NAMED
    return ", ".join([*quoted, f"{more} more"] if more > 0 else quoted)
