"""The checkout in which the local site runs the tests of a proof: a slot in which no agent works."""

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
    """Takes its slot for the first run of tests."""

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
        """The same folder for every tree, because a test can read the path of its report."""
        self._commands = commands
        self._clock = clock
        self._slot: ProofSlot | None = None

    async def setup_hash(self) -> str:
        return (await self._take_slot()).set_up_for or ""

    async def run_tests(self, tree: str, files: Sequence[str], limit: float | None) -> TestRun:
        slot = await self._take_slot()
        await self._check_out(tree)
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
        tail = self._commands.redact(tail_of(read_end(output.out_path)))
        return TestRun(found, output.code, output.timed_out, output.seconds, tail[-2000:])

    async def release(self) -> None:
        if self._slot is not None:
            await asyncio.to_thread(self._slot.release)

    # -- inside

    async def _take_slot(self) -> ProofSlot:
        """Take the slot, and run the set-up for the lock files of the head if it has not run there."""
        if self._slot is None:
            self._slot = await asyncio.to_thread(ProofSlot.take, self._engine)
            known = self._slot.set_up_for
            await asyncio.to_thread(self._place, self._trees.make(ProofTree.HEAD))
            if known is None or known != self._commands.setup_hash(self._slot.slot):
                await self._set_up()
        return self._slot

    async def _check_out(self, tree: str) -> None:
        if not await asyncio.to_thread(self._place, tree):
            # The last run changed files that the set-up had installed.
            await self._set_up()
            await asyncio.to_thread(self._place, tree)

    def _place(self, tree: str) -> bool:
        assert self._slot is not None
        return self._slot.check_out(tree, self._trees.paths, self._config.workspace.copied)

    async def _set_up(self) -> None:
        """Run the set-up in an empty slot. If the lock files are the same, use the base, without code of the task."""
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
