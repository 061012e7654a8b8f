"""Runs the set-up and the checks of the local site in a slot, under a supervisor, with an allow-listed environment."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from windlass.agents.base import Invocation
from windlass.agents.output_redaction import redact_transcript
from windlass.agents.process.agent_run import output_limit_reason
from windlass.agents.process.supervise import ProcessExit, agent_env, supervise
from windlass.checks.report_env import VARIABLES
from windlass.checks.run import Check, CheckResult, RunOutput, run_check
from windlass.config.schema import Config
from windlass.engine.journal import Journal
from windlass.engine.retry import STOPS
from windlass.engine.services import StopRequests
from windlass.errors import ExhaustedError, StoppedError, exhausted
from windlass.git.slot import Slot, lock_hash
from windlass.git.slots import Slots
from windlass.model import ErrorClass, digest
from windlass.private_files import make_private, open_private
from windlass.redaction import Redactor

MOST_RUNS = 3
NO_END = ("lost", "stopped", "driver-died")
"""Ends of a supervisor that do not show how the program ended."""


class CommandRunner:
    """Runs the project's commands in slots of this machine."""

    def __init__(
        self,
        journal: Journal,
        config: Config,
        slots: Slots,
        folder: Path,
        environ: Mapping[str, str],
        requests: StopRequests,
        redactor: Redactor,
    ) -> None:
        self._journal = journal
        self._config = config
        self._slots = slots
        self._folder = folder
        """The run's folder."""
        self._environ = environ
        self._requests = requests
        self._redactor = redactor

    async def prepare(self, slot: Slot) -> None:
        """Copy files and run the set-up, once for each slot and again when a lock file changes."""
        workspace = self._config.workspace
        if workspace.copied:
            await asyncio.to_thread(self._slots.copy, slot, workspace.copied)
        if not workspace.setup:
            return
        wanted, mark = self.setup_hash(slot), slot.git_dir / "windlass-setup"
        if mark.is_file() and mark.read_text() == wanted:
            return
        await self.set_up(slot)
        mark.write_text(wanted)

    async def set_up(self, slot: Slot) -> None:
        """Run the set-up, also if it ran in the slot before."""
        workspace = self._config.workspace
        for argv in workspace.setup:
            check = Check(argv, workspace.setup_timeout)
            result = await self.check(check, slot, f"setup/{slot.n}")
            if not result.ok:
                raise StoppedError(
                    f"workspace.setup failed in a slot: {check.command}\n{result.tail}",
                    hint="fix it in .windlass/config.toml, then: windlass resume",
                )

    def setup_hash(self, slot: Slot) -> str:
        workspace = self._config.workspace
        if not workspace.setup:
            return ""
        return digest([[list(argv) for argv in workspace.setup], lock_hash(slot.path, workspace.lock_files)])

    async def check(self, check: Check, slot: Slot, name: str) -> CheckResult:
        """`name`: its folder, below the run's folder."""
        result = await run_check(check, slot.path, self._env(), self._folder / name, partial(self._run, slot))
        self._requests.check()
        return replace(result, tail=self._redactor.text(result.tail))

    async def probe(
        self, argv: Sequence[str], slot: Slot, folder: Path, timeout: float, variables: Mapping[str, str]
    ) -> RunOutput:
        """Run a command once in the slot, without a cache."""
        # Bytecode of one tree could look newer than the source of the next tree.
        env = {**self._env(), **VARIABLES, **variables, "PYTHONDONTWRITEBYTECODE": "1"}
        output = await self._run(slot, argv, slot.path, env, timeout, folder)
        self._requests.check()
        return output

    def redact(self, text: str) -> str:
        return self._redactor.text(text)

    async def _run(
        self, slot: Slot, argv: Sequence[str], cwd: Path, env: Mapping[str, str], timeout: float, folder: Path
    ) -> RunOutput:
        """Repeat a run if its end was not recorded, because it has no result."""
        commit, most = slot.commit, self._config.limits.output_mb << 20
        for number in range(1, MOST_RUNS + 1):
            ended = await self._supervise(argv, cwd, env, timeout, folder, number, most)
            if ended.reason == "full":
                # A check that fails because the disk is full does not mean that the code is wrong.
                raise ExhaustedError(ended.error, hint=STOPS[ErrorClass.DISK_FULL])
            if ended.reason not in NO_END or self._requests.stop.is_set():
                error = f"ended: {output_limit_reason(most)}" if ended.reason == "output" else ended.error
                output = await asyncio.to_thread(_join_output, folder, error)
                await asyncio.to_thread(redact_transcript, folder, self._redactor)
                code = None if ended.reason == "output" else ended.code
                return RunOutput(code, output, ended.seconds, ended.reason == "wall")
            await asyncio.to_thread(slot.check_out, commit)
        raise StoppedError(
            f"'{' '.join(argv)}' was cut off {MOST_RUNS} times before it ended: its supervisor was killed",
            hint="find out what kills processes here (see dmesg: out of memory?), then: windlass resume",
        )

    async def _supervise(
        self,
        argv: Sequence[str],
        cwd: Path,
        env: Mapping[str, str],
        timeout: float,
        folder: Path,
        number: int,
        most_bytes: int,
    ) -> ProcessExit:
        # An earlier run may have left files, as an incomplete report.
        await asyncio.to_thread(_remove, folder)
        make_private(folder)
        return await supervise(
            Invocation(tuple(argv)),
            cwd=cwd,
            env=env,
            folder=folder,
            wall_s=timeout,
            on_line=None,
            stop=self._requests.stop,
            # The marker is unique, so that ending the leftovers of one run does not end another run.
            marker=f"{self._journal.run}:{folder.relative_to(self._folder)}@{self._journal.claim.epoch}.{number}",
            most_bytes=most_bytes,
        )

    def _env(self) -> dict[str, str]:
        return agent_env(self._environ, self._config.workspace.env, ci=True)


def _remove(folder: Path) -> None:
    """Raises if a file remains: the next run would append to it and show the old text as its own."""
    try:
        shutil.rmtree(folder)
    except FileNotFoundError:
        return
    except OSError as error:
        raise exhausted(error, folder) or StoppedError(
            f"cannot remove the output of an earlier check: {error.strerror}: '{folder}'",
            hint="remove that folder yourself, then: windlass resume",
        ) from None


def _join_output(folder: Path, error: str) -> Path:
    """Write standard output and standard error into one file."""
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
