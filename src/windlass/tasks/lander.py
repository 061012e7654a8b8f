"""Done means landed: candidates in a chain, checked once at its top, compare and swap, record, publish."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from msgspec import Struct

from windlass.dispatch.site import SiteAddress
from windlass.dispatch.workspace import Workspace
from windlass.engine.journal import EndedLanding, Journal
from windlass.engine.services import StopRequests
from windlass.engine.tip import Tip
from windlass.engine.values import RunValues
from windlass.errors import GitLockError
from windlass.events import BranchPublished, Event, LandingRefused, TaskLanded, Warned
from windlass.git import merge
from windlass.git.conflicts import describe, paths_of
from windlass.git.engine_repo import EngineRepo
from windlass.git.merge import Candidate, Landing
from windlass.git.publish import follow, publish
from windlass.git.trees import diff
from windlass.model import Json, Key, Task
from windlass.redaction import Redactor
from windlass.store.rows import Intent
from windlass.tasks.checker import Checker, CheckVerdict
from windlass.tasks.context import Landed

DIFF_BYTES = 12_000
UNRESOLVED = (
    "these conflicts are not resolved. Each path must be changed, or named as resolved in the answer;"
    " marks and made-up names must go:"
)
PUBLISH_PAUSE_S = 0.5
"""The branch only shows what has landed: while much lands, not every step of it."""


class LandingRequest(Struct, frozen=True):
    """A task's work that wants to become part of the tip."""

    key: Key
    task: Task
    workspace: Workspace
    place: int
    """Where the task stands in the plan: who waits together lands in that order."""
    checked: bool
    waived: bool = False
    """A person accepts it as it is."""

    @property
    def inputs(self) -> Json:
        return {"task": self.task.id, "tree": self.workspace.tree}


class _Waiting(Struct, eq=False):
    request: LandingRequest
    n: int
    date: float
    done: bool = False


class _Link(Struct, frozen=True):
    """A candidate in a chain; its tip is the candidate before it."""

    waiting: _Waiting
    candidate: Candidate


class Lander:
    """One per run. Whatever waits when it is free becomes one chain; whoever finds it free does the work for all."""

    def __init__(
        self,
        journal: Journal,
        engine: EngineRepo,
        tip: Tip,
        values: RunValues,
        checker: Checker,
        requests: StopRequests,
        redactor: Redactor,
        address: SiteAddress,
    ) -> None:
        self._journal = journal
        self._engine = engine
        self._run_tip = tip
        self._values = values
        self._checker = checker
        self._requests = requests
        self._redactor = redactor
        self._address = address
        self._publishing: asyncio.Task[None] | None = None
        self._hurry = asyncio.Event()
        """Somebody waits for what is being published."""
        self._free = asyncio.Condition()
        self._locked: GitLockError | None = None
        """Why the branch could not be moved."""
        self._queue: list[_Waiting] = []
        self._batches = Batches()
        self.turns: list[str] = []
        """Tasks that land in this order; each waits for those before it."""

    async def land(self, request: LandingRequest) -> tuple[Landed, str]:
        """What became of it, and the tip to go on from."""
        row = self._journal.find(request.key, request.inputs)
        try:
            if row is None:
                self._requests.check()
                await self._in_line(_Waiting(request, *self._begin(request.key, request.workspace.head)))
                row = self._journal.find(request.key, request.inputs)
        finally:
            await self.give_up_turn(request.task.id)
        assert row is not None
        return _landed(row.result)

    async def _in_line(self, mine: _Waiting) -> None:
        self._queue.append(mine)
        try:
            async with self._free:
                while not mine.done:
                    await self._work_or_wait()
        finally:
            if mine in self._queue:
                self._queue.remove(mine)

    async def _work_or_wait(self) -> None:
        # Who is ready in this very moment shall be in the same chain.
        await asyncio.sleep(0)
        batch = self._batches.next(self._in_turn())
        if not batch:
            await self._free.wait()
            return
        self._requests.check()
        await self._land(batch)
        self._free.notify_all()

    async def give_up_turn(self, task: str) -> None:
        if task in self.turns:
            self.turns.remove(task)
            async with self._free:
                self._free.notify_all()

    def _in_turn(self) -> list[_Waiting]:
        """By their place in the plan; with turns, nobody before those whose turn is earlier."""
        here = {one.request.task.id for one in self._queue}
        blocked = False
        allowed = here - set(self.turns)
        for id in self.turns:
            blocked = blocked or id not in here
            allowed |= set() if blocked else {id}
        found = [one for one in self._queue if one.request.task.id in allowed]
        return sorted(found, key=lambda one: one.request.place)

    # -- one batch

    async def _land(self, batch: Sequence[_Waiting]) -> None:
        """Records what became of them; who is not recorded waits on."""
        chain = await self._chain(batch)
        if not chain:
            return
        top = chain[-1]
        verdict = await self._verdict(top)
        if verdict.ok:
            await self._swap(chain, verdict)
        elif len(chain) > 1:
            self._batches.was_red(len(chain))
        else:
            await self._refuse(top.waiting, "red", verdict.output, top.candidate, verdict.events)

    async def _chain(self, batch: Sequence[_Waiting]) -> list[_Link]:
        chain: list[_Link] = []
        for one in batch:
            tip = chain[-1].candidate.commit if chain else self._tip
            found = await self._candidate(one, tip)
            if found.kind is Landing.MERGED:
                chain.append(_Link(one, found))
            elif found.kind is Landing.ALREADY:
                # In a chain that is yet to land, it may not be in the tip: looked at again when that has landed.
                found = await self._candidate(one, self._tip) if chain else found
                if found.kind is Landing.ALREADY:
                    await self._finish([_Link(one, found)], self._already(one))
            elif not chain:
                await self._refuse(one, "conflict", found.reason, found, ())
            # A conflict with one that is only about to land is looked at again when that has landed.
        return chain

    async def _candidate(self, one: _Waiting, tip: str) -> Candidate:
        request, engine = one.request, self._engine
        left = await request.workspace.unresolved()
        if left:
            reason = f"{UNRESOLVED}\n{describe(left)}"
            return Candidate(Landing.CONFLICT, "", "", tip, paths_of(left), reason)
        head, title = request.workspace.head, request.task.title
        return await merge.candidate(engine, tip, request.task.id, title, head, one.date)

    async def _verdict(self, top: _Link) -> CheckVerdict:
        request = top.waiting.request
        if request.waived or not request.checked:
            return CheckVerdict(True, "accepted" if request.waived else "unchecked")
        return await self._checker.check(request.key, request.workspace, top.candidate.commit, top.candidate.tree)

    def _already(self, one: _Waiting) -> CheckVerdict:
        return CheckVerdict(True, "passed" if one.request.checked and self._checker.configured else "unchecked")

    async def _swap(self, chain: Sequence[_Link], verdict: CheckVerdict) -> None:
        await self._finish(chain, verdict)
        await self._run_tip.show()
        await self._publish_meanwhile()

    # -- publishing

    async def publish(self) -> None:
        await self._published()
        await self._publish()

    async def close(self) -> None:
        """What is being published is left as it is."""
        if self._publishing is not None:
            self._publishing.cancel()
            await asyncio.gather(self._publishing, return_exceptions=True)

    def require_published(self) -> None:
        """At the end of a run: a lock that is still in the way stops it, and a resume shows the rest."""
        if self._locked:
            raise self._locked

    async def _publish_meanwhile(self) -> None:
        """The branch only shows what has landed, so the next task need not wait for it."""
        if self._publishing is None or self._publishing.done():
            await self._published()
            self._publishing = asyncio.create_task(self._publish())
        if self._values.in_place:
            # The user's own checkout must not move while a dispatch is watched for touching it.
            await self._published()

    async def _published(self) -> None:
        if self._publishing is not None:
            publishing, self._publishing = self._publishing, None
            self._hurry.set()
            await publishing
            self._hurry.clear()

    async def _publish(self) -> None:
        """Show the tip as the run's branch; what cannot be done now is tried again at the next landing."""
        facts, values = self._values.facts, self._values
        tried = ""
        while (tip := self._tip) not in ("", tried, values.published_tip, facts.base):
            tried = tip
            try:
                await self._show(tip)
            except GitLockError as error:
                # Only the branch waits for it: tasks go on, and the next landing tries again.
                self._journal.emit("publish", Warned("branch", f"{error.message}; {error.hint}"))
                self._locked = error
                return
            self._locked = None
            with suppress(TimeoutError):
                async with asyncio.timeout(PUBLISH_PAUSE_S):
                    await self._hurry.wait()

    async def _show(self, tip: str) -> None:
        facts, values = self._values.facts, self._values
        if values.in_place:
            await asyncio.to_thread(follow, self._engine, facts.id, facts.branch, tip)
        branch, last = values.branch or facts.branch, values.published_tip
        done = await asyncio.to_thread(lambda: publish(self._engine, facts.id, branch, tip, last))
        values.published_tip, values.branch = done.commit, done.branch
        published = BranchPublished(done.branch, done.commit, done.note, tip)
        with self._journal.writing("publish", published, synced=False):
            pass

    # -- recording

    @property
    def _tip(self) -> str:
        return self._journal.tip

    def _begin(self, key: Key, head: str) -> tuple[int, float]:
        """The first attempt's date stays that of the commit, so a repeated landing makes the same one."""
        address, n = self._address, self._journal.next_attempt(key)
        earlier = self._journal.attempts(key)
        intent = Intent(key.text, n, f"attempts/{key}/@{n}", address.host, address.boot, base=head)
        # Lost in a power cut it is made anew: what the tip contains already does not land twice.
        self._journal.begin(intent, synced=False)
        first = earlier[0] if earlier else self._journal.attempts(key)[0]
        return n, float(int(first.started_at))

    async def _refuse(
        self, one: _Waiting, why: str, detail: str, candidate: Candidate, events: tuple[Event, ...]
    ) -> None:
        request, files = one.request, list(candidate.files)
        ours, theirs = await self._sides(request.workspace)
        told: dict[str, Json] = {"kind": why, "detail": detail, "files": [*files], "tip": candidate.tip}
        refused = LandingRefused(request.task.id, why, detail[-2000:], files)
        self._record(one, {**told, "ours": ours, "theirs": theirs}, [*events, refused])

    async def _sides(self, workspace: Workspace) -> tuple[str, str]:
        """What the task changed, and what landed since it began."""
        engine, tip = self._engine, self._tip
        ours = await asyncio.to_thread(diff, engine, workspace.base, workspace.head, DIFF_BYTES)
        theirs = await asyncio.to_thread(diff, engine, workspace.base, tip, DIFF_BYTES) if tip != workspace.base else ""
        redact = self._redactor.text
        return redact(ours), redact(theirs)

    async def _finish(self, chain: Sequence[_Link], verdict: CheckVerdict) -> None:
        ended = []
        for link in chain:
            candidate, request = link.candidate, link.waiting.request
            tip = _tip_with(candidate)
            files = list(candidate.files)
            result: Json = {"kind": "landed", "detail": verdict.label, "files": [*files], "tip": tip}
            landed = TaskLanded(request.task.id, candidate.commit, tip, verdict.label, files)
            events = [*(verdict.events if link is chain[-1] else ()), landed]
            ended.append(EndedLanding(request.key, link.waiting.n, request.inputs, result, events))
        await self._journal.settle()
        # Only together: what the checks passed on is the top of the chain.
        self._journal.finish_landings(ended, _tip_with(chain[-1].candidate))
        for link in chain:
            self._settle(link.waiting)

    def _record(self, one: _Waiting, result: Json, events: Sequence[Event]) -> None:
        request = one.request
        self._journal.finish(request.key, one.n, inputs=request.inputs, result=result, events=events)
        self._settle(one)

    def _settle(self, one: _Waiting) -> None:
        one.done = True
        self._queue.remove(one)
        if not self._queue:
            self._batches = Batches()


class Batches:
    """How many land together: all that wait; after a red batch half of it, after two one at a time, till none waits."""

    def __init__(self) -> None:
        self._most: int | None = None
        self._reds = 0

    def next(self, waiting: Sequence[_Waiting]) -> Sequence[_Waiting]:
        # What a person accepts unchecked lands alone: at the top of a chain it would spare the others their checks.
        first = next((n for n, one in enumerate(waiting) if one.request.waived), len(waiting))
        return waiting[: max(first, 1)][: self._most]

    def was_red(self, size: int) -> None:
        self._reds += 1
        self._most = 1 if self._reds >= 2 else size // 2


def _tip_with(candidate: Candidate) -> str:
    return candidate.commit if candidate.kind is Landing.MERGED else candidate.tip


def _landed(result: Json) -> tuple[Landed, str]:
    assert isinstance(result, dict)
    files = result["files"]
    assert isinstance(files, list)
    paths = tuple(str(path) for path in files)
    ours, theirs = str(result.get("ours") or ""), str(result.get("theirs") or "")
    return Landed(str(result["kind"]), str(result["detail"]), paths, ours, theirs), str(result["tip"])
