"""Where the local site runs the tests of a proof: a slot of its own in which no agent works."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from windlass.checks.reports import expand, names_report, read_report, reports
from windlass.checks.run import Check, read_end, tail_of
from windlass.config.schema import Config
from windlass.dispatch.commands import CommandRunner
from windlass.git.engine_repo import EngineRepo
from windlass.git.proof_slot import ProofSlot
from windlass.proof.facts import ProofTree, TestRun
from windlass.proof.trees import Trees


class SlotProofRoom:
    """Takes its slot with the first run."""

    def __init__(
        self,
        engine: EngineRepo,
        trees: Trees,
        config: Config,
        folder: Path,
        commands: CommandRunner,
        clock: Callable[[], float],
    ) -> None:
        self._engine = engine
        self._trees = trees
        self._config = config
        self._folder = folder
        """The same for every tree: a test can read where its report goes."""
        self._commands = commands
        self._clock = clock
        self._slot: ProofSlot | None = None

    async def setup_hash(self) -> str:
        return (await self._taken()).set_up_for or ""

    async def run_tests(self, tree: str, files: Sequence[str], limit: float | None) -> TestRun:
        slot = await self._taken()
        await self._stand_on(tree)
        await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)
        self._folder.mkdir(parents=True)
        report = self._folder / "junit.xml"
        tests = self._config.tests
        command = tests.run_files or ()
        check = Check(expand(command, files, str(report)), min(tests.timeout, limit or tests.timeout))
        env = {"TMPDIR": str(slot.temporary)}
        output = await self._commands.probe(check.argv, slot.slot, self._folder, check.timeout, env)
        written = report if names_report(command) else output.out_path
        found = await asyncio.to_thread(read_report, written, slot.slot.path) if reports(command) else None
        tail = self._commands.redacted(tail_of(read_end(output.out_path)))
        return TestRun(found, output.code, output.timed_out, output.seconds, tail[-2000:])

    async def release(self) -> None:
        if self._slot is not None:
            await asyncio.to_thread(self._slot.release)

    # -- inside

    async def _taken(self) -> ProofSlot:
        """Set up for the lock files of the head, unless that was done here before."""
        if self._slot is None:
            self._slot = await asyncio.to_thread(ProofSlot.take, self._engine)
            known = self._slot.set_up_for
            await asyncio.to_thread(self._place, self._trees.make(ProofTree.HEAD))
            if known is None or known != self._commands.setup_hash(self._slot.slot):
                await self._set_up()
        return self._slot

    async def _stand_on(self, tree: str) -> None:
        if not await asyncio.to_thread(self._place, tree):
            # The run before changed what the set-up had installed.
            await self._set_up()
            await asyncio.to_thread(self._place, tree)

    def _place(self, tree: str) -> bool:
        assert self._slot is not None
        return self._slot.check_out(tree, self._trees.paths, self._config.workspace.copied)

    async def _set_up(self) -> None:
        """From nothing. On the base where its lock files are those of the head: that runs no code of this task."""
        slot = self._slot
        assert slot is not None
        head, base = self._trees.make(ProofTree.HEAD), self._trees.make(ProofTree.BASE)
        await asyncio.to_thread(slot.wipe)
        await asyncio.to_thread(self._place, head)
        wanted = self._commands.setup_hash(slot.slot)
        await asyncio.to_thread(self._place, base)
        if self._commands.setup_hash(slot.slot) != wanted:
            await asyncio.to_thread(self._place, head)
        await self._commands.set_up(slot.slot)
        await asyncio.to_thread(slot.remember, wanted, self._clock())
