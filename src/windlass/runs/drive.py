"""Drives a run: takes its lock, builds its services, performs it, records its end."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from windlass.agents.contracts import registry as contracts
from windlass.agents.contracts.block_tags import run_secret
from windlass.agents.roles import Role
from windlass.answers import AnswerPolicy, Asker
from windlass.config.schema import Config
from windlass.dispatch.commands import CommandRunner
from windlass.dispatch.dispatcher import Dispatcher
from windlass.dispatch.late_costs import LateCosts
from windlass.dispatch.local_site import LocalSite, warm_up
from windlass.dispatch.recovery import Recovery
from windlass.driver import adoption
from windlass.driver.artifacts import EngineArtifacts
from windlass.driver.loop import RESTORE, RunLoop
from windlass.driver.publisher import Publisher, RunPages
from windlass.driver.scopes import RunScope
from windlass.engine.artifacts import RunArtifacts
from windlass.engine.budget import Budget, Prices
from windlass.engine.journal import Journal
from windlass.engine.limit_question import LimitQuestion
from windlass.engine.questions import PausedError, Questions, WaitingError
from windlass.engine.quota import QuotaPatience, QuotaWaits
from windlass.engine.repair import RepositoryRepair, repair_repositories
from windlass.engine.requests import apply_request, poll_requests, request_reader
from windlass.engine.services import Assignments, DriverHost, StopRequests, known_secrets
from windlass.engine.tip import Tip
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
from windlass.flow.load import parse_recorded_flow
from windlass.flow.schema import Flow
from windlass.git import user_repo
from windlass.git.engine_repo import EngineRepo
from windlass.git.slots import Slots, SlotUse
from windlass.locks import DriverId, DriverLock, boot_id, driver_lock
from windlass.model import Choice, Json, Key, Question, RunState, content_id
from windlass.paths import state_dir
from windlass.private_files import make_private
from windlass.redaction import redactor
from windlass.runs.project import Project
from windlass.runs.role_overrides import AS_CONFIGURED, RoleOverrides
from windlass.runs.service import Service
from windlass.runs.settle import settle_checkout
from windlass.runs.start import check_agents, unpriced_models
from windlass.runs.view_files import ViewFiles, deleted, edits, restore, set_aside
from windlass.store.epoch import EpochClaim
from windlass.store.port import Fence, Store
from windlass.store.rows import RunRow
from windlass.tasks.checker import Checker
from windlass.tasks.lander import Lander

if TYPE_CHECKING:
    from windlass.tasks.proof import Prover

CONFIG_LIMIT = "config_usd"
RETRY = "retry"
INTERRUPTED = "interrupted"
ABORT, BY_USER = "abort", "aborted by the user"
TRY_AGAIN = "windlass resume tries again"
EXITS = {
    RunState.FINISHED: Exit.OK,
    RunState.ABORTED: Exit.ABORTED,
    RunState.STOPPED: Exit.STOPPED,
    RunState.BLOCKED: Exit.STOPPED,
}
HINTS = {RunState.STOPPED: "windlass retry tries that phase again", RunState.BLOCKED: "windlass resume looks again"}


STAGE_HINTS = {
    RunState.STOPPED: "windlass retry tries that phase again; windlass restart begins its stage again",
    RunState.BLOCKED: "windlass resume looks again, and offers to restore deleted files; windlass restart --stage"
    " STAGE makes them again; windlass skip goes on without them",
}


class DriveResult(Struct, frozen=True):
    """How a driver ended: the run's state, and the exit code."""

    run: str
    state: RunState
    exit: Exit
    reason: str = ""
    hint: str = ""
    kept: tuple[Path, ...] = ()
    """Folders that `--keep` left unchanged."""


class DriverServices(Struct, frozen=True):
    """The parts of one driver that are used after its construction."""

    run: RunScope
    site: LocalSite
    slots: Slots
    views: ViewFiles
    folder: Path
    """The folder of the run."""


class DriverControls(Struct, frozen=True):
    """Requests from an interface in the driver's own process. The driver reads them at its next step."""

    _requests: StopRequests

    def pause(self, why: str) -> None:
        """Let running agents finish, and start nothing new."""
        self._requests.pause = why

    def go_on(self) -> None:
        """Take back a pause that the driver has not applied yet."""
        self._requests.pause = ""

    def stop(self, why: str = INTERRUPTED) -> None:
        """End running agents now. Their dispatches stay unfinished."""
        self._requests.interrupt = why
        self._requests.stop.set()


InterfaceSession = Callable[[DriverControls], AbstractAsyncContextManager[None]]
"""An interface in the driver's event loop: entered before the run continues, left after its end is recorded."""


def drive(
    project: Project,
    run: str,
    *,
    on_event: Callable[[Recorded], None],
    asker: Asker | None = None,
    interface: InterfaceSession | None = None,
    policy: AnswerPolicy | None = None,
    budget: float | None = None,
    agent: str = "",
    roles: Mapping[str, str] | None = None,
    script: str = "",
) -> DriveResult:
    """Drive the run until it ends or waits. Raises for a held lock, a bug or bad configuration, not for a failed run.

    TakenOverError: another driver took over the run, and this one changed nothing since then.
    """
    host, cast = project.host, RoleOverrides(agent, roles or {})
    with notified(project, run, on_event) as heard, driver_lock(host.place.lock(run), run) as lock:
        store = host.open_store(drives=True)
        session = interface or (lambda controls: nullcontext())
        try:
            driver = _Driver(project, store, lock, crash_points(host.environ), session)
            return driver.run(store.runs.get(run), heard, asker, policy, budget, cast, script)
        finally:
            store.close()


class _Driver:
    """One driver's hold on a run, from the lock to the recorded end."""

    def __init__(
        self,
        project: Project,
        store: Store,
        lock: DriverLock,
        crash: Callable[[str], None],
        interface: InterfaceSession,
    ) -> None:
        self._project = project
        self._lock = lock
        self._before: DriverId | None = None
        """The driver before this one, if it may still be alive."""
        self._interface = interface
        self._store = store
        self._host = project.host
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
        warm_up()
        claim, row = self._take(row, policy, budget, cast, script)
        fence = self._store.fence(claim)
        try:
            retry = row.options.get(RETRY) == self._retries(row.id)
            return asyncio.run(self._session(row, claim, fence, on_event, asker, retry))
        finally:
            fence.close()

    def _retries(self, run: str) -> int:
        return sum(step.key.startswith("retry#") or "/again#" in step.key for step in self._store.steps.all(run))

    def _take(
        self, row: RunRow, policy: AnswerPolicy | None, budget: float | None, cast: RoleOverrides, script: str
    ) -> tuple[EpochClaim, RunRow]:
        """A new epoch. Stores the options of this command line for the next driver."""
        config = self._project.config()
        options: dict[str, Json] = {**row.options, CONFIG_LIMIT: config.budget.stop_usd}
        options |= RoleOverrides.remembered(row.options).changed_to(cast).to_json() | (
            {"script": script} if script else {}
        )
        if cast != AS_CONFIGURED:
            # Refuse a role without a working agent before the run is touched.
            now, roles = RoleOverrides.remembered(options), self._project.roles()
            cast_config, flow = self._project.config(cli_roles=now.roles), self._flow(row, roles)
            adapters = self._project.adapters(cast_config, str(options.get("script") or ""))
            check_agents(adapters, flow, roles, cast_config, now, row.settings)
        if policy is not None:
            options["policy"] = policy.to_json()
        if row.state in (RunState.STOPPED, RunState.BLOCKED):
            # The next driver after a stop retries it, once. A driver that dies before that passes it on.
            options[RETRY] = self._retries(row.id)
        limit = budget if budget is not None else _raised_limit(row, config)
        with self._store.transaction():
            self._lock.require()
            # Meanwhile another driver may have taken the run, or a person may have ended it.
            stored = self._store.runs.get(row.id)
            if stored.epoch != row.epoch or stored.state.final:
                EpochClaim(row.id, row.epoch).refuse(stored.epoch, stored.state)
            before = DriverId.parse(stored.driver)
            self._before = before if before and before.may_live else None
            claim = self._store.runs.take(row.id, DriverId.own().to_json(), self._lock.require)
            self._store.runs.set_options(claim, options)
            self._store.runs.set_state(claim, RunState.RUNNING)
            if limit != row.budget_usd or config.budget.warn_usd != row.warn_usd:
                self._store.runs.set_budget(claim, limit, config.budget.warn_usd)
                changed = BudgetChanged(limit, "command line" if budget is not None else "config")
                self._new_limit = self._store.events.add(claim, changed)
            # Inside: a moment later another driver may have the run.
            return claim, self._store.runs.get(row.id)

    def _flow(self, row: RunRow, roles: Mapping[str, Role]) -> Flow:
        name = f"{row.flow} (of run {row.id})"
        return parse_recorded_flow(row.flow_text, name, roles=set(roles), contracts=set(contracts.CONTRACTS))

    async def _session(
        self,
        row: RunRow,
        claim: EpochClaim,
        fence: Fence,
        on_event: Callable[[Recorded], None],
        asker: Asker | None,
        retry: bool,
    ) -> DriveResult:
        services = self._build(row, claim, fence, on_event, asker)
        run = services.run
        async with self._interface(DriverControls(run.requests)):
            if self._new_limit:
                on_event(self._new_limit)
            watcher = asyncio.create_task(poll_requests(run.journal, run.requests))
            loop, signals = asyncio.get_running_loop(), (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
            for number in signals:
                loop.add_signal_handler(number, DriverControls(run.requests).stop)
            try:
                ended = await self._drive_guarded(row, services, retry)
                watcher.cancel()
                ended = self._end(services, ended)
                kept = [one for one in services.slots.leases() if (one.use, one.run) == (SlotUse.KEPT, row.id)]
                ended = replace(ended, kept=tuple(services.slots.slot(lease.n).path for lease in kept))
                if ended.state is RunState.FINISHED and run.values.flow.agent_branch:
                    await asyncio.to_thread(_clean_pool, services.slots, self._host.clock())
            finally:
                watcher.cancel()
                services.views.close()
                # Only now: a closing terminal sends several signals, and the end must be recorded.
                for number in signals:
                    loop.remove_signal_handler(number)
            return ended

    def _end(self, services: DriverServices, ended: DriveResult) -> DriveResult:
        journal, views = services.run.journal, services.views
        journal.flush()
        if ended.state is RunState.FINISHED and views.view.shortfall:
            ended = replace(ended, exit=Exit.IN_PART, reason=views.view.shortfall)
        if ended.state.final or self._store.runs.get(ended.run).wanted == ABORT:
            # Cleared before the end is recorded: after a kill in between, no driver would return to clear it.
            views.flush(final=True)
        ended = self._record(journal, ended)
        views.flush(final=ended.state.final)
        return ended

    async def _drive_guarded(self, row: RunRow, services: DriverServices, retry: bool) -> DriveResult:
        run = services.run
        try:
            await self._recover(row, services)
            run.requests.check()
            run.tip.restore()
            # Only tokens limit a model without a known price.
            flow, assignments = run.values.flow, run.assignments
            cast = RoleOverrides.remembered(row.options)
            for text in await asyncio.to_thread(unpriced_models, flow, assignments.roles, assignments.config, cast):
                run.journal.emit("prices", Warned("budget", text))
            run.journal.flush()
            await _settle_edits(run, services.folder)
            await _settle_deletions(run, services.folder)
            end = await RunLoop(run, retry=retry).run()
            hints = STAGE_HINTS if flow.stages else HINTS
            return DriveResult(row.id, end.state, EXITS[end.state], end.reason, hints.get(end.state, ""))
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
                run.journal,
                DriveResult(row.id, RunState.STOPPED, Exit.BUG, f"a bug: {bug}", "windlass resume tries again"),
            )
            raise

    async def _recover(self, row: RunRow, services: DriverServices) -> None:
        journal, engine = services.run.journal, services.run.engine
        settled = settle_checkout(Service(self._host))
        if settled:
            journal.emit(f"settle@{row.epoch}", Warned("checkout", settled.text))
        about = engine.about
        if about and about.note and row.started_at < about.noted_at:
            journal.emit("repository", Warned("repository", about.note))
        if row.epoch > 1 or not engine.refs.tip(row.id):
            done = await asyncio.to_thread(self._repair, row, services.run)
            if done.notes or done.fallen:
                journal.give_up(done.fallen, done.commits, "; ".join(done.notes))
        open_before = self._store.attempts.running(row.id)
        found = await asyncio.to_thread(self._recover_attempts, row, services)
        # In order: an observer sees the interrupted attempt before the resume.
        journal.events.catch_up()
        for attempt in open_before:
            # Their processes have ended; the driver that began them did not redact them.
            await asyncio.to_thread(services.site.redact, attempt.intent.folder)
        if row.epoch > 1:
            reason = f"{found.lost} interrupted" if found.lost else ""
            before = self._before
            if before:
                which = f"process {before.pid}" if before.here else f"process {before.pid} on '{before.host}'"
                text = f"an earlier driver ({which}) may still be alive"
                more = "it can write nothing more, and its slots are not used again"
                journal.emit(f"epoch{row.epoch}", Warned("driver", f"{text}; {more}"))
            with journal.writing("resume", RunResumed(row.epoch, reason)):
                pass

    def _recover_attempts(self, row: RunRow, services: DriverServices) -> Recovery:
        assignments = services.run.assignments
        store = self._host.open_store()
        unknown_usd = assignments.config.budget.unknown_usd
        costs = LateCosts(store, services.run.journal.claim, services.folder, assignments.adapters, unknown_usd)
        try:
            found = services.site.recover(store, costs.interrupt, predecessor_may_run=self._before is not None)
            if row.epoch > 1:
                costs.settle()
            return found
        finally:
            store.close()

    def _repair(self, row: RunRow, run: RunScope) -> RepositoryRepair:
        tasks = {phase.id for phase in run.values.flow.all_phases() if phase.OWN_SLOTS}
        store = self._host.open_store()
        try:
            return repair_repositories(store, row.id, run.engine, tasks)
        finally:
            store.close()

    def _build(
        self,
        row: RunRow,
        claim: EpochClaim,
        fence: Fence,
        on_event: Callable[[Recorded], None],
        asker: Asker | None,
    ) -> DriverServices:
        """The composition of a driver: gives every service what it needs, once."""
        here = self._host
        folder = here.place.run_folder(row.id)
        make_private(folder)
        cast, roles = RoleOverrides.remembered(row.options), self._project.roles()
        config, flow = self._project.config(cli_roles=cast.roles), self._flow(row, roles)
        in_place = here.place.root if row.options.get("in_place") else None
        later = asyncio.get_running_loop().call_later
        # Without a command that runs tests by file, no proof can show that the tests came first.
        proven = "enforced" if config.tests.run_files is not None else "unchecked"
        tdd = "off" if flow.tdd == "off" else proven
        views = ViewFiles(self._store, row, flow, folder, here.clock, in_place, later, tdd, fence.held)

        def publish(recorded: Recorded) -> None:
            views.feed(recorded)
            on_event(recorded)

        def render(template: str) -> str:
            return views.report(template, here.clock())

        requests = StopRequests(require_claim=partial(self._store.require, claim))
        apply_request(requests, row.wanted)
        engine = EngineRepo.open(user_repo.discover(here.cwd), state_dir(here.environ), fence=fence.held)
        journal = Journal(self._store, claim, publish=publish, crash=self._crash, barrier=engine.barrier)
        requests.read = request_reader(journal, requests)
        tip = Tip(journal, engine)
        values = _values(flow, row, self._store, views.view.published, here.place.root.name, run_secret(folder))
        if flow.stages:
            # An agent that commits everything must not commit the files of phases.
            names = [name for name, artifact in flow.artifacts.items() if not artifact.commit]
            engine.ignore([path for name in names if (path := values.path(name))])
        questions = Questions(journal, AnswerPolicy.from_json(row.options.get("policy")), asker, requests.check)
        budget = _budget(journal, questions, flow, config)
        patience = QuotaPatience(config.retries.pauses, config.retries.longest_wait)
        quota = QuotaWaits(journal, patience, requests.check)
        adapters = self._project.adapters(config, str(row.options.get("script") or ""))
        prompts = self._project.prompts()
        assignments = Assignments(config, roles, adapters, cast.agent, frozenset(cast.roles), prompts)
        secrets = redactor(known_secrets(config, here.environ, engine.user.root))

        slots, slot_count = Slots(engine, keep_slots=bool(row.options.get("keep"))), row.options.get("slots")
        host = DriverHost(socket.gethostname(), boot_id(), here.environ, here.clock)
        commands = CommandRunner(journal, config, slots, folder, here.environ, requests, secrets)
        site = LocalSite(values.facts, folder, slots, host, config, adapters, secrets, commands)

        dispatcher = Dispatcher(site, journal, values, assignments, config, budget, quota, requests)
        checker = Checker(journal, config, engine)
        lander = Lander(journal, engine, tip, values, checker, requests, secrets, site.address)
        pages = RunPages(folder, render)

        def prover() -> Prover:
            from windlass.tasks.proof import Prover

            return Prover(site, journal, values, config, engine, checker)

        run = RunScope(
            site=site,
            engine=engine,
            journal=journal,
            tip=tip,
            values=values,
            assignments=assignments,
            questions=questions,
            requests=requests,
            dispatcher=dispatcher,
            checker=checker,
            prover=prover,
            lander=lander,
            publisher=Publisher(journal, engine, values, lander, requests, here.environ, secrets, pages),
            artifacts=EngineArtifacts(
                journal, tip, engine, values, secrets, render, lander.branch.publish, views.has_file
            ),
            slots=(slot_count if isinstance(slot_count, int) else 0) or config.workspace.slots,
        )
        return DriverServices(run, site, slots, views, folder)

    def _record(self, journal: Journal, ended: DriveResult) -> DriveResult:
        """An abort that was requested while the run ended its work ends the run: no other process will apply it."""
        journal.flush()
        with journal.writing("end"):
            if not ended.state.final and self._store.runs.get(ended.run).wanted == ABORT:
                ended = DriveResult(ended.run, RunState.ABORTED, Exit.ABORTED, BY_USER)
            journal.events.add(RunEnded(ended.state, ended.reason, ended.hint))
            self._store.runs.set_state(journal.claim, ended.state, ended.reason, ended.hint)
        return ended


# -- helpers


def _budget(journal: Journal, questions: Questions, flow: Flow, config: Config) -> Budget:
    beyond = LimitQuestion(journal, questions) if flow.over_budget == "ask" else None
    money = config.budget
    return Budget(
        journal, Prices(money.dispatch_usd, money.unknown_usd, money.dispatch_tokens, money.run_tokens), beyond
    )


def _clean_pool(slots: Slots, now: float) -> None:
    """Remove the slots of a flow with agent branches at its end; slots of `--keep` stay. `windlass gc` removes what
    cannot be removed now."""
    for lease in slots.leases():
        if lease.use is SlotUse.FREE:
            with suppress(OSError, WindlassError):
                slots.remove(lease, now)


def _values(flow: Flow, row: RunRow, store: Store, branch: str, repository: str, secret: str) -> RunValues:
    # A landing that is not published yet does not count: a driver may die in between.
    published = store.events.last(row.id, BranchPublished)
    values = RunValues(
        flow,
        row.facts,
        RunArtifacts(flow),
        mode=str(row.options.get("mode") or ""),
        settings=dict(row.settings),
        in_place=bool(row.options.get("in_place")),
        branch=branch,
        published_tip=published.commit if published else "",
        repository=repository,
        base_branch=str(row.options.get("from") or ""),
        tag_secret=secret,
    )
    given = row.options.get("given")
    for name, sha in (given if isinstance(given, dict) else {}).items():
        values.artifacts.hold(name, store.blobs.get(str(sha)), "given")
    return values


def _raised_limit(row: RunRow, config: Config) -> float | None:
    """A limit that was raised in the config since the last driver counts; an unchanged one does not."""
    before = row.options.get(CONFIG_LIMIT)
    if row.budget_usd is None or not isinstance(before, int | float) or config.budget.stop_usd <= before:
        return row.budget_usd
    return max(config.budget.stop_usd, row.budget_usd)


async def _settle_edits(run: RunScope, folder: Path) -> None:
    """Files that a person edited while no driver ran: one question each, before anything else happens."""
    journal, id, flow = run.journal, run.values.facts.id, run.values.flow
    store = journal.store
    for edit in edits(store, id, folder):
        proposal = adoption.propose(store, id, flow, journal, edit)
        key = Key().child("adopt").child(edit.artifact).child(content_id(edit.content)[:12])
        answer = await run.questions.ask(key, adoption.question(proposal))
        if answer.value == "adopt":
            adoption.record(store, id, journal, proposal, answer.by)
        else:
            aside = set_aside(folder, edit) if answer.value == "aside" else ""
            restore(store, folder, edit)
            text = f"your edit of {edit.path} was kept as {aside}" if aside else f"{edit.path} was restored"
            journal.emit(key.text, Warned("adopt", text))


async def _settle_deletions(run: RunScope, folder: Path) -> None:
    """Files that a gate needs and that a person deleted while no driver ran: one question for all of them. A restart
    or a skip that the person requested answers it: the files are made again, or the gate is waived."""
    journal, id, flow = run.journal, run.values.facts.id, run.values.flow
    lost = deleted(journal.store, id, flow, folder) if flow.stages and run.requests.detour is None else []
    if not lost:
        return
    key = Key().child(RESTORE, cycle=1 + sum(row.key.startswith(f"{RESTORE}#") for row in journal.recorded_keys()))
    names = "\n".join(edit.path for edit in lost)
    question = Question(
        id=RESTORE,
        text="Files that the run needs were deleted. Restore them from the record?",
        options=(
            Choice("restore", "Restore", "write them again as they were"),
            Choice("leave", "Leave", "the run blocks where it needs them"),
        ),
        detail=names,
        yes="restore",
    )
    answer = await run.questions.ask(key, question)
    if answer.value == "restore":
        for edit in lost:
            restore(journal.store, folder, edit)

    async def settled(previous: Json) -> Json:
        return answer.value

    await journal.step(key, None, settled)


def crash_points(environ: Mapping[str, str]) -> Callable[[str], None]:
    """Crash points exist for the tests that kill a driver at every recorded step."""
    if "WINDLASS_CRASH" not in environ:
        return lambda point: None
    from windlass.testing.crash import crash_point

    return crash_point(environ["WINDLASS_CRASH"])


@contextmanager
def notified(project: Project, run: str, on_event: Callable[[Recorded], None]) -> Iterator[Callable[[Recorded], None]]:
    """Events go to the interface first, then to the configured message services."""
    if not project.config().notify.urls:
        yield on_event
        return
    from windlass.runs.notices import notices

    def both(recorded: Recorded) -> None:
        on_event(recorded)
        messages.on_event(recorded)

    with notices(project, run, Service(project.host).run(run).request) as messages:
        yield both
