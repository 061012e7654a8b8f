"""Before a task lands: were its tests red without its code, and are they green with it? Run, not believed."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from windlass.checks import Check, read_end, tail_of
from windlass.engine.checking import Checker
from windlass.engine.desk import Desk
from windlass.engine.parts import Parts
from windlass.events import Event, LandingRefused, TaskProved
from windlass.model import Choice, Json, Key, Question, Task, digest
from windlass.tdd import HARNESS_GLOBS, MODULE_GLOBS, TEST_GLOBS, Names
from windlass.tdd.facts import Declared, Facts, Proof, Ran, Tree, Verdict
from windlass.tdd.junit import Status
from windlass.tdd.reports import expand, names_report, read_report, reports
from windlass.tdd.rules import judge
from windlass.tdd.trees import Trees
from windlass.workspace import Slot, commit_tree, leftovers

MOST_IDS = 50
"""So many test ids are kept with a verdict."""
SPARE_S = 20.0
"""Runs that may hang get ten times what the head took, and never less than this."""
UNCHECKED = "tests.run_files is not configured: that the tests were red without the code was not proved"


@dataclass(frozen=True)
class Proven:
    ok: bool
    proof: Proof
    detail: str = ""
    """For whoever mends it."""
    ask: bool = False
    """A person decides, says `tests.absent`."""


class Prover:
    def __init__(self, parts: Parts, checker: Checker) -> None:
        self._parts = parts
        self._checker = checker
        self._journal = parts.journal

    async def prove(self, key: Key, landing: Key, task: Task, desk: Desk) -> Proven:
        """Recorded; every run of the tests too, so that a driver that dies in between repeats none of them."""
        inputs: Json = {"task": task.id, "tree": desk.tree, "tdd": task.tdd}
        row = self._journal.find(key, inputs)
        if row is None and not self._wanted(landing, task):
            self._journal.pass_over(key)
            return Proven(True, Proof.UNCHECKED)
        result = (
            row.result
            if row
            else await self._journal.step(
                key, inputs, partial(self._look, key, task, desk), events=partial(_events, task)
            )
        )
        self._journal.pass_over(key)
        return _proven(result)

    def _wanted(self, landing: Key, task: Task) -> bool:
        # What has landed, or was refused, without a proof does not get one because the configuration changed.
        if self._parts.world.flow.tdd == "off" or self._journal.recorded(landing):
            return False
        if self._parts.config.tests.run_files is None:
            said = TaskProved(task.id, Proof.UNCHECKED, True, UNCHECKED, "", {}, {})
            self._journal.emit(f"{landing}/proof", said)
            return False
        return True

    async def _look(self, key: Key, task: Task, desk: Desk, previous: Json) -> Json:
        trees = await asyncio.to_thread(self._trees, desk)
        facts = await asyncio.to_thread(self._facts, trees, task)
        bench = _Bench(self._parts, self._checker, key, desk, trees, every=_every(facts, trees))
        try:
            while isinstance(answer := judge(facts), Tree):
                facts = facts.having(answer, await bench.run(answer, facts.runs.get(Tree.HEAD)))
        finally:
            await bench.leave()
        return {
            **_json(answer, self._parts.config.tests.absent),
            "command": bench.command,
            "trees": dict(bench.made),
            "runs": _counts(facts),
        }

    def _trees(self, desk: Desk) -> Trees:
        engine, tests = desk.engine, self._parts.config.tests
        tip = engine.own_tip(self._parts.world.facts.id)
        # What was merged into the head meanwhile is not this task's.
        base = engine.git("merge-base", tip, desk.head, check=False).line if tip else ""
        names = Names(tests.globs or TEST_GLOBS, tests.modules or MODULE_GLOBS, (*HARNESS_GLOBS, *tests.harness))
        return Trees(engine, base or desk.base, desk.head, names)

    def _facts(self, trees: Trees, task: Task) -> Facts:
        command = self._parts.config.tests.run_files or ()
        declared = _declared(self._parts.world.flow.tdd, task)
        facts = Facts(trees.changed, declared, removed=trees.removed, known=self._checker.known)
        return Facts(
            trees.changed,
            declared,
            in_base=bool(trees.files(Tree.BASE, every=_every(facts, trees))),
            removed=trees.removed,
            known=self._checker.known,
            allowed=frozenset(task.files),
            hollow=trees.hollow is not None,
            whole=trees.hollow is not None and trees.hollow.whole,
            coarse=not reports(command),
        )


class _Bench:
    """Runs the tests of one proof in the desk's slot."""

    def __init__(self, parts: Parts, checker: Checker, key: Key, desk: Desk, trees: Trees, *, every: bool) -> None:
        self._parts = parts
        self._checker = checker
        self._key = key
        self._desk = desk
        self._trees = trees
        self._every = every
        self._slot: Slot | None = None
        self._ignored: frozenset[str] = frozenset()
        """What git ignores in the slot and was there before."""
        self.command = " ".join(parts.config.tests.run_files or ())
        self.made: dict[str, Json] = {}

    async def run(self, tree: Tree, head: Ran | None) -> Ran:
        files = self._trees.files(tree, every=self._every)
        sha = await asyncio.to_thread(self._trees.make, tree)
        self.made[tree.value] = sha
        if not files:
            return Ran()
        inputs: Json = {"tree": sha, "files": list(files), "command": self.command}
        # A part of the key, so that other files or another command are another run and no contradiction.
        step = self._key.child(f"{tree.value}.{digest(inputs)[:12]}")

        async def perform(previous: Json) -> Json:
            return await self._remembered(tree, sha, files, _limit(tree, head))

        return _ran(await self._parts.journal.step(step, inputs, perform))

    async def leave(self) -> None:
        """What tests leave behind is nobody's work."""
        if self._slot is not None:
            await asyncio.to_thread(self._slot.stand_on, self._desk.head)

    async def _remembered(self, tree: Tree, sha: str, files: Sequence[str], limit: float | None) -> Json:
        slot = await self._seated()
        name = f"{self.command}\n{' '.join(files)}"
        store, setup = self._parts.store, self._checker.setup_hash(slot)
        seen = store.checked(sha, name, setup) if tree is not Tree.AGAIN else None
        if seen is not None:
            return seen
        ran = await self._perform(tree, sha, files, slot, limit)
        # Red may be this machine's fault today; only green is worth remembering.
        if ran.green:
            with store.tx():
                store.put_checked(sha, name, setup, _ran_json(ran))
        return _ran_json(ran)

    async def _seated(self) -> Slot:
        if self._slot is None:
            self._slot = await self._desk.ready(self._key.text, 0)
            self._desk.disturbed()
            self._ignored = await asyncio.to_thread(leftovers.ignored, self._slot)
        return self._slot

    async def _perform(self, tree: Tree, sha: str, files: Sequence[str], slot: Slot, limit: float | None) -> Ran:
        commit = await asyncio.to_thread(commit_tree, self._desk.engine, sha, [self._desk.head], "proof", 0.0)
        await asyncio.to_thread(self._stand_on, slot, commit)
        folder = self._parts.folder / "attempts" / self._key.text / tree.value
        report = folder / "junit.xml"
        report.unlink(missing_ok=True)
        tests = self._parts.config.tests
        command = tests.run_files or ()
        check = Check(expand(command, files, str(report)), min(tests.timeout, limit or tests.timeout))
        output = await self._checker.probe(check.argv, slot, folder, check.timeout)
        written = report if names_report(command) else output.out_path
        found = await asyncio.to_thread(read_report, written, slot.path) if reports(command) else None
        tail = self._parts.redactor.text(tail_of(read_end(output.out_path)))
        return Ran(found, output.code, output.timed_out, output.seconds, tail[-2000:])

    def _stand_on(self, slot: Slot, commit: str) -> None:
        slot.stand_on(commit)
        leftovers.remove(slot, self._could_answer, self._parts.config.workspace.copied)

    def _could_answer(self, path: str) -> bool:
        """Compiled code, or a snapshot that an earlier run wrote, would answer for the code of this tree."""
        name = path.rstrip("/")
        return name.endswith("__pycache__") or self._trees.names.is_test(path) or name not in self._ignored


def absent_question(proven: Proven, task: Task, cycle: int) -> Question:
    return Question(
        id=f"absent{cycle if cycle > 1 else ''}",
        text=f"{task.title}: its new tests were red only because there was nothing to load. Is that proof enough?",
        options=(
            Choice("accept", "Accept", "the task lands, its proof is called 'absent'"),
            Choice("refuse", "Refuse", "the task goes back as unproved"),
        ),
        detail=proven.detail,
        task=task.id,
    )


# -- inside


def _declared(flow: str, task: Task) -> Declared:
    return Declared(task.tdd or ("preserve" if flow == "preserve" else ""))


def _every(facts: Facts, trees: Trees) -> bool:
    """Whether every test file counts, not only those that changed."""
    return facts.declared is Declared.PRESERVE or bool(facts.known and not facts.changed.tests) or trees.widened


def _limit(tree: Tree, head: Ran | None) -> float | None:
    """With old or hollow code a test may wait for ever; None: as configured."""
    hangs = tree in (Tree.OLD, Tree.AGAIN, Tree.HOLLOW)
    return max(SPARE_S, 10 * head.seconds) if hangs and head else None


def _ran_json(ran: Ran) -> dict[str, Json]:
    tests: Json = None if ran.tests is None else {id: status.value for id, status in ran.tests.items()}
    seconds = round(ran.seconds, 3)
    return {"tests": tests, "code": ran.code, "timed_out": ran.timed_out, "seconds": seconds, "tail": ran.tail}


def _ran(data: Json) -> Ran:
    assert isinstance(data, dict)
    tests, code = data["tests"], data["code"]
    found = {id: Status(str(status)) for id, status in tests.items()} if isinstance(tests, dict) else None
    number = code if isinstance(code, int) else None
    return Ran(found, number, data["timed_out"] is True, float(str(data["seconds"])), str(data["tail"]))


def _json(verdict: Verdict, absent: str) -> dict[str, Json]:
    weak = verdict.proof is Proof.ABSENT
    cut: dict[str, Json] = {name: list(ids[:MOST_IDS]) for name, ids in verdict.tests.items()}
    ok = verdict.ok and not (weak and absent == "refuse")
    return {
        "proof": verdict.proof.value,
        "reason": verdict.reason,
        "tests": cut,
        "ok": ok,
        "ask": weak and absent == "ask",
    }


def _counts(facts: Facts) -> dict[str, Json]:
    return {tree.value: _count(ran) for tree, ran in facts.runs.items()}


def _count(ran: Ran) -> Json:
    if ran.tests is None:
        return "timed out" if ran.timed_out else f"exit code {ran.code}"
    return {status.value: len(ran.having(status)) for status in Status if ran.having(status)}


def _proven(result: Json) -> Proven:
    assert isinstance(result, dict)
    return Proven(result["ok"] is True, Proof(str(result["proof"])), told(result), ask=result["ask"] is True)


def told(result: Mapping[str, Json]) -> str:
    """The verdict and its evidence, for a fixer and for a person."""
    lines = [f"{result['proof']}: {result['reason']}"]
    if result["command"] and result["trees"]:
        lines.append(f"Run with: {result['command']}")
    runs = result["runs"]
    if isinstance(runs, dict):
        lines += [f"- {MEANING[Tree(name)]}: {_said(count)}" for name, count in runs.items()]
    return "\n".join(lines)


def _said(count: Json) -> str:
    if isinstance(count, dict):
        return ", ".join(f"{number} {status}" for status, number in count.items()) or "no tests"
    return str(count)


MEANING = {
    Tree.BASE: "before the task",
    Tree.HEAD: "with the task",
    Tree.OLD: "the task's tests without its code",
    Tree.AGAIN: "the same once more",
    Tree.WITH_OLD_TESTS: "the task's code with the tests as they were before",
    Tree.HOLLOW: "the task's tests with the changed bodies hollowed out",
}


def _events(task: Task, result: Json) -> list[Event]:
    assert isinstance(result, dict)
    trees, tests = result["trees"], result["tests"]
    assert isinstance(trees, dict)
    assert isinstance(tests, dict)
    ok = result["ok"] is True
    words = str(result["proof"]), ok, str(result["reason"])[:2000], str(result["command"])
    refused: list[Event] = [] if ok else [LandingRefused(task.id, "unproved", told(result)[:2000], [])]
    return [TaskProved(task.id, *words, trees, tests), *refused]
