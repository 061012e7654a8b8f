"""The engine runs set-up, checks and commands itself: in a slot, supervised, with an allow-listed environment."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from windlass.agents.base import Invocation
from windlass.agents.output_redaction import redact_transcript
from windlass.agents.process.agent_run import too_much
from windlass.agents.process.supervise import ProcessExit, agent_env, supervise
from windlass.checks.report_env import VARIABLES
from windlass.checks.run import Check, CheckResult, RunOutput, acceptable, canary_tree, run_check
from windlass.config.schema import CommandSet
from windlass.dispatch.workspace import Workspace
from windlass.engine.retry import STOPS
from windlass.engine.services import CheckServices
from windlass.errors import ExhaustedError, StoppedError, UserError, exhausted, near
from windlass.events import CommandFinished, Event
from windlass.git.slot import Slot, lock_hash
from windlass.git.trees import commit_tree
from windlass.kinds.base import CommandRun
from windlass.model import ErrorClass, Json, Key, digest
from windlass.private_files import make_private, open_private

MOST_RUNS = 3
NO_END = ("lost", "stopped", "driver-died")
"""How a supervisor ends, or is ended, without a word of the program's own end."""


class CheckVerdict(Struct, frozen=True):
    """What the checks said of one tree."""

    ok: bool
    label: str
    """passed | known failures | unchecked | failed"""
    output: str = ""
    failing: tuple[str, ...] = ()
    events: tuple[Event, ...] = ()


class Checker:
    def __init__(self, services: CheckServices, *, recall: bool = True) -> None:
        self._services = services
        self._programs = SlotPrograms(services)
        self._recall = recall
        """False: earlier results do not count, because what is around the tree may have changed."""
        self.known: frozenset[str] = frozenset()
        """Tests that failed on the base and that a person accepted."""

    @property
    def configured(self) -> bool:
        return bool(self._services.config.checks.commands)

    async def prepare(self, slot: Slot) -> None:
        """Copies and set-up: once per slot, again when a lock file changed."""
        workspace = self._services.config.workspace
        if workspace.copied:
            await asyncio.to_thread(self._services.slots.copy, slot, workspace.copied)
        if not workspace.setup:
            return
        wanted, mark = self.setup_hash(slot), slot.git_dir / "windlass-setup"
        if mark.is_file() and mark.read_text() == wanted:
            return
        await self.set_up(slot)
        mark.write_text(wanted)

    async def set_up(self, slot: Slot) -> None:
        """Run the set-up, whatever was done in the slot before."""
        workspace = self._services.config.workspace
        for argv in workspace.setup:
            check = Check(argv, workspace.setup_timeout)
            result = await self._run(check, slot, self._services.folder / "setup" / str(slot.n))
            if not result.ok:
                raise StoppedError(
                    f"workspace.setup failed in a slot: {check.command}\n{result.tail}",
                    hint="mend it in .windlass/config.toml, then: windlass resume",
                )

    def setup_hash(self, slot: Slot) -> str:
        """Names the set-up commands and the lock files that they read; '' without a set-up."""
        workspace = self._services.config.workspace
        if not workspace.setup:
            return ""
        return digest([[list(argv) for argv in workspace.setup], lock_hash(slot.path, workspace.lock_files)])

    async def check(self, key: Key, workspace: Workspace, commit: str, tree: str) -> CheckVerdict:
        """The configured checks on a tree, in the workspace's slot; remembered by tree, command and set-up."""
        if not self.configured:
            return CheckVerdict(True, "unchecked")
        results = await self._check_commit(key, workspace, commit, tree)
        events = tuple(_event(key, result, cached=cached) for result, cached in results)
        red = [result for result, _ in results if not acceptable(result, self.known)]
        if red:
            failing = tuple(test for result in red for test in result.failing)
            return CheckVerdict(False, "failed", "\n".join(map(_failure_text, red)), failing, events)
        all_green = all(result.ok for result, _ in results)
        return CheckVerdict(True, "passed" if all_green else "known failures", events=events)

    async def command(self, key: Key, name: str, workspace: Workspace) -> CommandRun:
        commands = self._named(name)

        async def run(previous: Json) -> Json:
            results = await self._check_commit(key, workspace, workspace.head, workspace.tree, commands)
            return [result.to_json() for result, _ in results]

        def events(found: Json) -> list[Event]:
            return [_event(key, _result(one), cached=False) for one in found] if isinstance(found, list) else []

        inputs: Json = {"tree": workspace.tree, "commands": [list(c) for c in commands.commands]}
        found = await self._services.journal.step(key, inputs, run, events=events)
        results = [_result(one) for one in found] if isinstance(found, list) else []
        red = [result for result in results if not acceptable(result, self.known)]
        return CommandRun(not red, "\n".join(r.tail for r in red), tuple(test for r in red for test in r.failing))

    async def canary(self, key: Key, workspace: Workspace) -> str:
        """'' when the checks prove to test the slot; else the warning."""
        tree = await asyncio.to_thread(canary_tree, workspace.engine, workspace.head)
        if tree == workspace.tree:
            return ""
        commit = await asyncio.to_thread(commit_tree, workspace.engine, tree, [workspace.head], "canary", 0.0)
        results = await self._check_commit(key, workspace, commit, tree)
        if not all(result.ok for result, _ in results):
            return ""
        return (
            "the checks pass although all code in the slot was broken on purpose: they seem to test another folder"
            " (an editable install, a parent node_modules); what they say is not proof"
        )

    async def probe(
        self, argv: Sequence[str], slot: Slot, folder: Path, timeout: float, variables: Mapping[str, str]
    ) -> RunOutput:
        """One run as it is, on the tree that the slot has; nothing is remembered."""
        # What one tree compiled can look newer than the source of the next.
        env = {**self._programs.env(), **VARIABLES, **variables, "PYTHONDONTWRITEBYTECODE": "1"}
        output = await self._programs.run(slot, argv, slot.path, env, timeout, folder)
        self._services.wanted.check()
        return output

    # -- inside

    async def _check_commit(
        self, key: Key, workspace: Workspace, commit: str, tree: str, commands: CommandSet | None = None
    ) -> list[tuple[CheckResult, bool]]:
        """The results in order, up to the first that is red, each with whether it was remembered."""
        commands = commands or self._services.config.checks
        slot = await workspace.ready(key.text, 0)
        if tree != workspace.tree:
            await asyncio.to_thread(slot.stand_on, commit)
            workspace.disturbed()
        results: list[tuple[CheckResult, bool]] = []
        for number, argv in enumerate(commands.commands, 1):
            results.append(await self._remembered(key, Check(argv, commands.timeout), slot, tree, number))
            if not results[-1][0].ok:
                break
        # What checks leave behind is nobody's work.
        await asyncio.to_thread(slot.stand_on, workspace.head)
        return results

    async def _remembered(self, key: Key, check: Check, slot: Slot, tree: str, number: int) -> tuple[CheckResult, bool]:
        store, setup = self._services.store, self.setup_hash(slot)
        seen = store.checks.get(tree, check.command, setup) if self._recall else None
        if seen is not None:
            return _result(seen), True
        result = await self._run(check, slot, self._services.folder / "attempts" / key.text / f"check{number}")
        # Red may be this machine's fault today; only green is worth remembering.
        if result.ok:
            store.checks.put(self._services.journal.claim, tree, check.command, setup, result.to_json())
        return result, False

    async def _run(self, check: Check, slot: Slot, folder: Path) -> CheckResult:
        programs = self._programs
        result = await run_check(check, slot.path, programs.env(), folder, partial(programs.run, slot))
        self._services.wanted.check()
        return replace(result, tail=self._services.redactor.text(result.tail))

    def _named(self, name: str) -> CommandSet:
        config = self._services.config
        if name == "checks":
            return config.checks
        if name not in config.commands:
            raise UserError(f"no commands named '{name}' are configured", hint=near(name, {"checks", *config.commands}))
        return config.commands[name]


class SlotPrograms:
    """Runs the project's own programs in a slot: supervised, bounded, with an allow-listed environment."""

    def __init__(self, services: CheckServices) -> None:
        self._services = services

    def env(self) -> dict[str, str]:
        return agent_env(self._services.machine.environ, self._services.config.workspace.env, ci=True)

    async def run(
        self, slot: Slot, argv: Sequence[str], cwd: Path, env: Mapping[str, str], timeout: float, folder: Path
    ) -> RunOutput:
        """A run whose end was not recorded says nothing of the tree: it is repeated."""
        commit, most = slot.commit, self._services.config.limits.output_mb << 20
        for number in range(1, MOST_RUNS + 1):
            ended = await self._supervised(argv, cwd, env, timeout, folder, number, most)
            if ended.reason == "full":
                # Red because of the disk is not red: nobody is paid to fix that in the code.
                raise ExhaustedError(ended.error, hint=STOPS[ErrorClass.DISK_FULL])
            if ended.reason not in NO_END or self._services.wanted.stop.is_set():
                error = f"ended: {too_much(most)}" if ended.reason == "output" else ended.error
                output = await asyncio.to_thread(_joined, folder, error)
                await asyncio.to_thread(redact_transcript, folder, self._services.redactor)
                code = None if ended.reason == "output" else ended.code
                return RunOutput(code, output, ended.seconds, ended.reason == "wall")
            await asyncio.to_thread(slot.stand_on, commit)
        raise StoppedError(
            f"'{' '.join(argv)}' was cut off {MOST_RUNS} times before it ended: its supervisor was killed",
            hint="look who kills processes here (memory? dmesg tells); windlass resume runs it again",
        )

    async def _supervised(
        self,
        argv: Sequence[str],
        cwd: Path,
        env: Mapping[str, str],
        timeout: float,
        folder: Path,
        number: int,
        most_bytes: int,
    ) -> ProcessExit:
        # An earlier run may have left half a report there.
        await asyncio.to_thread(_remove, folder)
        make_private(folder)
        journal = self._services.journal
        return await supervise(
            Invocation(tuple(argv)),
            cwd=cwd,
            env=env,
            folder=folder,
            wall_s=timeout,
            on_line=None,
            stop=self._services.wanted.stop,
            # No other run of a check has it: whoever ends what one left must not end another.
            marker=f"{journal.run}:{folder.relative_to(self._services.folder)}@{journal.claim.epoch}.{number}",
            most_bytes=most_bytes,
        )


def _failure_text(result: CheckResult) -> str:
    """A fixer must know at least what failed."""
    if result.timed_out:
        return f"{result.tail}\n{result.command} was ended after {result.seconds:.0f} s".strip()
    return result.tail if result.tail.strip() else f"{result.command} ended with code {result.code} and said nothing"


def _remove(folder: Path) -> None:
    """Whole or not at all: the next run appends to what it finds there, and would show it as its own."""
    try:
        shutil.rmtree(folder)
    except FileNotFoundError:
        return
    except OSError as error:
        raise exhausted(error, folder) or StoppedError(
            f"what an earlier check wrote cannot be removed: {error.strerror}: '{folder}'",
            hint="remove that folder yourself, then: windlass resume",
        ) from None


def _joined(folder: Path, error: str) -> Path:
    """Standard output and standard error as one text."""
    joined = folder / "output"
    joined.unlink(missing_ok=True)
    with open_private(joined) as text:
        out = text.buffer
        for name in ("stdout", "stderr"):
            if (folder / name).is_file():
                with (folder / name).open("rb") as part:
                    shutil.copyfileobj(part, out)
        out.write(f"\n{error}".encode() if error else b"")
    return joined


def _result(data: Json) -> CheckResult:
    assert isinstance(data, dict)
    failing = data["failing"]
    assert isinstance(failing, list)
    return CheckResult(**{**data, "failing": tuple(failing)})  # type: ignore[arg-type]


def _event(key: Key, result: CheckResult, *, cached: bool) -> Event:
    return CommandFinished(
        key.text, result.command, result.ok, result.code, round(result.seconds, 3), cached, result.tail[-2000:]
    )
