"""Set-up and checks of the local site: in a slot, supervised, with an allow-listed environment."""

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
"""The ends of a supervisor that say nothing of the program's own end."""


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
        """The run's."""
        self._environ = environ
        self._requests = requests
        self._redactor = redactor

    async def prepare(self, slot: Slot) -> None:
        """Copies and set-up: once per slot, again when a lock file changed."""
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
        """Run the set-up, whatever was done in the slot before."""
        workspace = self._config.workspace
        for argv in workspace.setup:
            check = Check(argv, workspace.setup_timeout)
            result = await self.check(check, slot, f"setup/{slot.n}")
            if not result.ok:
                raise StoppedError(
                    f"workspace.setup failed in a slot: {check.command}\n{result.tail}",
                    hint="mend it in .windlass/config.toml, then: windlass resume",
                )

    def setup_hash(self, slot: Slot) -> str:
        workspace = self._config.workspace
        if not workspace.setup:
            return ""
        return digest([[list(argv) for argv in workspace.setup], lock_hash(slot.path, workspace.lock_files)])

    async def check(self, check: Check, slot: Slot, name: str) -> CheckResult:
        """`name`: of its folder, below the run's."""
        result = await run_check(check, slot.path, self._env(), self._folder / name, partial(self._run, slot))
        self._requests.check()
        return replace(result, tail=self._redactor.text(result.tail))

    async def probe(
        self, argv: Sequence[str], slot: Slot, folder: Path, timeout: float, variables: Mapping[str, str]
    ) -> RunOutput:
        """One run as it is, on what is checked out in the slot. Nothing is remembered."""
        # What one tree compiled can look newer than the source of the next.
        env = {**self._env(), **VARIABLES, **variables, "PYTHONDONTWRITEBYTECODE": "1"}
        output = await self._run(slot, argv, slot.path, env, timeout, folder)
        self._requests.check()
        return output

    def redacted(self, text: str) -> str:
        return self._redactor.text(text)

    async def _run(
        self, slot: Slot, argv: Sequence[str], cwd: Path, env: Mapping[str, str], timeout: float, folder: Path
    ) -> RunOutput:
        """A run whose end was not recorded says nothing of the tree: it is repeated."""
        commit, most = slot.commit, self._config.limits.output_mb << 20
        for number in range(1, MOST_RUNS + 1):
            ended = await self._supervised(argv, cwd, env, timeout, folder, number, most)
            if ended.reason == "full":
                # Red because of the disk is not red: nobody is paid to fix that in the code.
                raise ExhaustedError(ended.error, hint=STOPS[ErrorClass.DISK_FULL])
            if ended.reason not in NO_END or self._requests.stop.is_set():
                error = f"ended: {output_limit_reason(most)}" if ended.reason == "output" else ended.error
                output = await asyncio.to_thread(_joined, folder, error)
                await asyncio.to_thread(redact_transcript, folder, self._redactor)
                code = None if ended.reason == "output" else ended.code
                return RunOutput(code, output, ended.seconds, ended.reason == "wall")
            await asyncio.to_thread(slot.check_out, commit)
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
        # What an earlier run left there, half a report perhaps, is none of this one's.
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
            # No other run of a check has it: whoever ends what one left must not end another.
            marker=f"{self._journal.run}:{folder.relative_to(self._folder)}@{self._journal.claim.epoch}.{number}",
            most_bytes=most_bytes,
        )

    def _env(self) -> dict[str, str]:
        return agent_env(self._environ, self._config.workspace.env, ci=True)


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
