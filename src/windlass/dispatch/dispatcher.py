"""One keyed dispatch, from a call to its recorded reply: reserve, run at the site, judge, record, try again."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from windlass.agents.base import Adapter, Job, Limits
from windlass.config.schema import Config
from windlass.dispatch.instructions import read_instructions
from windlass.dispatch.monitor import DispatchMonitor
from windlass.dispatch.request import DispatchRequest, addressees, inputs_of, make_job, recovery_text
from windlass.dispatch.site import InterruptedAttempt, Site
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
    """Contract: a step that has a result never reaches the site."""

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
        self.lived: set[str] = set()
        """Keys that ran under this driver."""

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
        self.lived.add(key.text)
        with workspace.seat() as free:
            try:
                request = self._request(call, key, phase, cycle, task, completed)
                done = await self._tries(request, free)
            finally:
                if free is not workspace:
                    await free.leave(key.text)
        return self._stand(call, workspace, key, task, done.reply, done.contents)

    def recall(self, call: Call, workspace: Workspace, key: Key, task: Task | None) -> Reply | None:
        """What a finished step with these inputs replied; None when there is none."""
        row = self._journal.recorded(key)
        if row is None or row.fingerprint != digest(inputs_of(call)):
            return None
        return self._recall(call, workspace, key, task, reply_of(row.result))

    # -- tries

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

    async def _tries(self, request: DispatchRequest, workspace: Workspace) -> AttemptResult:
        key, began, reminder = request.key, time.monotonic(), ""
        left = self._site.interrupted(key.text)
        while True:
            self._requests.check()
            adapter = self._assignments.adapters(request.assignment.agent)
            turn = await self._quota.turn(key.text, adapter.credential)
            left = self._continued(left, adapter, workspace)
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
                    # at the same time: some CLIs take a second to tell their version
                    self._warn_of(adapter.name),
                )
                if done.failure and done.failure.error in WAITS:
                    # Before the probe is given back: nobody shall slip in between.
                    reason, retry_at = done.failure.reason, done.failure.retry_at
                    self._quota.hold(key.text, adapter.credential, turn, reason, retry_at)
            finally:
                turn.end()
            if done.failure is None or done.final:
                return done
            reminder, left = done.reminder, done.left
            if done.failure.error is ErrorClass.OVER_BUDGET and not done.failure.hint:
                # The run's own limit: whoever raises it lets this dispatch go on.
                cap, reports = request.assignment.usd, _reports(adapter)
                await self._budget.require_room(request.call.role, cap, reports=reports)
                continue
            await self._pause(key, done.failure, began)

    def _continued(
        self, left: InterruptedAttempt | None, adapter: Adapter, workspace: Workspace
    ) -> InterruptedAttempt | None:
        if not left or left.agent in ("", adapter.name):
            return left
        # Another agent plays the role now: the checkout is cleaned, what is in it is kept.
        workspace.resume(left.checkout)
        workspace.disturb()
        return None

    async def _warn_of(self, agent: str) -> None:
        text = await self._site.agent_warning(agent)
        if text:
            self._journal.emit("agents", Warned("agent", text))
            self._journal.flush()

    def _next(self, key: Key, failure: AttemptFailure, recorded: int) -> Next:
        """Counted from the attempts on record, so that a restart gives no more tries."""
        errors = Counter(row.error for row in self._journal.attempts.all(key))
        return after(failure.error, errors[failure.error] - recorded, self._config.retries)

    async def _pause(self, key: Key, failure: AttemptFailure, began: float) -> None:
        match self._next(key, failure, 1):
            case Stop(hint=hint):
                raise StoppedError(failure.reason, hint=failure.hint or hint)
            case TryAgain(shared=True):
                pass  # the quota holds the next try back
            case TryAgain() if time.monotonic() - began > self._config.retries.longest_wait:
                self._requests.check()
                raise StoppedError(
                    f"{key} does not come to its end (retries.longest_wait): {failure.reason}",
                    hint="windlass resume continues it",
                )
            case TryAgain(pause_s=seconds):
                await self._sleep(seconds)
            case Fail():
                pass  # only a session that was lost: it begins anew at once

    async def _sleep(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._requests.stop.wait()
        except TimeoutError:
            return

    # -- one attempt

    async def _attempt(
        self, request: DispatchRequest, adapter: Adapter, workspace: Workspace, turn: QuotaTurn
    ) -> AttemptResult:
        token, role, cap = request.token, request.call.role, request.assignment.usd
        reserved = await self._budget.reserve(token, role, cap, reports=_reports(adapter))
        monitor = DispatchMonitor(request, self._journal, self._budget, self._requests.stop, turn.answered)
        try:
            # Reserving may have waited: what a person asked for meanwhile counts.
            self._requests.check()
            if not request.interrupted:
                # a session that goes on was told
                found = await read_instructions(request, workspace, self._config, self._journal)
                request = replace(request, instructions=found)
            job = await self._prepare(request, workspace)
            self._begin(request, job, adapter, workspace, reserved)
            if job.files:
                workspace.disturb()
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
                half_done = _half_done_text(*await workspace.checkout.half_done(workspace.head))
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
        return self._stand(call, workspace, key, task, reply, contents)

    def _stand(
        self,
        call: Call,
        workspace: Workspace,
        key: Key,
        task: Task | None,
        reply: Reply,
        contents: Mapping[str, str],
    ) -> Reply:
        """Put in force what the dispatch gave: its artifacts and its code."""
        self._values.roles_ran.add(call.role)
        for name, content in contents.items():
            self._values.artifacts.hold(name, content, key.text, task.id if task else "")
        if reply.head:
            workspace.move(reply.head)
            workspace.changed = reply.files
        return reply


def adopted_content(journal: Journal, key: Key, name: str, sha: str) -> str:
    """The id of the content that is in force: a person may have replaced what the step made."""
    for adoption in journal.adoptions:
        if (adoption.producer, adoption.artifact) == (key.text, name):
            sha = adoption.new_sha
    return sha


def _reports(adapter: Adapter) -> bool:
    """The agent tells what it uses while it works."""
    return adapter.flat_usd is not None or adapter.capabilities.cost in ("stream", "tokens")


def _half_done_text(files: Sequence[str], commits: Sequence[str]) -> str:
    """What an earlier attempt left in the checkout, as words of the prompt; '' when it is clean."""
    found = [f"uncommitted: {_named(files)}"] if files else []
    found += [f"committed: {_named(commits)}"] if commits else []
    if not found:
        return ""
    return f"what they left half done lies in this directory ({'; '.join(found)}): look at it, keep what is right"


def _named(names: Sequence[str]) -> str:
    shown = [f"'{plain(name)}'" for name in names[:MOST_NAMED]]
    more = len(names) - MOST_NAMED
    return ", ".join([*shown, f"{more} more"] if more > 0 else shown)
