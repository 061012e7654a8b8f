"""The waist, its heavy half: one driver's hold on a run, from the lock to the recorded end."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from windlass.agents.contracts import registry as contracts
from windlass.agents.output_redaction import redact_transcript
from windlass.agents.process.forkserver import FORKER
from windlass.agents.roles import Role
from windlass.answers import AnswerPolicy, Asker
from windlass.config.schema import Config
from windlass.dispatch.late_costs import LateCosts
from windlass.driver import adoption
from windlass.driver.loop import RunLoop
from windlass.engine.budget import Budget, Prices
from windlass.engine.journal import Journal
from windlass.engine.limit_question import LimitQuestion
from windlass.engine.machine import End
from windlass.engine.questions import PausedError, Questions, WaitingError
from windlass.engine.quota import QuotaPatience, QuotaWaits
from windlass.engine.recovery import Recovered, recover, repair_repositories
from windlass.engine.requests import heed, obey
from windlass.engine.services import DriverHost, RunServices, StopRequests
from windlass.engine.values import RunValues
from windlass.errors import (
    AbortedError,
    Exit,
    InterruptedDriverError,
    TakenOverError,
    UserError,
    WindlassError,
    exhausted,
)
from windlass.events import BranchPublished, BudgetChanged, Recorded, RunEnded, RunResumed, Warned
from windlass.flow.load import parse_flow
from windlass.flow.schema import Flow
from windlass.git import run as git
from windlass.git.engine_repo import EngineRepo
from windlass.git.slots import Slots, SlotUse
from windlass.locks import DriverId, DriverLock, boot_id, driver_lock
from windlass.model import Json, Key, RunState, content_id
from windlass.paths import state_dir
from windlass.private_files import make_private
from windlass.runs.project import Project
from windlass.runs.role_overrides import AS_CONFIGURED, RoleOverrides
from windlass.runs.service import Service
from windlass.runs.settle import settle_checkout
from windlass.runs.start import check_agents, unpriced_models
from windlass.runs.view_files import ViewFiles, edits, restore, set_aside
from windlass.store.database import Store
from windlass.store.fence import EpochClaim, Fence
from windlass.store.quota import SharedWaits
from windlass.store.rows import RunRow

CONFIG_LIMIT = "config_usd"
RETRY = "retry"
INTERRUPTED = "interrupted"
ABORT, BY_USER = "abort", "aborted by the user"
TRY_AGAIN = "windlass resume tries again"


class DriveResult(Struct, frozen=True):
    """How a driver let go of a run."""

    run: str
    state: RunState
    exit: Exit
    reason: str = ""
    hint: str = ""
    kept: tuple[Path, ...] = ()
    """Folders that `--keep` left as they were."""


class DriverControls(Struct, frozen=True):
    """What a face in the driver's own process may ask of it; heard at the next step, without the database."""

    _wanted: StopRequests

    def pause(self, why: str) -> None:
        """Agents at work finish, nothing new starts."""
        self._wanted.pause = why

    def go_on(self) -> None:
        """A pause that has not been heard yet is taken back."""
        self._wanted.pause = ""

    def stop(self, why: str = INTERRUPTED) -> None:
        """Agents at work are ended now; what they were at is not finished."""
        self._wanted.interrupt = why
        self._wanted.stop.set()


Beside = Callable[[DriverControls], AbstractAsyncContextManager[None]]
"""A face that lives in the driver's loop: entered before the run goes on, left after its end is on record."""


def drive(
    kit: Project,
    run: str,
    *,
    crash: Callable[[str], None],
    on_event: Callable[[Recorded], None],
    asker: Asker | None = None,
    beside: Beside = lambda reins: nullcontext(),
    policy: AnswerPolicy | None = None,
    budget: float | None = None,
    cast: RoleOverrides = AS_CONFIGURED,
    script: str = "",
) -> DriveResult:
    """Until the run ends or rests. Raises only for what is not the run's own ending: a lock, a bug, bad config.

    TakenOverError: another driver has the run now, and this one left everything as it was.
    """
    with driver_lock(kit.host.place.lock(run), run) as lock:
        store = Store.open(kit.host.place.database, kit.host.clock, drives=True)
        try:
            driver = _Driver(kit, store, lock, crash, beside)
            return driver.run(store.run(run), on_event, asker, policy, budget, cast, script)
        finally:
            store.close()


class _Driver:
    """One driver's hold on a run, from the lock to the recorded end."""

    def __init__(
        self, kit: Project, store: Store, lock: DriverLock, crash: Callable[[str], None], beside: Beside
    ) -> None:
        self._kit = kit
        self._lock = lock
        self._before: DriverId | None = None
        """The driver before this one, when it may still be alive."""
        self._beside = beside
        self._store = store
        self._world = kit.host
        self._crash = crash
        self._new_limit: Recorded | None = None
        """Recorded before the journal begins to publish."""

    def run(
        self,
        row: RunRow,
        on_event: Callable[[Recorded], None],
        asker: Asker | None,
        policy: AnswerPolicy | None,
        budget: float | None,
        cast: RoleOverrides,
        script: str,
    ) -> DriveResult:
        if row.state.final:
            raise UserError(f"run {row.id} is {row.state}", hint="windlass show tells what it did")
        FORKER.warm()  # it starts while we read what is recorded
        row = self._take(row, policy, budget, cast, script)
        claim = self._store.claim = EpochClaim(row.id, row.epoch, self._lock.require)
        fence = Fence(self._store.path, claim)
        try:
            retry = row.options.get(RETRY) == self._retries(row.id)
            return asyncio.run(self._session(row, fence, on_event, asker, retry))
        finally:
            fence.close()

    def _retries(self, run: str) -> int:
        return sum(step.key.startswith("retry#") or "/again#" in step.key for step in self._store.steps(run))

    def _take(
        self, row: RunRow, policy: AnswerPolicy | None, budget: float | None, cast: RoleOverrides, script: str
    ) -> RunRow:
        """A new epoch; what was said on this command line is remembered for the next driver."""
        config = self._kit.config()
        options: dict[str, Json] = {**row.options, CONFIG_LIMIT: config.budget.stop_usd}
        options |= RoleOverrides.remembered(row.options).changed_to(cast).to_json() | (
            {"script": script} if script else {}
        )
        if cast != AS_CONFIGURED:
            self._check(row, options)
        if policy is not None:
            options["policy"] = policy.to_json()
        if row.state in (RunState.STOPPED, RunState.BLOCKED):
            # Whoever goes on after a stop retries it, once: a driver that dies before it did hands that on.
            options[RETRY] = self._retries(row.id)
        limit = budget if budget is not None else _raised(row, config)
        with self._store.tx():
            self._require_same(row)
            self._store.next_epoch(row.id, DriverId.own().to_json())
            self._store.set_options(row.id, options)
            self._store.set_state(row.id, RunState.RUNNING)
            if limit != row.budget_usd or config.budget.warn_usd != row.warn_usd:
                self._store.set_budget(row.id, limit, config.budget.warn_usd)
                changed = BudgetChanged(limit, "command line" if budget is not None else "config")
                self._new_limit = self._store.add_event(row.id, changed)
            # Inside: a moment later it may be another driver's.
            return self._store.run(row.id)

    def _require_same(self, row: RunRow) -> None:
        """While this driver looked at the run, another one may have taken it, or somebody ended it."""
        self._lock.require()
        now = self._store.run(row.id)
        if now.epoch != row.epoch or now.state.final:
            EpochClaim(row.id, row.epoch).refuse(now.epoch, now.state)
        before = DriverId.parse(now.driver)
        self._before = before if before and before.may_live else None

    def _check(self, row: RunRow, options: Mapping[str, Json]) -> None:
        """Who cannot play is refused before the run is touched."""
        cast, roles = RoleOverrides.remembered(options), self._kit.roles()
        config, flow = self._kit.config(told=cast.roles), self._flow(row, roles)
        check_agents(self._kit.adapters(config, str(options.get("script") or "")), flow, roles, config, cast)

    def _flow(self, row: RunRow, roles: Mapping[str, Role]) -> Flow:
        name = f"{row.flow} (of run {row.id})"
        return parse_flow(row.flow_text, name, roles=set(roles), contracts=set(contracts.CONTRACTS))

    async def _session(
        self, row: RunRow, fence: Fence, on_event: Callable[[Recorded], None], asker: Asker | None, retry: bool
    ) -> DriveResult:
        parts, projecting = self._build(row, fence, on_event, asker)
        async with self._beside(DriverControls(parts.wanted)):
            if self._new_limit:
                on_event(self._new_limit)
            return await self._held(row, parts, projecting, retry)

    async def _held(self, row: RunRow, parts: RunServices, projecting: ViewFiles, retry: bool) -> DriveResult:
        watcher = asyncio.create_task(heed(parts))
        _on_signals(parts.wanted)
        try:
            ended = await self._guarded(row, parts, retry)
            watcher.cancel()
            ended = self._end(parts, projecting, ended)
            ended = replace(ended, kept=_kept(parts.slots, row.id))
            if ended.state is RunState.FINISHED and parts.world.flow.agent_branch:
                await asyncio.to_thread(_clean_pool, parts.slots, self._kit.host.clock())
        finally:
            watcher.cancel()
            projecting.close()
            # Only now: a terminal that closes hangs up more than once, and the end is to be on record.
            _ignore_signals()
        return ended

    def _end(self, parts: RunServices, projecting: ViewFiles, ended: DriveResult) -> DriveResult:
        parts.journal.flush()
        if ended.state is RunState.FINISHED and projecting.view.shortfall:
            ended = replace(ended, exit=Exit.IN_PART, reason=projecting.view.shortfall)
        if ended.state.final or self._store.run(ended.run).wanted == ABORT:
            # Cleared before the end is on record: killed in between, nobody would come by again.
            projecting.flush(final=True)
        ended = self._record(parts, ended)
        projecting.flush(final=ended.state.final)
        return ended

    async def _guarded(self, row: RunRow, parts: RunServices, retry: bool) -> DriveResult:
        try:
            await self._recover(row, parts)
            parts.wanted.check()
            parts.tip.restore()
            await _warn_unpriced(parts, RoleOverrides.remembered(row.options))
            await _settle_edits(parts, parts.folder)
            end = await RunLoop(parts, retry=retry).run()
            return _ended(row.id, end)
        except WaitingError as error:
            return DriveResult(row.id, RunState.WAITING, error.exit, error.message, error.hint)
        except (PausedError, InterruptedDriverError) as error:
            return DriveResult(row.id, RunState.PAUSED, error.exit, error.message, error.hint)
        except AbortedError as error:
            return DriveResult(row.id, RunState.ABORTED, error.exit, error.message, error.hint)
        except TakenOverError:
            raise
        except WindlassError as error:
            return DriveResult(row.id, RunState.STOPPED, Exit.STOPPED, error.message, error.hint or TRY_AGAIN)
        except Exception as bug:
            lacking = exhausted(bug)
            if lacking:
                return DriveResult(row.id, RunState.STOPPED, lacking.exit, lacking.message, lacking.hint)
            self._record(
                parts, DriveResult(row.id, RunState.STOPPED, Exit.BUG, f"a bug: {bug}", "windlass resume tries again")
            )
            raise

    async def _recover(self, row: RunRow, parts: RunServices) -> None:
        settled = settle_checkout(Service(self._world))
        if settled:
            parts.journal.emit(f"settle@{row.epoch}", Warned("checkout", settled.text))
        about = parts.engine.about
        if about and about.note and row.started_at < about.noted_at:
            parts.journal.emit("repository", Warned("repository", about.note))
        if row.epoch > 1 or not parts.engine.tip(row.id):
            await self._repair(row, parts)
        open_before = parts.store.open_attempts(row.id)
        found = await asyncio.to_thread(self._recovered, row, parts)
        # In their order: whoever looks on hears of an interrupted attempt before it hears of the resume.
        parts.journal.catch_up()
        parts.left.update(found.left)
        for attempt in open_before:
            # Their processes have ended; the driver that began them had no time for it.
            await asyncio.to_thread(redact_transcript, parts.folder / attempt.intent.folder, parts.redactor)
        if row.epoch > 1:
            reason = f"{found.lost} interrupted" if found.lost else ""
            if self._before:
                parts.journal.emit(f"epoch{row.epoch}", Warned("driver", _two_drivers(self._before)))
            with parts.journal.writing("resume", RunResumed(row.epoch, reason)):
                pass

    def _recovered(self, row: RunRow, parts: RunServices) -> Recovered:
        store, machine = Store.open(self._world.place.database, self._world.clock), parts.machine
        store.claim = self._store.claim
        accounts = LateCosts(store, row.id, parts.folder, parts.adapters, parts.config.budget.unknown_usd)
        try:
            found = recover(
                store,
                row.id,
                parts.slots,
                parts.folder,
                host=machine.host,
                boot=machine.boot,
                resumes=lambda agent: _resumes(parts, agent),
                close=accounts.interrupt,
                before_may_live=self._before is not None,
            )
            if row.epoch > 1:
                accounts.settle()
            return found
        finally:
            store.close()

    async def _repair(self, row: RunRow, parts: RunServices) -> None:
        tasks = {phase.id for phase in parts.world.flow.all_phases() if phase.OWN_SLOTS}

        def work() -> Recovered:
            store = Store.open(self._world.place.database, self._world.clock)
            try:
                return repair_repositories(store, row.id, parts.engine, tasks)
            finally:
                store.close()

        done = await asyncio.to_thread(work)
        if done.notes or done.fallen:
            parts.journal.give_up(done.fallen, done.commits, "; ".join(done.notes))

    def _build(
        self, row: RunRow, fence: Fence, on_event: Callable[[Recorded], None], asker: Asker | None
    ) -> tuple[RunServices, ViewFiles]:
        world = self._world
        folder = world.place.run_folder(row.id)
        make_private(folder)
        cast, roles = RoleOverrides.remembered(row.options), self._kit.roles()
        config, flow = self._kit.config(told=cast.roles), self._flow(row, roles)
        in_place = world.place.root if row.options.get("in_place") else None
        later = asyncio.get_running_loop().call_later
        tdd = _tdd_mode(flow, config)
        projecting = ViewFiles(self._store, row, flow, folder, world.clock, in_place, later, tdd, fence.held)

        def publish(recorded: Recorded) -> None:
            projecting.feed(recorded)
            on_event(recorded)

        wanted = StopRequests(require_claim=self._store.require_claim)
        obey(wanted, row.wanted)
        engine = EngineRepo.open(git.discover(world.cwd), state_dir(world.environ), fence=fence.held)
        journal = Journal(self._store, row.id, row.epoch, publish=publish, crash=self._crash, barrier=engine.barrier)
        facts = _facts(flow, row, self._store, projecting.view.published, world.place.root.name)
        broker = Questions(journal, AnswerPolicy.from_json(row.options.get("policy")), asker, wanted.check)
        parts = RunServices(
            store=self._store,
            journal=journal,
            world=facts,
            config=config,
            broker=broker,
            budget=_budget(journal, broker, flow, config),
            governor=QuotaWaits(
                journal,
                SharedWaits.below(state_dir(world.environ), world.clock),
                QuotaPatience(config.retries.pauses, config.retries.longest_wait),
                wanted.check,
            ),
            roles=roles,
            adapters=self._kit.adapters(config, str(row.options.get("script") or "")),
            agent=cast.agent,
            named=frozenset(cast.roles),
            engine=engine,
            slots=Slots(engine, keeping=bool(row.options.get("keep"))),
            folder=folder,
            machine=DriverHost(_host(), boot_id(), world.environ, world.clock),
            wanted=wanted,
            slots_wanted=_whole(row.options.get("slots")),
            report=lambda template: projecting.report(template, world.clock()),
        )
        return parts, projecting

    def _record(self, parts: RunServices, ended: DriveResult) -> DriveResult:
        """An abort that was asked for while the run came to rest ends it: nobody else will look."""
        parts.journal.flush()
        with parts.journal.writing("end"):
            if not ended.state.final and self._store.run(ended.run).wanted == ABORT:
                ended = DriveResult(ended.run, RunState.ABORTED, Exit.ABORTED, BY_USER)
            parts.journal.say(RunEnded(ended.state, ended.reason, ended.hint))
            self._store.set_state(ended.run, ended.state, ended.reason, ended.hint)
        return ended


# -- small things


def _budget(journal: Journal, broker: Questions, flow: Flow, config: Config) -> Budget:
    beyond = LimitQuestion(journal, broker) if flow.over_budget == "ask" else None
    money = config.budget
    return Budget(
        journal, Prices(money.dispatch_usd, money.unknown_usd, money.dispatch_tokens, money.run_tokens), beyond
    )


async def _warn_unpriced(parts: RunServices, cast: RoleOverrides) -> None:
    """Said before the first dispatch, once: a model whose price nobody knows is bounded by its tokens alone."""
    found = await asyncio.to_thread(unpriced_models, parts.world.flow, parts.roles, parts.config, cast)
    for text in found:
        parts.journal.emit("prices", Warned("budget", text))
    parts.journal.flush()


def _tdd_mode(flow: Flow, config: Config) -> str:
    """Without a command that runs tests by file, nobody can prove that they came first."""
    if flow.tdd == "off":
        return "off"
    return "enforced" if config.tests.run_files is not None else "unchecked"


def _resumes(parts: RunServices, agent: str) -> bool:
    """An agent that cannot be used as this driver was called does not go on either: another one plays its role."""
    try:
        return parts.adapters(agent).capabilities.resume
    except UserError:
        return False


def _two_drivers(before: DriverId) -> str:
    where = "" if before.here else f" on '{before.host}'"
    what = "it can write nothing more, and its slots are not used again"
    return f"an earlier driver (process {before.pid}{where}) may still be alive; {what}"


def _clean_pool(slots: Slots, now: float) -> None:
    """A flow whose agents have branches of their own ends with its pool: the worktrees go, what `--keep` kept stays.
    What cannot be removed now is left to `windlass gc`."""
    for lease in slots.leases():
        if lease.use is SlotUse.FREE:
            with suppress(OSError, WindlassError):
                slots.remove(lease, now)


def _kept(slots: Slots, run: str) -> tuple[Path, ...]:
    kept = [lease for lease in slots.leases() if (lease.use, lease.run) == (SlotUse.KEPT, run)]
    return tuple(slots.slot(lease.n).path for lease in kept)


def _published_tip(store: Store, run: str) -> str:
    """A landing that was not published yet does not count: a driver may die in between."""
    last = store.last_of(run, BranchPublished)
    return last.commit if last else ""


def _whole(value: Json) -> int | None:
    return value if isinstance(value, int) else None


def _facts(flow: Flow, row: RunRow, store: Store, branch: str, repository: str) -> RunValues:
    facts = RunValues(
        flow,
        row.facts,
        mode=str(row.options.get("mode") or ""),
        settings=dict(row.settings),
        in_place=bool(row.options.get("in_place")),
        branch=branch,
        published_tip=_published_tip(store, row.id),
        repository=repository,
        base_branch=str(row.options.get("from") or ""),
    )
    _hold_given(facts, store, row)
    return facts


def _host() -> str:
    return socket.gethostname()


def _hold_given(facts: RunValues, store: Store, row: RunRow) -> None:
    given = row.options.get("given")
    for name, sha in (given if isinstance(given, dict) else {}).items():
        facts.hold(name, store.blob(str(sha)), "given")


def _raised(row: RunRow, config: Config) -> float | None:
    """A limit that was raised in the config since the last driver counts; what the config always said does not."""
    before = row.options.get(CONFIG_LIMIT)
    if row.budget_usd is None or not isinstance(before, int | float) or config.budget.stop_usd <= before:
        return row.budget_usd
    return max(config.budget.stop_usd, row.budget_usd)


def _ended(run: str, end: End) -> DriveResult:
    exits = {
        RunState.FINISHED: Exit.OK,
        RunState.ABORTED: Exit.ABORTED,
        RunState.STOPPED: Exit.STOPPED,
        RunState.BLOCKED: Exit.STOPPED,
    }
    hints = {RunState.STOPPED: "windlass retry tries that phase again", RunState.BLOCKED: "windlass resume looks again"}
    return DriveResult(run, end.state, exits[end.state], end.reason, hints.get(end.state, ""))


def _on_signals(wanted: StopRequests) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, DriverControls(wanted).stop)


def _ignore_signals() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().remove_signal_handler(number)


async def _settle_edits(parts: RunServices, folder: Path) -> None:
    """Files that somebody edited while the run was at rest: one question each, before anything else happens."""
    for edit in edits(parts.store, parts.world.facts.id, folder):
        proposal = adoption.propose(parts.store, parts.world.facts.id, parts.world.flow, parts.journal, edit)
        key = Key().child("adopt").child(edit.artifact).child(content_id(edit.content)[:12])
        answer = await parts.broker.ask(key, adoption.question(proposal))
        if answer.value == "adopt":
            adoption.record(parts.store, parts.world.facts.id, parts.journal, proposal, answer.by)
        else:
            aside = set_aside(folder, edit) if answer.value == "aside" else ""
            restore(parts.store, folder, edit)
            text = f"your edit of {edit.path} was kept as {aside}" if aside else f"{edit.path} was restored"
            parts.journal.emit(key.text, Warned("adopt", text))
