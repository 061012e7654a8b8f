"""Done means landed: candidate, checks, compare and swap, record, publish."""

from __future__ import annotations

import asyncio

from windlass import landing
from windlass.engine.checking import Checker, Verdict
from windlass.engine.desk import Desk
from windlass.engine.parts import Parts
from windlass.events import BranchPublished, Event, LandingRefused, TaskLanded
from windlass.landing import Candidate, Landing
from windlass.model import Json, Key, Task
from windlass.phases.base import Landed
from windlass.store.rows import Intent
from windlass.workspace import follow, publish


class Lander:
    def __init__(self, parts: Parts, checker: Checker) -> None:
        self._parts = parts
        self._checker = checker
        self._journal = parts.journal
        self._publishing: asyncio.Task[None] | None = None

    async def land(self, key: Key, task: Task, desk: Desk, *, checked: bool) -> tuple[Landed, str]:
        """What became of it, and the tip to go on from."""
        inputs: Json = {"task": task.id, "tree": desk.tree}
        row = self._journal.find(key, inputs)
        if row is None:
            await self._try(key, task, desk, inputs, checked)
            row = self._journal.find(key, inputs)
            assert row is not None
        return _landed(row.result)

    async def _try(self, key: Key, task: Task, desk: Desk, inputs: Json, checked: bool) -> None:
        self._parts.wanted.check()
        n, date = self._begin(key, desk.head)
        while True:
            candidate = await landing.candidate(desk.engine, self._run, task.id, task.title, desk.head, date)
            if candidate.kind is Landing.CONFLICT:
                detail = f"conflicts with what has landed: {', '.join(candidate.files)} (merge {candidate.tip})"
                self._refuse(key, n, inputs, task, "conflict", detail, candidate, ())
                return
            verdict = await self._verdict(key, desk, candidate, checked)
            if not verdict.ok:
                self._refuse(key, n, inputs, task, "red", verdict.output, candidate, verdict.events)
                return
            if await landing.swap(desk.engine, self._run, candidate):
                break
        self._finish(key, n, inputs, task, candidate, verdict)
        await self._publish_meanwhile()

    async def _verdict(self, key: Key, desk: Desk, candidate: Candidate, checked: bool) -> Verdict:
        if not checked or candidate.kind is Landing.ALREADY:
            return Verdict(True, "passed" if checked and self._checker.configured else "unchecked")
        return await self._checker.check(key, desk, candidate.commit, candidate.tree)

    async def publish(self) -> None:
        await self._published()
        await self._publish()

    async def _publish_meanwhile(self) -> None:
        """The branch only shows what has landed, so the next task need not wait for it."""
        await self._published()
        self._publishing = asyncio.create_task(self._publish())
        if self._parts.world.in_place:
            # The user's own checkout must not move while a dispatch is watched for touching it.
            await self._published()

    async def _published(self) -> None:
        if self._publishing is not None:
            publishing, self._publishing = self._publishing, None
            await publishing

    async def _publish(self) -> None:
        """Show the tip as the run's branch; what cannot be done now is tried again at the next landing."""
        facts, world = self._parts.world.facts, self._parts.world
        tip = self._parts.engine.tip(facts.id)
        if not tip or tip in (world.published_tip, facts.base):
            return
        if world.in_place:
            await asyncio.to_thread(follow, self._parts.engine, facts.branch, tip)
        branch, last = world.branch or facts.branch, world.published_tip
        done = await asyncio.to_thread(lambda: publish(self._parts.engine, facts.id, branch, tip, last))
        world.published_tip, world.branch = done.commit, done.branch
        with self._journal.writing("publish", BranchPublished(done.branch, done.commit, done.note)):
            pass

    # -- inside

    @property
    def _run(self) -> str:
        return self._parts.world.facts.id

    def _begin(self, key: Key, head: str) -> tuple[int, float]:
        """The first attempt's date stays that of the commit, so a repeated landing makes the same one."""
        machine, n = self._parts.machine, self._journal.next_attempt(key)
        earlier = self._journal.attempts(key)
        self._journal.begin(Intent(key.text, n, f"attempts/{key}/@{n}", machine.host, machine.boot, base=head))
        first = earlier[0] if earlier else self._journal.attempts(key)[0]
        return n, float(int(first.started_at))

    def _refuse(
        self,
        key: Key,
        n: int,
        inputs: Json,
        task: Task,
        why: str,
        detail: str,
        candidate: Candidate,
        events: tuple[Event, ...],
    ) -> None:
        result: Json = {"kind": why, "detail": detail, "files": list(candidate.files), "tip": candidate.tip}
        refused = LandingRefused(task.id, why, detail[-2000:], list(candidate.files))
        self._journal.finish(key, n, inputs=inputs, result=result, events=[*events, refused])

    def _finish(self, key: Key, n: int, inputs: Json, task: Task, candidate: Candidate, verdict: Verdict) -> None:
        tip = candidate.commit if candidate.kind is Landing.MERGED else candidate.tip
        files = list(candidate.files)
        result: Json = {"kind": "landed", "detail": verdict.label, "files": [*files], "tip": tip}
        landed = TaskLanded(task.id, candidate.commit, tip, verdict.label, files)
        self._journal.finish(key, n, inputs=inputs, result=result, events=[*verdict.events, landed])


def _landed(result: Json) -> tuple[Landed, str]:
    assert isinstance(result, dict)
    files = result["files"]
    assert isinstance(files, list)
    paths = tuple(str(path) for path in files)
    return Landed(str(result["kind"]), str(result["detail"]), paths), str(result["tip"])
