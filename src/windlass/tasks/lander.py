"""Lands tasks: joins their commits with the tip, checks the result, and makes it the new tip.

Tasks that are ready at the same time land as one chain, which is checked once, at its top.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from msgspec import Struct

from windlass.dispatch.site import SiteAddress
from windlass.dispatch.workspace import Workspace
from windlass.engine.attempts import EndedLanding
from windlass.engine.journal import Journal
from windlass.engine.services import StopRequests
from windlass.engine.tip import Tip
from windlass.engine.values import RunValues
from windlass.errors import GitLockError
from windlass.events import BranchPublished, Event, LandingRefused, TaskLanded, Warned
from windlass.git import merge
from windlass.git.engine_repo import EngineRepo
from windlass.git.merge import (
    CONTENTS,
    Candidate,
    Conflict,
    Joined,
    Landing,
    OpenConflicts,
    carry_conflicts,
    describe,
    in_tree,
    paths_of,
)
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
"""The branch only shows landed work: during many landings it does not show every step."""


class LandingRequest(Struct, frozen=True):
    """A task's work to land on the tip."""

    key: Key
    task: Task
    workspace: Workspace
    place: int
    """The task's position in the plan: waiting tasks land in that order."""
    checked: bool
    waived: bool = False
    """A person accepts it unchanged."""

    @property
    def inputs(self) -> Json:
        return {"task": self.task.id, "tree": self.workspace.tree}


class _Waiting(Struct, eq=False):
    request: LandingRequest
    n: int
    """The number of the attempt."""
    date: float
    done: bool = False


class _Link(Struct, frozen=True):
    """A candidate in a chain; its tip is the candidate before it."""

    waiting: _Waiting
    candidate: Candidate


class Lander:
    """One per run. The first landing that finds it free lands all waiting ones, as one chain."""

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
        self._tip = tip
        self._checker = checker
        self._requests = requests
        self._redactor = redactor
        self._address = address
        self._free = asyncio.Condition()
        self._queue: list[_Waiting] = []
        self._batches = Batches()
        self.branch = RunBranch(journal, engine, tip, values)
        self.turns: list[str] = []
        """Tasks that land in this order; each waits for those before it."""

    async def land(self, request: LandingRequest) -> tuple[Landed, str]:
        """The result of the landing, and the tip to continue from."""
        key, attempts, address = request.key, self._journal.attempts, self._address
        row = self._journal.find(key, request.inputs)
        try:
            if row is None:
                self._requests.check()
                n, earlier = attempts.next(key), attempts.all(key)
                base = request.workspace.head
                intent = Intent(key.text, n, f"attempts/{key}/@{n}", address.host, address.boot, base=base)
                # An intent lost in a power cut is made again: commits that the tip contains do not land twice.
                attempts.begin(intent, synced=False)
                # The first attempt's date stays the date of the commit, so a repeated landing makes the same one.
                first = earlier[0] if earlier else attempts.all(key)[0]
                await self._wait_in_line(_Waiting(request, n, float(int(first.started_at))))
                row = self._journal.find(key, request.inputs)
        finally:
            await self.give_up_turn(request.task.id)
        assert row is not None
        result = row.result
        assert isinstance(result, dict)
        files = result["files"]
        assert isinstance(files, list)
        paths = tuple(str(path) for path in files)
        ours, theirs = str(result.get("ours") or ""), str(result.get("theirs") or "")
        return Landed(str(result["kind"]), str(result["detail"]), paths, ours, theirs), str(result["tip"])

    async def give_up_turn(self, task: str) -> None:
        if task in self.turns:
            self.turns.remove(task)
            async with self._free:
                self._free.notify_all()

    async def _wait_in_line(self, mine: _Waiting) -> None:
        self._queue.append(mine)
        try:
            async with self._free:
                while not mine.done:
                    # A landing that becomes ready at this moment joins the same chain.
                    await asyncio.sleep(0)
                    batch = self._batches.next(self._in_turn())
                    if not batch:
                        await self._free.wait()
                        continue
                    self._requests.check()
                    await self._land(batch)
                    self._free.notify_all()
        finally:
            if mine in self._queue:
                self._queue.remove(mine)

    def _in_turn(self) -> list[_Waiting]:
        """In the plan's order; with turns, none before the tasks with an earlier turn."""
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
        """Record their results. A landing without a record keeps waiting."""
        chain = await self._chain(batch)
        if not chain:
            return
        top = chain[-1]
        request, candidate = top.waiting.request, top.candidate
        if request.waived or not request.checked:
            verdict = CheckVerdict(True, "accepted" if request.waived else "unchecked")
        else:
            verdict = await self._checker.check(request.key, request.workspace, candidate.commit, candidate.tree)
        if verdict.ok:
            await self._finish(chain, verdict)
            await self._tip.show()
            await self.branch.publish_meanwhile()
        elif len(chain) > 1:
            self._batches.note_failure(len(chain))
        else:
            await self._refuse(top.waiting, "red", verdict.output, candidate, verdict.events)

    async def _chain(self, batch: Sequence[_Waiting]) -> list[_Link]:
        chain: list[_Link] = []
        for one in batch:
            tip = chain[-1].candidate.commit if chain else self._tip.now
            found = await self._candidate(one, tip)
            if found.kind is Landing.MERGED:
                chain.append(_Link(one, found))
            elif found.kind is Landing.ALREADY:
                # A chain that has not landed yet may contain it while the tip does not: then it waits for the chain.
                found = await self._candidate(one, self._tip.now) if chain else found
                if found.kind is Landing.ALREADY:
                    passed = one.request.checked and self._checker.configured
                    await self._finish([_Link(one, found)], CheckVerdict(True, "passed" if passed else "unchecked"))
            elif not chain:
                await self._refuse(one, "conflict", found.reason, found, ())
            # A conflict with a task that is only about to land is checked again after that landing.
        return chain

    async def _candidate(self, one: _Waiting, tip: str) -> Candidate:
        workspace, task = one.request.workspace, one.request.task
        left = await workspace.unresolved()
        if left:
            reason = f"{UNRESOLVED}\n{describe(left)}"
            return Candidate(Landing.CONFLICT, "", "", tip, paths_of(left), reason)
        return await merge.candidate(self._engine, tip, task.id, task.title, workspace.head, one.date)

    async def _refuse(
        self, one: _Waiting, why: str, detail: str, candidate: Candidate, events: tuple[Event, ...]
    ) -> None:
        request, files, tip = one.request, list(candidate.files), self._tip.now
        engine, base, redact = self._engine, request.workspace.base, self._redactor.text
        ours = await asyncio.to_thread(diff, engine, base, request.workspace.head, DIFF_BYTES)
        theirs = await asyncio.to_thread(diff, engine, base, tip, DIFF_BYTES) if tip != base else ""
        result: Json = {
            "kind": why,
            "detail": detail,
            "files": [*files],
            "tip": candidate.tip,
            "ours": redact(ours),
            "theirs": redact(theirs),
        }
        refused = LandingRefused(request.task.id, why, detail[-2000:], files)
        self._journal.attempts.finish(
            request.key, one.n, inputs=request.inputs, result=result, events=[*events, refused]
        )
        self._settle(one)

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
        # Only together: the checks passed on the top of the chain.
        self._journal.attempts.finish_landings(ended, _tip_with(chain[-1].candidate))
        for link in chain:
            self._settle(link.waiting)

    def _settle(self, one: _Waiting) -> None:
        one.done = True
        self._queue.remove(one)
        if not self._queue:
            self._batches = Batches()


class RunBranch:
    """Shows the landed work as the run's branch. Tasks do not wait for it."""

    def __init__(self, journal: Journal, engine: EngineRepo, tip: Tip, values: RunValues) -> None:
        self._journal = journal
        self._engine = engine
        self._tip = tip
        self._values = values
        self._publishing: asyncio.Task[None] | None = None
        self._hurry = asyncio.Event()
        """Set when a caller waits for the publication."""
        self._locked: GitLockError | None = None
        """Why the branch could not be moved."""

    async def publish(self) -> None:
        await self._wait_until_published()
        await self._publish()

    async def publish_meanwhile(self) -> None:
        if self._publishing is None or self._publishing.done():
            await self._wait_until_published()
            self._publishing = asyncio.create_task(self._publish())
        if self._values.in_place:
            # The user's checkout must not move during a dispatch, which is watched for touching it.
            await self._wait_until_published()

    async def close(self) -> None:
        """Leaves an unfinished publication as it is."""
        if self._publishing is not None:
            self._publishing.cancel()
            await asyncio.gather(self._publishing, return_exceptions=True)

    def require_published(self) -> None:
        """At the end of a run: a remaining lock stops it, and a resume publishes the rest."""
        if self._locked:
            raise self._locked

    async def _wait_until_published(self) -> None:
        if self._publishing is not None:
            publishing, self._publishing = self._publishing, None
            self._hurry.set()
            await publishing
            self._hurry.clear()

    async def _publish(self) -> None:
        """Move the run's branch to the tip. The next landing repeats a failed move."""
        values, journal, engine, facts = self._values, self._journal, self._engine, self._values.facts
        tried = ""
        while (tip := self._tip.now) not in ("", tried, values.published_tip):
            if tip == facts.base and not values.published_tip:
                # Nothing has landed. After a reset of the code, a branch that was shown goes back to the base.
                return
            tried = tip
            try:
                if values.in_place:
                    await asyncio.to_thread(follow, engine, facts.id, facts.branch, tip)
                branch, last = values.branch or facts.branch, values.published_tip
                done = await asyncio.to_thread(publish, engine, facts.id, branch, tip, last)
                values.published_tip, values.branch = done.commit, done.branch
                published = BranchPublished(done.branch, done.commit, done.note, tip)
                with journal.writing("publish", published, synced=False):
                    pass
            except GitLockError as error:
                # Only the branch waits for it: tasks continue, and the next landing tries again.
                journal.emit("publish", Warned("branch", f"{error.message}; {error.hint}"))
                self._locked = error
                return
            self._locked = None
            with suppress(TimeoutError):
                async with asyncio.timeout(PUBLISH_PAUSE_S):
                    await self._hurry.wait()


class Batches:
    """How many land together: all that wait. After a failed batch half of it, after two single ones, until none
    waits."""

    def __init__(self) -> None:
        self._most: int | None = None
        self._reds = 0

    def next(self, waiting: Sequence[_Waiting]) -> Sequence[_Waiting]:
        # A landing that a person accepted unchecked lands alone: at the top of a chain, it would land the others
        # unchecked.
        first = next((n for n, one in enumerate(waiting) if one.request.waived), len(waiting))
        return waiting[: max(first, 1)][: self._most]

    def note_failure(self, size: int) -> None:
        self._reds += 1
        self._most = 1 if self._reds >= 2 else size // 2


def _tip_with(candidate: Candidate) -> str:
    return candidate.commit if candidate.kind is Landing.MERGED else candidate.tip


async def catch_up(journal: Journal, engine: EngineRepo, key: Key, task: Task, workspace: Workspace) -> None:
    """Merge the landed work into the work of a task that could not land, once for each key.

    After that the workspace's base is that tip, so that only the task's own changes count as changed.
    """

    async def join(previous: Json) -> Json:
        tip, date = journal.tips.now, float(int(journal.store.clock()))
        left = await workspace.unresolved()
        joined = await asyncio.to_thread(merge.join, engine, workspace.head, tip, task.id, date)
        workspace.hold(f"{key}/@1", joined.commit)
        paths: list[Json] = [*paths_of(joined.conflicts)]
        still_open = _open_conflicts(engine, workspace, left, joined, tip).to_json()
        return {"head": joined.commit, "tip": tip, "conflicts": paths, "open": still_open}

    found = await journal.step(key, {"tree": workspace.tree}, join)
    assert isinstance(found, dict)
    head, tip = str(found["head"]), str(found["tip"])
    if "open" in found:
        workspace.conflicts = OpenConflicts.from_json(found["open"])
    else:
        # An earlier version recorded only the names of the files.
        paths = found["conflicts"]
        assert isinstance(paths, list)
        named = [Conflict((CONTENTS,), (str(path),)) for path in paths]
        joined = Joined(head, in_tree(engine.objects, engine.objects.tree_of(head), named))
        workspace.conflicts = _open_conflicts(engine, workspace, await workspace.unresolved(), joined, tip)
    workspace.base, workspace.resolved_paths = tip, frozenset()
    workspace.move(head)
    workspace.changed = await workspace.files_since_base()


def _open_conflicts(
    engine: EngineRepo, workspace: Workspace, left: tuple[Conflict, ...], joined: Joined, tip: str
) -> OpenConflicts:
    """The conflicts that are still open, with the entries of the joined tree, and those of this join."""
    labels = (workspace.head, tip) if joined.conflicts else ()
    kept = carry_conflicts(engine.objects, engine.objects.tree_of(joined.commit), left)
    conflicts = dict.fromkeys((*kept, *joined.conflicts))
    return OpenConflicts(tuple(conflicts), tuple(dict.fromkeys((*workspace.conflicts.labels, *labels))))
