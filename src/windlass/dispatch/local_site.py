"""The site on this machine. Agents are supervised processes, and their checkouts are slots."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from windlass.agents import installed, registry
from windlass.agents.base import Adapter, AgentEvent, AgentResult, Job, ReadsErrors
from windlass.agents.output_redaction import redact_transcript, redacted_event, redacted_result
from windlass.agents.process.agent_run import PATIENCE_S, AgentEventLog, AgentRun
from windlass.agents.process.liveness import Liveness, sample
from windlass.agents.process.login_copy import copy_logins, remove_logins
from windlass.agents.process.orphans import WaitsForOutput, release_output
from windlass.agents.process.supervise import SUPERVISORS, SupervisedProcess, agent_env, supervise
from windlass.config.schema import Config
from windlass.dispatch.commands import CommandRunner
from windlass.dispatch.local_checkout import LocalCheckout
from windlass.dispatch.recovery import Recovery, recover
from windlass.dispatch.site import Checkout, DispatchListener, InterruptedAttempt, SiteAddress, SiteResult
from windlass.engine.services import DriverHost
from windlass.errors import UserError
from windlass.git.keep import Attempt
from windlass.git.slot import Slot
from windlass.git.slots import Slots
from windlass.model import ErrorClass, RunFacts, Usage
from windlass.private_files import make_private, open_private, replace_file
from windlass.redaction import Redactor
from windlass.store.port import Store
from windlass.store.rows import AttemptRow
from windlass.text import plain

if TYPE_CHECKING:
    from windlass.dispatch.proof_room import SlotProofRoom
    from windlass.proof.trees import Trees

TICK_S = 5.0
LINGER_S = 10.0
LINGER_FAILED_S = 1.0
STDERR_TAIL = 20_000


class LocalSite:
    """Slots, processes and transcripts of one run on this machine."""

    def __init__(
        self,
        facts: RunFacts,
        folder: Path,
        slots: Slots,
        host: DriverHost,
        config: Config,
        adapters: Callable[[str], Adapter],
        redactor: Redactor,
        commands: CommandRunner,
    ) -> None:
        self.address = SiteAddress(host.host, host.boot)
        self._run = facts.id
        self._branches = (facts.branch,)
        """Branches of the user's repository that the run moves while agents work."""
        self._folder = folder
        """The run's folder."""
        self._slots = slots
        self._host = host
        self._config = config
        self._adapters = adapters
        self._redactor = redactor
        self._commands = commands
        self._spare: list[tuple[Slot, str]] = []
        """Slots that a finished scope left for the next one, each with its commit."""
        self._interrupted: dict[str, InterruptedAttempt] = {}
        self._checked_agents: set[str] = set()
        """Agents with a version check."""

    # -- the port

    def checkout(self) -> LocalCheckout:
        return LocalCheckout(self._slots, self._run, self._host.clock, self._commands, self._spare)

    def take_interrupted(self, key: str) -> InterruptedAttempt | None:
        return self._interrupted.pop(key, None)

    def attempt_name(self, key: str, n: int) -> str:
        return f"attempts/{key}/@{n}"

    async def run(self, job: Job, checkout: Checkout, listener: DispatchListener) -> SiteResult:
        assert isinstance(checkout, LocalCheckout)
        await checkout.remove(job.absent)
        if job.files:
            await checkout.write(dict(job.files))
        await checkout.make_folders(job.outs.values())
        earlier = {"sessions": str(self._folder / job.earlier)} if job.earlier else {}
        job = replace(
            job,
            cwd=Path(checkout.directory),
            folder=self._folder / self.attempt_name(job.key, job.attempt),
            options={"state": str(self._folder / "scripted"), **earlier},
        )
        before = await checkout.state_before(self._branches)
        watch = LivenessWatch(listener, self._redactor, (job.cwd, job.folder), self._config.limits.frozen)
        ticking = asyncio.create_task(watch.tick())
        try:
            result = await run_agent(
                self._adapters(job.agent),
                job,
                env=agent_env(self._host.environ, self._config.workspace.env),
                stop=listener.stop,
                on_event=watch.on_event,
                on_started=watch.on_started,
                clock=self._host.clock,
                afford=listener.afford,
                frozen=watch.frozen,
            )
        finally:
            ticking.cancel()
            watch.frozen.cancel()
        await asyncio.to_thread(redact_transcript, job.folder, self._redactor)
        leftovers = await checkout.leftovers(before, self._branches, job.base, (job.key, job.attempt))
        outputs: dict[str, str] = {}
        for name, path in job.outs.items() if result.error is None else ():
            text = await checkout.read(path)
            if text is not None:
                outputs[name] = self._redactor.text(text)
        return SiteResult(redacted_result(result, self._redactor), leftovers, outputs)

    async def agent_warning(self, agent: str) -> str:
        """Warns about an untested version of a CLI. Some CLIs need a second to print their version."""
        if agent in self._checked_agents or agent not in registry.CLIS:
            return ""
        self._checked_agents.add(agent)
        return installed.version_warning(agent, await asyncio.to_thread(self._version, agent))

    def _version(self, agent: str) -> str:
        options, environ = self._config.agents.options(agent), self._host.environ
        binary = installed.find(agent, environ, str(options.get("bin", "")))
        return installed.version(binary, environ, str(options.get("node", ""))) if binary else ""

    def proof_room(self, key: str, trees: Trees) -> SlotProofRoom:
        # A late import: the proof loads grammars of several languages, and the first dispatch must not wait for them.
        from windlass.dispatch.proof_room import SlotProofRoom

        folder = self._folder / "attempts" / key / "run"
        return SlotProofRoom(self._slots.engine, trees, self._config, folder, self._commands, self._host.clock)

    async def close(self) -> None:
        driver = Attempt(self._run, "driver", 0)
        while self._spare:
            slot, _ = self._spare.pop()
            await asyncio.to_thread(self._slots.release, slot, driver, self._host.clock())

    # -- for the code that starts a driver

    def recover(
        self,
        store: Store,
        close: Callable[[Collection[AttemptRow]], None],
        *,
        predecessor_may_run: bool,
    ) -> Recovery:
        """End the processes of an earlier driver, and remember the attempts that can continue."""
        found = recover(
            store,
            self._run,
            self._slots,
            self._folder,
            host=self.address.host,
            boot=self.address.boot,
            resumes=self._can_resume,
            close=close,
            predecessor_may_run=predecessor_may_run,
        )
        self._interrupted.update(found.left)
        return found

    def redact(self, attempt: str) -> None:
        """Redact the transcript of an attempt. A killed driver had no time to do it."""
        redact_transcript(self._folder / attempt, self._redactor)

    def _can_resume(self, agent: str) -> bool:
        """False also for an agent that this driver cannot use."""
        try:
            return self._adapters(agent).capabilities.resume
        except UserError:
            return False


class LivenessWatch:
    """Forwards an agent's events, and looks for signs of life in its processes and files."""

    def __init__(
        self, listener: DispatchListener, redactor: Redactor, folders: tuple[Path, ...], frozen_s: float
    ) -> None:
        self._listener = listener
        self._redactor = redactor
        self._liveness = Liveness(time.monotonic(), frozen_s=frozen_s)
        self._folders = folders
        """The folders in which the agent changes files: its slot, and the attempt's folder with the CLI's session."""
        self._supervisor = 0
        self.frozen: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        """Gets the reason when there is no sign of life."""

    def on_started(self, process: SupervisedProcess) -> None:
        self._supervisor = process.supervisor

    def on_event(self, event: AgentEvent) -> None:
        self._warn(self._liveness.event(event, time.monotonic()))
        self._listener.on_event(redacted_event(event, self._redactor))

    async def tick(self) -> None:
        pause = min(TICK_S, self._liveness.frozen_s / 4)
        while True:
            await asyncio.sleep(pause)
            folders = self._folders if self._liveness.is_quiet(time.monotonic()) else ()
            seen = await asyncio.to_thread(sample, self._supervisor, folders) if self._supervisor else None
            now = time.monotonic()
            self._warn(self._liveness.tick(now, seen))
            if (why := self._liveness.frozen(now)) and not self.frozen.done():
                self._warn(f"{why}; Windlass ends it and tries again (retries.timed_out)")
                self.frozen.set_result(why)

    def _warn(self, text: str) -> None:
        if text:
            self._listener.on_warning(text)


def warm_up() -> None:
    """Start the process that forks supervisors, while the driver reads the journal."""
    SUPERVISORS.warm()


async def run_agent(
    adapter: Adapter,
    job: Job,
    *,
    env: Mapping[str, str],
    stop: asyncio.Event,
    on_event: Callable[[AgentEvent], None],
    on_started: Callable[[SupervisedProcess], None],
    clock: Callable[[], float],
    afford: Callable[[Usage], str] = lambda usage: "",
    grace_s: float = 5.0,
    linger_s: float = LINGER_S,
    patience_s: float = PATIENCE_S,
    frozen: asyncio.Future[str] | None = None,
) -> AgentResult:
    """Contract: an agent cannot make it raise. When it returns, all processes of the dispatch have ended.

    `afford` is called for each usage report. If it returns a reason, the dispatch stops.
    `frozen` gets a reason when a watcher finds no sign of life. The dispatch then ends as timed out.
    """
    invocation = adapter.invocation(job)
    make_private(job.folder)
    _write(job.folder, {"prompt.md": job.prompt, **invocation.files})
    logins = copy_logins(job.folder, invocation.carried)
    halt = asyncio.Event()
    with open_private(job.folder / "events.jsonl") as file:
        log = AgentEventLog(file, job.limits.output_bytes)
        stream = AgentRun(adapter, job, on_event, clock, log, halt, patience_s, afford)
        watchers = [asyncio.create_task(_forward(stop, halt)), asyncio.create_task(_linger(stream, halt, linger_s))]

        def started(proc: SupervisedProcess) -> None:
            on_started(proc)
            if isinstance(adapter, WaitsForOutput) and adapter.waits_for_output:
                watchers.append(asyncio.create_task(release_output(proc)))

        if frozen is not None:
            frozen.add_done_callback(
                lambda reason: None if reason.cancelled() else stream.stop(ErrorClass.TIMED_OUT, reason.result())
            )
        try:
            ended = await supervise(
                invocation,
                cwd=job.cwd,
                env={**env, **job.env},
                folder=job.folder,
                wall_s=job.limits.wall_s,
                on_line=stream.line,
                stop=halt,
                grace_s=grace_s,
                on_started=started,
                marker=marker_of(job),
                on_error_line=stream.error_line if isinstance(stream.reader, ReadsErrors) else None,
                side_reader=stream.ledger(),
                most_bytes=job.limits.output_bytes,
            )
        finally:
            stream.end_wait()
            if stream.last_chance:
                stream.last_chance.cancel()
            for watcher in watchers:
                watcher.cancel()
            remove_logins(logins)
    return stream.result(ended, _tail(job.folder / "stderr"))


def marker_of(job: Job) -> str:
    """A variable for all processes of the dispatch, to find those that outlived their supervisor."""
    return f"{job.run}:{job.key}@{job.attempt}"


async def _forward(stop: asyncio.Event, halt: asyncio.Event) -> None:
    await stop.wait()
    halt.set()


async def _linger(stream: AgentRun, halt: asyncio.Event, linger_s: float) -> None:
    """End a CLI that sent its last event and does not exit."""
    await stream.finished.wait()
    failed = stream.done is not None and stream.done.error is not None
    # A failed CLI has nothing more to write, and may continue to send requests.
    await asyncio.sleep(min(linger_s, LINGER_FAILED_S) if failed else linger_s)
    halt.set()


def _write(folder: Path, files: Mapping[str, str]) -> None:
    root = folder.resolve()
    for name, text in files.items():
        path = (root / name).resolve()
        if not path.is_relative_to(root) or path == root:
            raise UserError(f"'{name}' is not a file below the attempt's folder", hint="this is a bug in the adapter")
        make_private(path.parent)
        replace_file(path, text)


def _tail(path: Path) -> str:
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - STDERR_TAIL))
            return plain(file.read().decode("utf-8", "replace"))
    except OSError:
        return ""
