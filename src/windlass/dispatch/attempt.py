"""One attempt at a dispatch: begin, run, look at what was left, judge, record."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import assert_never

from msgspec import Struct, field
from msgspec.structs import replace

from windlass.agents import prices as pricing
from windlass.agents.base import AgentResult, Job, Unsure
from windlass.agents.contracts import registry as contracts
from windlass.agents.contracts.task_list import match_tasks
from windlass.agents.output_redaction import redact_transcript, redacted_result
from windlass.agents.process.agent_run import EndsWithExit, run_agent
from windlass.agents.process.supervise import agent_env
from windlass.checks.test_files import TEST_GLOBS, guard
from windlass.dispatch.instructions import with_instructions
from windlass.dispatch.monitor import DispatchMonitor
from windlass.dispatch.request import WORK, DispatchRequest, make_intent, make_job
from windlass.dispatch.workspace import Leftovers
from windlass.engine.attempts import AttemptFailure
from windlass.engine.recovery import InterruptedAttempt
from windlass.errors import TakenOverError, UserError
from windlass.events import ArtifactStored, DispatchFinished, DispatchStarted, Event, Warned
from windlass.kinds.base import Reply
from windlass.kinds.task_graph import with_groups
from windlass.model import ErrorClass, Finding, Json, Severity, Usage, content_id
from windlass.private_files import make_private
from windlass.text import plain

NOTE_S = 1.0
"""So long after a report what a dispatch at work has used is noted, with all that was reported meanwhile."""
MAX_TEXT = 200_000
MAX_REASON = 2_000
PLANS = ("tasks", *contracts.TASK_LISTS)


class AttemptResult(Struct, frozen=True):
    """What is made of one attempt: a reply that is recorded, or why there is none yet."""

    reply: Reply
    contents: Mapping[str, str] = field(default_factory=dict)
    failure: AttemptFailure | None = None
    final: bool = True
    """False: another try is due and nothing was recorded as a result."""
    reminder: str = ""
    session: str = ""
    """The agent's own, in which it can be told what was wrong."""
    left: InterruptedAttempt | None = None
    """The agent's session, for the next attempt to go on with."""


#: what is left half done is worth going on with; of the others it is what made them fail
UNFINISHED = frozenset(
    {
        *(ErrorClass.RATE_LIMITED, ErrorClass.OVERLOADED, ErrorClass.KILLED, ErrorClass.DRIVER_LOST),
        *(ErrorClass.CRASHED, ErrorClass.TIMED_OUT, ErrorClass.OVER_BUDGET),
        *(ErrorClass.AUTH, ErrorClass.BILLING, ErrorClass.DISK_FULL),
    }
)
MOST_NAMED = 20


async def attempt(order: DispatchRequest, is_final: Callable[[AttemptFailure], bool]) -> AttemptResult:
    token = order.token
    reserved = await order.parts.budget.reserve(token, order.call.role, order.cap, reports=order.reports)
    try:
        # Reserving may have waited: what a person asked for meanwhile counts.
        order.parts.wanted.check()
        order = await with_instructions(order)
        result, seen = await _run(order, reserved)
        return await _judge(order, result, seen, is_final)
    finally:
        order.parts.budget.release(token)


# -- running


async def _run(order: DispatchRequest, reserved: float) -> tuple[AgentResult, Leftovers]:
    desk, ours = order.place.desk, (order.parts.world.facts.branch,)
    slot = desk.sit_at(order.left.slot) if order.left else await desk.ready(order.key.text, order.n)
    if order.n > 1 and not order.left and order.role.writes == "code":
        order = replace(order, half_done=await _half_done(order))
    await _lay_out(order)
    before = await desk.before(ours)
    job = await make_job(order, slot.path)
    _begin(order, job, slot.n, reserved)
    result = await _watched(order, job)
    return result, await desk.after(before, ours, order.key.text, order.n)


async def _watched(order: DispatchRequest, job: Job) -> AgentResult:
    watch, meter = DispatchMonitor(order, (job.cwd, job.folder)), SpendMeter(order)
    ticking = asyncio.create_task(watch.tick())
    try:
        result = await run_agent(
            order.adapter,
            job,
            env=agent_env(order.parts.machine.environ, order.parts.config.workspace.env),
            stop=order.parts.wanted.stop,
            on_event=watch.event,
            on_started=watch.started,
            clock=order.parts.machine.clock,
            afford=meter.read,
            frozen=watch.frozen,
        )
    finally:
        ticking.cancel()
        watch.frozen.cancel()
        meter.end()
    await asyncio.to_thread(redact_transcript, job.folder, order.parts.redactor)
    return redacted_result(result, order.parts.redactor)


class SpendMeter:
    """What a dispatch at work has used: asked for by the budget, and noted for who looks on."""

    def __init__(self, order: DispatchRequest) -> None:
        self._order = order
        self._last = Usage()
        self._due: asyncio.TimerHandle | None = None

    def read(self, usage: Usage) -> str:
        self._last = usage
        if self._due is None:
            self._due = asyncio.get_running_loop().call_later(NOTE_S, self._note)
        return self._order.parts.budget.spend(self._order.token, usage)

    def _note(self) -> None:
        self._due = None
        # A driver that was replaced may still have this timer. Its next recorded step ends it, with a message.
        with suppress(TakenOverError):
            self._order.parts.journal.attempts.note_usage(self._order.key, self._order.n, self._last)

    def end(self) -> None:
        if self._due:
            self._due.cancel()


async def _lay_out(order: DispatchRequest) -> None:
    """Artifacts in force are written where agents expect them; inside tasks they are in the tree already."""
    world, desk = order.parts.world, order.place.desk
    files = {world.path(name): held.content for name, held in world.artifacts.held.items() if world.path(name)}
    if order.place.task is None and files:
        await desk.write(files)
        desk.disturbed()


def _begin(order: DispatchRequest, job: Job, slot: int, reserved: float) -> None:
    make_private(job.folder)
    started = DispatchStarted(
        key=order.key.text,
        attempt=order.n,
        role=order.call.role,
        agent=job.agent,
        model=job.model,
        purpose=order.call.purpose,
        task=order.task_id,
        cycle=order.place.cycle,
        cycles=order.call.cycles,
        reserved_usd=reserved,
        told=list(order.told),
    )
    order.parts.journal.attempts.begin(
        make_intent(order, job, slot, reserved), started, told=order.addressees if order.told else ()
    )
    if job.session:
        order.parts.journal.attempts.note_session(order.key, order.n, job.session)


async def _half_done(order: DispatchRequest) -> str:
    """What an earlier attempt left in the slot, as words of the prompt; '' when the slot is clean."""
    files, commits = await order.place.desk.half_done()
    parts = [f"uncommitted: {_named(files)}"] if files else []
    parts += [f"committed: {_named(commits)}"] if commits else []
    if not parts:
        return ""
    return f"what they left half done lies in this directory ({'; '.join(parts)}): look at it, keep what is right"


def _named(names: Sequence[str]) -> str:
    shown = [f"'{plain(name)}'" for name in names[:MOST_NAMED]]
    more = len(names) - MOST_NAMED
    return ", ".join([*shown, f"{more} more"] if more > 0 else shown)


# -- judging


async def _judge(
    order: DispatchRequest, result: AgentResult, seen: Leftovers, is_final: Callable[[AttemptFailure], bool]
) -> AttemptResult:
    if result.error is not None and result.error is not ErrorClass.BAD_OUTPUT:
        return await _judge_unfinished(order, result, seen, is_final)
    contents = await _contents(order, result) if result.error is None else {}
    notes = _notes(seen) + await _settle(order, seen)
    parsed = _parsed(order, result) if result.error is None else contracts.Parsed()
    unchanged = result.error is None and order.must_change and order.place.desk.is_unchanged
    reason = _no_change(parsed.value) if unchanged else ""
    notes += [_remark(f"it changed nothing: {reason}")] if reason else []
    reply = await _reply(order, result, parsed, contents, notes)
    failure, reminder = _failure(order, result, parsed, reply, contents)
    await order.parts.journal.settle()
    if failure is None:
        _finish(order, result, reply, contents, None)
        return AttemptResult(reply, contents)
    final = is_final(failure)
    told = _failed(order, reply, failure, final)
    # What was refused is never in force, neither now nor in a replay.
    _finish(order, result, told if final else None, {}, failure)
    return AttemptResult(told, {}, failure, final, reminder, result.session)


async def _judge_unfinished(
    order: DispatchRequest, result: AgentResult, seen: Leftovers, is_final: Callable[[AttemptFailure], bool]
) -> AttemptResult:
    """The agent did not come to its end. Unless that is the step's result, what it left is there for the next try."""
    assert result.error is not None
    failure = AttemptFailure(result.error, result.reason, result.retry_at, _limit_hint(order, result))
    # A session that did not go on at all is given up; the try that finds it out is not the agent's failure.
    lost = _session_lost(order, result)
    final = not lost and is_final(failure)
    over = final or lost or order.parts.wanted.abort or bool(seen.status.refused)
    left = None if over else _session(order, result)
    notes = _notes(seen)
    if left:
        await order.place.desk.keep_half_done(order.key.text, order.n)
        await order.place.desk.reserve(order.key.text, order.n)
    elif not final and order.role.writes == "code" and result.error in UNFINISHED and not seen.status.refused:
        await order.place.desk.keep_half_done(order.key.text, order.n)
    else:
        notes += await _set_aside(order, seen)
    reply = _failed(order, await _reply(order, result, contracts.Parsed(), {}, notes), failure, final)
    await order.parts.journal.settle()
    _finish(order, result, reply if final else None, {}, failure)
    return AttemptResult(reply, {}, failure, final, left=left)


def _session(order: DispatchRequest, result: AgentResult) -> InterruptedAttempt | None:
    """The agent's session, where it can be continued and holds more than the prompt."""
    session, slot = result.session or (order.left.session if order.left else ""), order.place.desk.slot
    if not (session and slot and order.adapter.capabilities.resume and result.error in UNFINISHED):
        return None
    if not order.left and not _did_something(result):
        return None
    return InterruptedAttempt(slot, session, order.parts.folder / order.folder, order.adapter.name, result.reason)


def _session_lost(order: DispatchRequest, result: AgentResult) -> bool:
    """It was to go on with a session, and ended without a sign of it: the CLI does not know the session any more."""
    return order.left is not None and result.error is ErrorClass.CRASHED and not _did_something(result)


def _did_something(result: AgentResult) -> bool:
    return bool(result.tools or result.usage.input or result.usage.output or result.text.strip())


async def _contents(order: DispatchRequest, result: AgentResult) -> dict[str, str]:
    """Declared outputs, read back from disk; a text or data output is the reply itself."""
    found: dict[str, str] = {}
    for name in order.call.outs:
        text = await _read(order, order.outs[name]) if name in order.outs else _said(order, name, result)
        if text is not None:
            found[name] = order.parts.redactor.text(text)
    return found


async def _read(order: DispatchRequest, path: str) -> str | None:
    """An agent can leave a link that leads out of the workspace: as good as nothing written."""
    try:
        return await order.place.desk.read(path)
    except UserError:
        return None


def _said(order: DispatchRequest, name: str, result: AgentResult) -> str:
    if order.parts.world.flow.artifacts[name].kind != "json":
        return result.text
    return json.dumps(_parsed(order, result).value)


def _parsed(order: DispatchRequest, result: AgentResult) -> contracts.Parsed:
    if not order.contract:
        return contracts.Parsed()
    if result.structured is not None:
        return contracts.check(order.contract, result.structured)
    return contracts.parse(order.contract, result.text, order.tag, untagged=order.takes_untagged)


async def _set_aside(order: DispatchRequest, seen: Leftovers) -> list[Finding]:
    """The agent did not come to its end: what it left half done is kept, and the next try starts without it."""
    desk = order.place.desk
    if seen.status.dirty or seen.status.refused or seen.status.head != desk.head:
        refs = await desk.undo(order.key.text, order.n)
        return [_remark(f"it ended before it was done; its work so far is kept under {ref}") for ref in refs[:1]]
    return []


async def _settle(order: DispatchRequest, seen: Leftovers) -> list[Finding]:
    """A writer's work is committed and held; what others changed besides their outputs is undone."""
    if order.role.writes == "code":
        await _keep_work(order, seen)
        return [_remark(text) for text in await _nested(order)]
    world, desk = order.parts.world, order.place.desk
    ours = {world.path(name) for name in world.artifacts.held} | set(order.outs.values())
    moved = seen.status.head != desk.head
    found = [f"{path} was changed by a role that may not" for path in seen.status.dirty if path not in ours]
    if found or moved:
        await desk.undo(order.key.text, order.n)
    elif seen.status.dirty:
        await desk.reset()
    found += [f"commit {seen.status.head[:12]} was made by a role that may not"] if moved else []
    return [_note(f"{text}; undone, kept under refs/windlass/keep") for text in found]


async def _nested(order: DispatchRequest) -> list[str]:
    paths = await order.place.desk.nested_since_base()
    told = "is a repository of its own: only the name of its commit was committed, none of its files"
    return [f"'{plain(path)}' {told}" for path in paths]


async def _keep_work(order: DispatchRequest, seen: Leftovers) -> None:
    """Commits that an attempt made stay reachable, also when the attempt failed."""
    desk, head = order.place.desk, seen.status.head
    if seen.status.dirty:
        title = order.place.task.title if order.place.task else order.call.purpose
        head = await desk.harvest(f"{title}\n\nLeft uncommitted by {order.call.role}, committed by Windlass.")
    if head != desk.head:
        desk.hold(f"{order.key}/@{order.n}", head)
        desk.head = head
    await _show_branch(order)


async def _show_branch(order: DispatchRequest) -> None:
    """An agent's branch shows the last task it worked on; it lies in the engine's repository, not in the user's."""
    desk, template = order.place.desk, order.parts.world.flow.agent_branch
    if template and order.place.task and desk.slot:
        number = order.parts.agents.setdefault(desk.slot.n, len(order.parts.agents) + 1)
        name = template.format_map({**order.parts.world.names(), "n": str(number)})
        await asyncio.to_thread(desk.engine.refs.point, f"refs/heads/{name}", desk.head)


async def _reply(
    order: DispatchRequest,
    result: AgentResult,
    parsed: contracts.Parsed,
    contents: Mapping[str, str],
    notes: Sequence[Finding],
) -> Reply:
    desk, writes = order.place.desk, order.role.writes == "code"
    outcome = contracts.outcome(parsed.value)
    return Reply(
        ok=result.error is None,
        text=result.text[:MAX_TEXT],
        data=parsed.value,
        head=desk.head if writes else "",
        tree=desk.tree if writes else "",
        files=await desk.files_since_base() if writes else (),
        outs={name: content_id(text) for name, text in contents.items()},
        outcome="" if outcome == "ok" else outcome,
        notes=tuple(notes),
    )


def _failure(
    order: DispatchRequest, result: AgentResult, parsed: contracts.Parsed, reply: Reply, contents: Mapping[str, str]
) -> tuple[AttemptFailure | None, str]:
    """Why there is no good result, and what the agent is told when it tries again."""
    if result.error is not None:
        cut = result.error is ErrorClass.BAD_OUTPUT
        failure = AttemptFailure(result.error, result.reason, result.retry_at, _limit_hint(order, result))
        return failure, unusable(order, result.reason) if cut else ""
    if parsed.problem:
        return AttemptFailure(ErrorClass.BAD_OUTPUT, parsed.problem), contracts.reminder(
            order.contract, parsed.problem, order.tag
        )
    silent = _silence(order, result, contents)
    if silent:
        return AttemptFailure(ErrorClass.BAD_OUTPUT, silent), unusable(order, silent)
    if order.must_change and order.place.desk.is_unchanged and not _no_change(parsed.value):
        told = "You changed no file. Do what the task asks for, and commit it."
        return AttemptFailure(ErrorClass.BAD_OUTPUT, "it changed no file"), told + _way_out(order)
    refused = order.call.accept(contents)
    if refused:
        return AttemptFailure(ErrorClass.BAD_OUTPUT, refused), f"Your last answer was refused: {refused}. Mend that."
    unfit = order.call.fits(parsed.value)
    if unfit:
        return AttemptFailure(ErrorClass.BAD_OUTPUT, unfit), contracts.reminder(order.contract, unfit, order.tag)
    if order.guarded and order.call.purpose == "implement" and not order.exempted:
        verdict = guard(reply.files, order.parts.config.tests.globs or TEST_GLOBS)
        if not verdict.ok:
            told = f"The TDD guard refused the change: {verdict.reason}. Add the tests that prove it, and commit them."
            return AttemptFailure(ErrorClass.BAD_OUTPUT, verdict.reason), told
    return None, ""


def _silence(order: DispatchRequest, result: AgentResult, contents: Mapping[str, str]) -> str:
    """An agent that ends without a message did not finish. Two exceptions: a plain program (its exit code says that it
    finished) that changed code or wrote the files it was asked for; and a call that asks for text alone, where the
    missing text is an error of its own."""
    if result.text.strip() or result.structured is not None:
        return ""
    artifacts = order.parts.world.flow.artifacts
    only_words = order.call.outs and all(artifacts[name].kind == "text" for name in order.call.outs)
    wrote = order.role.writes == "code" or any(name in order.outs for name in contents)
    by_exit = isinstance(order.adapter, EndsWithExit) and wrote
    return "" if only_words or by_exit else "it ended without a last message"


def _no_change(value: Json) -> str:
    """Why nothing has to change, as the block says; '' when it does not say so."""
    if not isinstance(value, dict) or value.get("nothing_to_change") is not True:
        return ""
    return str(value.get("reason"))


def _way_out(order: DispatchRequest) -> str:
    if order.contract != WORK:
        return ""
    return f" If all of it is there already, do not invent a change: answer with {contracts.describe(WORK, order.tag)}"


def unusable(order: DispatchRequest, problem: str) -> str:
    """What an agent is told whose answer did not come to its end."""
    if order.contract and not contracts.CONTRACTS[order.contract].optional:
        return contracts.reminder(order.contract, problem, order.tag)
    return f"Your last answer could not be used: {problem}. Finish what is left, then answer as you were asked to."


def _limit_hint(order: DispatchRequest, result: AgentResult) -> str:
    """Of what reached its role's own limit, or that of its tokens: a higher limit of the run would not help."""
    if result.error is not ErrorClass.OVER_BUDGET:
        return ""
    if order.cap is not None and (result.usage.cost_usd or 0.0) >= order.cap:
        table = f"[roles.{order.call.profile or order.call.role}]"
        return f"raise usd under {table} in .windlass/config.toml, then: windlass resume"
    if result.usage.cost_usd is None:
        return "raise it under [budget] in .windlass/config.toml, then: windlass resume"
    return ""


def _failed(order: DispatchRequest, reply: Reply, failure: AttemptFailure, final: bool) -> Reply:
    reason = f"{failure.reason} (see {order.folder})" if final else failure.reason
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
    order: DispatchRequest,
    result: AgentResult,
    reply: Reply | None,
    contents: Mapping[str, str],
    failure: AttemptFailure | None,
) -> None:
    stored = [
        ArtifactStored(name, order.key.text, content_id(text), order.outs.get(name, ""), _mapped(order, text))
        for name, text in contents.items()
    ]
    warned = (
        [Warned("role", f"{order.call.role}: {n.message}", order.key.text, order.task_id) for n in reply.notes]
        if reply
        else []
    )
    order.parts.journal.attempts.finish(
        order.key,
        order.n,
        inputs=order.inputs,
        context={name: content_id(str(value)) for name, value in {**order.call.context, **order.instructions}.items()},
        result=_json(reply) if reply else None,
        failure=failure,
        usage=result.usage,
        assumed_usd=assumed_usd(result, order.parts.config.budget.unknown_usd),
        events=[_ended(order, result, failure), *stored, *_listed(order, contents), *warned],
        blobs=[(content_id(text), text) for text in contents.values()],
    )


PATH = re.compile(r"(?<![\w/.:-])(?:[\w.-]+/)*[\w-][\w.-]*\.[A-Za-z][A-Za-z0-9]{0,7}\b(?![/(])")


def _mapped(order: DispatchRequest, text: str) -> str:
    """How many files a scout's words tell of."""
    count = len(set(PATH.findall(text))) if order.call.role == "scout" else 0
    return f"{count} file{'' if count == 1 else 's'} mapped" if count else ""


def _listed(order: DispatchRequest, contents: Mapping[str, str]) -> list[Event]:
    """A plan's tasks are known as soon as it was read back, and known anew after each revision."""
    artifacts = order.parts.world.flow.artifacts
    plans = [(artifacts[name].contract, text) for name, text in contents.items() if artifacts[name].contract in PLANS]
    found = [match_tasks((), contracts.plan_of(*plan).tasks).tasks for plan in plans]
    return [with_groups(order.key.text, tasks) for tasks in found if tasks]


def _ended(order: DispatchRequest, result: AgentResult, failure: AttemptFailure | None) -> Event:
    return DispatchFinished(
        key=order.key.text,
        attempt=order.n,
        role=order.call.role,
        agent=order.adapter.name,
        error=failure.error if failure else "",
        reason=failure.reason[:MAX_REASON] if failure else "",
        cost_usd=result.usage.cost_usd,
        input=result.usage.input,
        output=result.usage.output,
        cached=result.usage.cached,
        seconds=round(result.seconds, 3),
        tools=result.tools,
        task=order.task_id,
        prices=prices(order.parts.machine.clock()) if result.usage.priced else "",
        assumed_usd=assumed_usd(result, order.parts.config.budget.unknown_usd),
    )


def assumed_usd(result: AgentResult, unknown_usd: float) -> float:
    """Counted for what nobody told: all of it, or the response that was on its way when the dispatch ended."""
    match result.unsure:
        case Unsure.NOTHING:
            return 0.0
        case Unsure.RESPONSE:
            return result.dearest_usd or unknown_usd
        case Unsure.ALL:
            return unknown_usd
        case _:
            assert_never(result.unsure)


def prices(now: float) -> str:
    """The date of the price list in force."""
    return pricing.price_date(datetime.fromtimestamp(now, UTC).date().isoformat())


def _json(reply: Reply) -> dict[str, Json]:
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


def _notes(seen: Leftovers) -> list[Finding]:
    undone = [_note(f"{text}; put back") for text in seen.trespasses]
    told = [f"{what} of your own repository changed while it worked; left as it is" for what in seen.noticed]
    return undone + [_remark(text) for text in told]


def _remark(text: str) -> Finding:
    return Finding(text, Severity.MEDIUM, role="windlass")


def _note(text: str) -> Finding:
    return Finding(text, Severity.HIGH, role="windlass")
