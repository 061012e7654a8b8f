"""Judges an attempt that has ended: keeps or undoes its work, accepts or refuses its answer, and records its end."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import assert_never

from msgspec import Struct, field

from windlass.agents.base import Adapter, AgentResult, EndsWithExit, Unsure
from windlass.agents.contracts import registry as contracts
from windlass.agents.contracts.task_list import match_tasks
from windlass.agents.prices import price_date
from windlass.checks.test_files import TEST_GLOBS, guard
from windlass.config.schema import Config
from windlass.dispatch.request import WORK, DispatchRequest
from windlass.dispatch.site import InterruptedAttempt, Leftovers, Site, SiteResult
from windlass.dispatch.workspace import Workspace
from windlass.engine.attempts import AttemptFailure
from windlass.engine.journal import Journal
from windlass.engine.services import StopRequests
from windlass.engine.values import RunValues
from windlass.events import ArtifactStored, DispatchFinished, Event, Warned
from windlass.kinds.base import Reply
from windlass.kinds.task_graph import with_groups
from windlass.model import ErrorClass, Finding, Json, Severity, content_id
from windlass.text import plain

MAX_TEXT = 200_000
MAX_REASON = 2_000
PLANS = ("tasks", *contracts.TASK_LISTS)


class AttemptResult(Struct, frozen=True):
    """The verdict on one attempt: a recorded reply, or the reason why there is none yet."""

    reply: Reply
    contents: Mapping[str, str] = field(default_factory=dict)
    failure: AttemptFailure | None = None
    final: bool = True
    """False: no result is recorded, and another attempt follows."""
    reminder: str = ""
    left: InterruptedAttempt | None = None
    """The agent's session, for the next attempt to continue."""


#: errors after which the unfinished work is useful; after other errors it may be their cause
UNFINISHED = frozenset(
    {
        *(ErrorClass.RATE_LIMITED, ErrorClass.OVERLOADED, ErrorClass.KILLED, ErrorClass.DRIVER_LOST),
        *(ErrorClass.CRASHED, ErrorClass.TIMED_OUT, ErrorClass.OVER_BUDGET),
        *(ErrorClass.AUTH, ErrorClass.BILLING, ErrorClass.DISK_FULL),
    }
)


class AttemptJudge:
    """Judges the attempts of a run, which may end at the same time."""

    def __init__(self, site: Site, journal: Journal, values: RunValues, config: Config, requests: StopRequests) -> None:
        self._site = site
        self._journal = journal
        self._values = values
        self._config = config
        self._requests = requests
        self._agents: dict[str, int] = {}
        """Checkout -> the number of its agent, in the order of their starts."""

    async def judge(
        self,
        request: DispatchRequest,
        adapter: Adapter,
        workspace: Workspace,
        done: SiteResult,
        is_final: Callable[[AttemptFailure], bool],
    ) -> AttemptResult:
        result = done.result
        if result.error is not None and result.error is not ErrorClass.BAD_OUTPUT:
            return await self._judge_unfinished(request, adapter, workspace, done, is_final)
        parsed = contracts.Parsed()
        contents: dict[str, str] = {}
        if result.error is None:
            parsed = _parse_reply(request, result)
            for name in request.call.outs:
                if name not in request.outs:
                    # A text or data output is the reply.
                    is_data = request.flow.artifacts[name].kind == "json"
                    contents[name] = json.dumps(parsed.value) if is_data else result.text
                elif name in done.outputs:
                    contents[name] = done.outputs[name]
        notes = _notes(done.leftovers) + await self._settle_work(request, workspace, done.leftovers)
        unchanged = result.error is None and request.must_change and workspace.is_unchanged
        reason = _no_change(parsed.value) if unchanged else ""
        notes += [_remark(f"it changed nothing: {reason}")] if reason else []
        reply = await _reply(request, workspace, result, parsed, contents, notes)
        failure, reminder = self._failure(request, adapter, workspace, result, parsed, reply, contents)
        await self._journal.settle()
        if failure is None:
            self._finish(request, result, reply, contents, None)
            return AttemptResult(reply, contents)
        final = is_final(failure)
        failed = self._failed_reply(request, reply, failure, final)
        # A refused output is never in force, also not in a replay.
        self._finish(request, result, failed if final else None, {}, failure)
        # Ask for a better answer in the same session, because the agent has already read everything.
        asks_again = reminder and result.session and workspace.checkout.name and adapter.capabilities.resume
        left = self._interrupted_attempt(request, workspace, result.session, "") if asks_again else None
        return AttemptResult(failed, {}, failure, final, reminder, left)

    async def _judge_unfinished(
        self,
        request: DispatchRequest,
        adapter: Adapter,
        workspace: Workspace,
        done: SiteResult,
        is_final: Callable[[AttemptFailure], bool],
    ) -> AttemptResult:
        """The agent did not finish. Unless this is the step's result, the next attempt finds the unfinished work."""
        result, leftovers, key, n = done.result, done.leftovers, request.key.text, request.attempt
        assert result.error is not None
        failure = AttemptFailure(result.error, result.reason, result.retry_at, _limit_hint(request, result))
        # An attempt that had to continue a session and did nothing: the CLI does not know the session any more. The
        # session is given up, and the attempt does not count as a failure of the agent.
        lost = request.interrupted is not None and result.error is ErrorClass.CRASHED and not _did_something(result)
        final = not lost and is_final(failure)
        over = final or lost or self._requests.abort or bool(leftovers.refused)
        left = None if over else self._continuation(request, adapter, workspace, result)
        notes = _notes(leftovers)
        if left:
            await workspace.checkout.keep(key, n)
            await workspace.checkout.reserve(key, n)
        elif not final and request.role.writes == "code" and result.error in UNFINISHED and not leftovers.refused:
            await workspace.checkout.keep(key, n)
        elif leftovers.dirty or leftovers.refused or leftovers.head != workspace.head:
            # The next attempt starts without the unfinished work.
            refs = await workspace.undo(key, n)
            notes += [_remark(f"it ended before it finished; its work so far is kept under {ref}") for ref in refs[:1]]
        reply = await _reply(request, workspace, result, contracts.Parsed(), {}, notes)
        reply = self._failed_reply(request, reply, failure, final)
        await self._journal.settle()
        self._finish(request, result, reply if final else None, {}, failure)
        return AttemptResult(reply, {}, failure, final, left=left)

    # -- sessions

    def _continuation(
        self, request: DispatchRequest, adapter: Adapter, workspace: Workspace, result: AgentResult
    ) -> InterruptedAttempt | None:
        """The agent's session, if it can continue and has more than the prompt."""
        session = result.session or (request.interrupted.session if request.interrupted else "")
        resumable = adapter.capabilities.resume and result.error in UNFINISHED
        if not (session and workspace.checkout.name and resumable):
            return None
        if not request.interrupted and not _did_something(result):
            return None
        return self._interrupted_attempt(request, workspace, session, result.reason)

    def _interrupted_attempt(
        self, request: DispatchRequest, workspace: Workspace, session: str, why: str
    ) -> InterruptedAttempt:
        attempt = self._site.attempt_name(request.key.text, request.attempt)
        return InterruptedAttempt(session, workspace.checkout.name, attempt, request.agent, why)

    # -- work

    async def _settle_work(self, request: DispatchRequest, workspace: Workspace, left: Leftovers) -> list[Finding]:
        """Commit and keep the work of a role that writes code. Undo all changes of other roles but their outputs."""
        if request.role.writes == "code":
            # The commits of an attempt stay reachable, also when it failed.
            head = left.head
            if left.dirty:
                title = request.task.title if request.task else request.call.purpose
                message = f"{title}\n\nLeft uncommitted by {request.call.role}, committed by Windlass."
                head = await workspace.checkout.harvest(message)
            if head != workspace.head:
                workspace.hold(f"{request.key}/@{request.attempt}", head)
                workspace.head = head
            template, checkout = request.flow.agent_branch, workspace.checkout.name
            if template and request.task and checkout:
                # An agent's branch shows the last task it worked on.
                number = self._agents.setdefault(checkout, len(self._agents) + 1)
                await workspace.point(template.format_map({**self._values.names(), "n": str(number)}))
            own = "is a repository of its own: Windlass committed only the id of its commit, not its files"
            return [_remark(f"'{plain(path)}' {own}") for path in await workspace.files_since_base(nested=True)]
        ours = {self._values.path(name) for name in self._values.artifacts.held} | set(request.outs.values())
        moved = left.head != workspace.head
        found = [f"{path} was changed by a role that may not write" for path in left.dirty if path not in ours]
        if found or moved:
            await workspace.undo(request.key.text, request.attempt)
        elif left.dirty:
            await workspace.reset()
        found += [f"commit {left.head[:12]} was made by a role that may not write"] if moved else []
        return [_note(f"{text}; undone, kept under refs/windlass/keep") for text in found]

    # -- the answer

    def _failure(
        self,
        request: DispatchRequest,
        adapter: Adapter,
        workspace: Workspace,
        result: AgentResult,
        parsed: contracts.Parsed,
        reply: Reply,
        contents: Mapping[str, str],
    ) -> tuple[AttemptFailure | None, str]:
        """Why there is no good result, and the reminder for the next attempt."""
        if result.error is not None:
            cut = result.error is ErrorClass.BAD_OUTPUT
            failure = AttemptFailure(result.error, result.reason, result.retry_at, _limit_hint(request, result))
            return failure, _unusable_reminder(request, result.reason) if cut else ""
        if parsed.problem:
            return _bad_output(parsed.problem, contracts.reminder(request.contract, parsed.problem, request.tag))
        silent = _no_message(request, adapter, result, contents)
        if silent:
            return _bad_output(silent, _unusable_reminder(request, silent))
        if request.must_change and workspace.is_unchanged and not _no_change(parsed.value):
            text = "You changed no file. Do what the task asks for, and commit it."
            if request.contract == WORK:
                answer = contracts.describe(WORK, request.tag)
                text += f" If all of it exists already, do not invent a change: answer with {answer}"
            return _bad_output("it changed no file", text)
        refused = request.call.accept(contents)
        if refused:
            return _bad_output(refused, f"Your last answer was refused: {refused}. Fix that.")
        unfit = request.call.fits(parsed.value)
        if unfit:
            return _bad_output(unfit, contracts.reminder(request.contract, unfit, request.tag))
        if request.has_tdd_guard and request.call.purpose == "implement" and not request.is_tdd_exempt:
            verdict = guard(reply.files, self._config.tests.globs or TEST_GLOBS)
            if not verdict.ok:
                why = verdict.reason
                add = "Add the tests that prove it, and commit them."
                return _bad_output(why, f"The TDD guard refused the change: {why}. {add}")
        return None, ""

    def _failed_reply(self, request: DispatchRequest, reply: Reply, failure: AttemptFailure, final: bool) -> Reply:
        transcript = self._site.attempt_name(request.key.text, request.attempt)
        reason = f"{failure.reason} (see {transcript})" if final else failure.reason
        return Reply(
            ok=False,
            text=reply.text,
            data=reply.data,
            error=failure.error,
            reason=reason,
            head=reply.head,
            tree=reply.tree,
            files=reply.files,
            notes=reply.notes,
        )

    # -- recording

    def _finish(
        self,
        request: DispatchRequest,
        result: AgentResult,
        reply: Reply | None,
        contents: Mapping[str, str],
        failure: AttemptFailure | None,
    ) -> None:
        key, role, task = request.key.text, request.call.role, request.task_id
        stored = [
            ArtifactStored(name, key, content_id(text), request.outs.get(name, ""), _file_count_text(role, text))
            for name, text in contents.items()
        ]
        warned = [Warned("role", f"{role}: {n.message}", key, task) for n in reply.notes] if reply else []
        assumed = assumed_usd(result, self._config.budget.unknown_usd)
        context = {**request.call.context, **request.instructions}
        usage = result.usage
        finished = DispatchFinished(
            key=key,
            attempt=request.attempt,
            role=role,
            agent=request.agent,
            error=failure.error if failure else "",
            reason=failure.reason[:MAX_REASON] if failure else "",
            cost_usd=usage.cost_usd,
            input=usage.input,
            output=usage.output,
            cached=usage.cached,
            seconds=round(result.seconds, 3),
            tools=result.tools,
            task=task,
            prices=prices_date(self._journal.store.clock()) if usage.priced else "",
            assumed_usd=assumed,
        )
        self._journal.attempts.finish(
            request.key,
            request.attempt,
            inputs=request.inputs,
            context={name: content_id(str(value)) for name, value in context.items()},
            result=reply_json(reply) if reply else None,
            failure=failure,
            usage=usage,
            assumed_usd=assumed,
            events=[finished, *stored, *_task_events(request, contents), *warned],
            blobs=[(content_id(text), text) for text in contents.values()],
        )


# -- inside


def _bad_output(reason: str, reminder: str) -> tuple[AttemptFailure, str]:
    return AttemptFailure(ErrorClass.BAD_OUTPUT, reason), reminder


def _did_something(result: AgentResult) -> bool:
    return bool(result.tools or result.usage.input or result.usage.output or result.text.strip())


def _parse_reply(request: DispatchRequest, result: AgentResult) -> contracts.Parsed:
    if not request.contract:
        return contracts.Parsed()
    if result.structured is not None:
        return contracts.check(request.contract, result.structured)
    return contracts.parse(request.contract, result.text, request.tag, untagged=request.accepts_untagged)


async def _reply(
    request: DispatchRequest,
    workspace: Workspace,
    result: AgentResult,
    parsed: contracts.Parsed,
    contents: Mapping[str, str],
    notes: Sequence[Finding],
) -> Reply:
    writes = request.role.writes == "code"
    outcome = contracts.outcome(parsed.value)
    return Reply(
        ok=result.error is None,
        text=result.text[:MAX_TEXT],
        data=parsed.value,
        head=workspace.head if writes else "",
        tree=workspace.tree if writes else "",
        files=await workspace.files_since_base() if writes else (),
        outs={name: content_id(text) for name, text in contents.items()},
        outcome="" if outcome == "ok" else outcome,
        notes=tuple(notes),
    )


def _no_message(request: DispatchRequest, adapter: Adapter, result: AgentResult, contents: Mapping[str, str]) -> str:
    """An agent that ends without a message did not finish. There are two exceptions: a plain program that changed code
    or wrote its declared files (its exit code shows that it finished), and a call that asks only for text, because a
    missing text is another error."""
    if result.text.strip() or result.structured is not None:
        return ""
    artifacts = request.flow.artifacts
    only_words = request.call.outs and all(artifacts[name].kind == "text" for name in request.call.outs)
    wrote = request.role.writes == "code" or any(name in request.outs for name in contents)
    by_exit = isinstance(adapter, EndsWithExit) and wrote
    return "" if only_words or by_exit else "it ended without a last message"


def _no_change(value: Json) -> str:
    """The agent's reason why no change is needed; '' when it gives none."""
    if not isinstance(value, dict) or value.get("nothing_to_change") is not True:
        return ""
    return str(value.get("reason"))


def _unusable_reminder(request: DispatchRequest, problem: str) -> str:
    """The reminder for an agent that gave no complete answer."""
    if request.contract and not contracts.CONTRACTS[request.contract].optional:
        return contracts.reminder(request.contract, problem, request.tag)
    return f"Your last answer could not be used: {problem}. Finish what is left, then answer as you were asked to."


def _limit_hint(request: DispatchRequest, result: AgentResult) -> str:
    """The hint for a dispatch that reached the limit of its role or of its tokens, not the limit of the run."""
    if result.error is not ErrorClass.OVER_BUDGET:
        return ""
    if request.assignment.usd is not None and (result.usage.cost_usd or 0.0) >= request.assignment.usd:
        table = f"[roles.{request.call.profile or request.call.role}]"
        return f"raise usd under {table} in .windlass/config.toml, then: windlass resume"
    if result.usage.cost_usd is None:
        return "raise it under [budget] in .windlass/config.toml, then: windlass resume"
    return ""


PATH = re.compile(r"(?<![\w/.:-])(?:[\w.-]+/)*[\w-][\w.-]*\.[A-Za-z][A-Za-z0-9]{0,7}\b(?![/(])")


def _file_count_text(role: str, text: str) -> str:
    """The number of files that a scout names."""
    count = len(set(PATH.findall(text))) if role == "scout" else 0
    return f"{count} file{'' if count == 1 else 's'} mapped" if count else ""


def _task_events(request: DispatchRequest, contents: Mapping[str, str]) -> list[Event]:
    """The events that list the tasks of a plan, for the first plan and after each revision."""
    artifacts = request.flow.artifacts
    plans = [(artifacts[name].contract, text) for name, text in contents.items() if artifacts[name].contract in PLANS]
    found = [match_tasks((), contracts.plan_of(*plan).tasks).tasks for plan in plans]
    return [with_groups(request.key.text, tasks) for tasks in found if tasks]


def assumed_usd(result: AgentResult, unknown_usd: float) -> float:
    """The cost to assume for unreported usage: all of it, or the responses that were incomplete."""
    match result.unsure:
        case Unsure.NOTHING:
            return 0.0
        case Unsure.RESPONSE:
            return (result.dearest_usd or unknown_usd) * result.unknown_responses
        case Unsure.ALL:
            return unknown_usd
        case _:
            assert_never(result.unsure)


def prices_date(now: float) -> str:
    """The date of the price list in force."""
    return price_date(datetime.fromtimestamp(now, UTC).date().isoformat())


def reply_json(reply: Reply) -> dict[str, Json]:
    return {
        "ok": reply.ok,
        "text": reply.text,
        "data": reply.data,
        "error": reply.error,
        "reason": reply.reason,
        "head": reply.head,
        "tree": reply.tree,
        "files": list(reply.files),
        "outs": dict(reply.outs),
        "outcome": reply.outcome,
        "notes": [note.to_json() for note in reply.notes],
    }


def reply_of(result: Json) -> Reply:
    assert isinstance(result, dict)
    notes = result["notes"]
    files = result["files"]
    assert isinstance(notes, list)
    assert isinstance(files, list)
    found = tuple(Finding.from_json(note) for note in notes if isinstance(note, dict))
    return Reply(**{**result, "files": tuple(files), "notes": found})  # type: ignore[arg-type]


def _notes(leftovers: Leftovers) -> list[Finding]:
    undone = [_note(f"{text}; put back") for text in leftovers.trespasses]
    noticed = [f"{what} of your own repository changed while it worked; left as it is" for what in leftovers.noticed]
    return undone + [_remark(text) for text in noticed]


def _remark(text: str) -> Finding:
    return Finding(text, Severity.MEDIUM, role="windlass")


def _note(text: str) -> Finding:
    return Finding(text, Severity.HIGH, role="windlass")
