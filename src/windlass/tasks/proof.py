"""The proof before a task lands: its tests fail without its code and pass with it. Windlass runs them itself."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from windlass.checks.junit import Status
from windlass.checks.reports import reports
from windlass.checks.test_files import HARNESS_GLOBS, MODULE_GLOBS, TEST_GLOBS, Names
from windlass.config.schema import Config, TestSettings
from windlass.dispatch.site import ProofRoom, Site
from windlass.dispatch.workspace import Workspace
from windlass.engine.journal import Journal
from windlass.engine.values import RunValues
from windlass.events import Event, LandingRefused, TaskProved
from windlass.git.engine_repo import EngineRepo
from windlass.model import Choice, Json, Key, Question, Task, digest
from windlass.proof.facts import Declaration, Proof, ProofTree, ProofVerdict, TestRun
from windlass.proof.rules import judge, possible_trees, shuffle_trees
from windlass.proof.trees import Trees, counts_every_file, gather_facts
from windlass.tasks.checker import Checker

MOST_IDS = 50
"""How many test ids are stored with a verdict."""
SPARE_S = 20.0
"""Runs that may hang get ten times the head's time, and never less than this."""
FIRST_S = 60.0
"""The limit of such a run before the head's time is known."""
NO_SETUP = (
    "Proofs run in slots in which no agent works. If the tests need installed packages, name them in workspace.setup."
)
UNCHECKED = "tests.run_files is not configured: that the tests were red without the code was not proved"


class ProofResult(Struct, frozen=True):
    ok: bool
    proof: Proof
    detail: str = ""
    """For the fixer."""
    ask: bool = False
    """A person decides, according to `tests.absent` or `tests.weak`."""


class Prover:
    def __init__(
        self,
        site: Site,
        journal: Journal,
        values: RunValues,
        config: Config,
        engine: EngineRepo,
        checker: Checker,
    ) -> None:
        self._site = site
        self._journal = journal
        self._values = values
        self._config = config
        self._engine = engine
        self._checker = checker

    async def prove(self, key: Key, landing: Key, task: Task, workspace: Workspace) -> ProofResult:
        """Recorded, as is every run of the tests: a driver that dies in between repeats none of them."""
        inputs: Json = {"task": task.id, "tree": workspace.tree, "tdd": task.tdd}
        row = self._journal.find(key, inputs)
        if row is not None:
            result = row.result
        elif self._values.flow.tdd == "off" or self._journal.recorded(landing):
            # A task that landed or was refused without a proof does not get one because the configuration changed.
            self._journal.pass_over(key)
            return ProofResult(True, Proof.UNCHECKED)
        elif self._config.tests.run_files is None:
            event = TaskProved(task.id, Proof.UNCHECKED, True, UNCHECKED, "", {}, {})
            self._journal.emit(f"{landing}/proof", event)
            self._journal.pass_over(key)
            return ProofResult(True, Proof.UNCHECKED)
        else:
            look, events = partial(self._look, key, task, workspace), partial(_events, task)
            result = await self._journal.step(key, inputs, look, events=events)
        self._journal.pass_over(key)
        assert isinstance(result, dict)
        proof = Proof(str(result["proof"]))
        return ProofResult(result["ok"] is True, proof, evidence_text(result), ask=result["ask"] is True)

    async def _look(self, key: Key, task: Task, workspace: Workspace, previous: Json) -> Json:
        trees = await asyncio.to_thread(self._trees, workspace)
        facts = await asyncio.to_thread(
            gather_facts,
            trees,
            Declaration(task.tdd or ("preserve" if self._values.flow.tdd == "preserve" else "")),
            known=self._checker.known,
            allowed=frozenset(task.files),
            coarse=not reports(self._config.tests.run_files or ()),
        )
        room = self._site.proof_room(key.text, trees)
        every = counts_every_file(trees, facts.declared, facts.known)
        bench = _ProofRuns(self._journal, self._config.tests, room, key, trees, every=every)
        answer = judge(facts)
        waiting = await self._shuffle(key, possible_trees(facts)) if isinstance(answer, ProofTree) else []
        try:
            while isinstance(answer, ProofTree):
                tree = waiting.pop() if waiting else answer
                facts = facts.with_run(tree, await bench.run(tree, facts.runs.get(ProofTree.HEAD)))
                answer = judge(facts)
        finally:
            await room.release()
        head = facts.runs.get(ProofTree.HEAD)
        if not answer.ok and head and head.tests is None and not head.green and not self._config.workspace.setup:
            # Tests that ran in an agent's slot may need packages that only the agent installed.
            answer = replace(answer, reason=f"{answer.reason}\n{NO_SETUP}")
        return {
            **_json(answer, self._config.tests),
            "command": bench.command,
            "trees": {tree.value: bench.made[tree.value] for tree in MEANING if tree.value in bench.made},
            "runs": {tree.value: _count(facts.runs[tree]) for tree in MEANING if tree in facts.runs},
        }

    async def _shuffle(self, key: Key, trees: Sequence[ProofTree]) -> list[ProofTree]:
        """In an order that no test can predict, and that another driver repeats."""

        async def draw(previous: Json) -> Json:
            return repr(self._journal.store.clock())

        seed = await self._journal.step(key.child("order"), {"trees": [tree.value for tree in trees]}, draw)
        return shuffle_trees(trees, str(seed))

    def _trees(self, workspace: Workspace) -> Trees:
        engine, tests = self._engine, self._config.tests
        tip = self._journal.tips.now
        # Commits that were merged into the head meanwhile belong to other tasks.
        base = engine.git("merge-base", tip, workspace.head, check=False).line if tip else ""
        names = Names(tests.globs or TEST_GLOBS, tests.modules or MODULE_GLOBS, (*HARNESS_GLOBS, *tests.harness))
        return Trees(engine, base or workspace.base, workspace.head, names)


class _ProofRuns:
    """Runs the tests of one proof, each recorded and remembered."""

    def __init__(
        self, journal: Journal, tests: TestSettings, room: ProofRoom, key: Key, trees: Trees, *, every: bool
    ) -> None:
        self._journal = journal
        self._timeout = tests.timeout
        self._room = room
        self._key = key
        self._trees = trees
        self._every = every
        self.command = " ".join(tests.run_files or ())
        self.made: dict[str, Json] = {}

    async def run(self, tree: ProofTree, head: TestRun | None) -> TestRun:
        files = self._trees.files(tree, every=self._every)
        sha = await asyncio.to_thread(self._trees.make, tree)
        self.made[tree.value] = sha
        if not files:
            return TestRun()
        inputs: Json = {"tree": sha, "files": list(files), "command": self.command}
        # A part of the key, so that other files or another command are another run, not a contradiction.
        step = self._key.child(f"{tree.value}.{digest(inputs)[:12]}")

        async def perform(previous: Json) -> Json:
            setup, checks = await self._room.setup_hash(), self._journal.store.checks
            name = f"proof: {self.command}\n{' '.join(files)}"
            seen = checks.get(sha, name, setup) if tree is not ProofTree.AGAIN else None
            if seen is not None:
                return seen
            ran = await self._run_limited(tree, sha, files, head)
            # A failure may be the machine's fault today; only a pass is cached.
            if ran.green:
                checks.put(self._journal.claim, sha, name, setup, _ran_json(ran))
            return _ran_json(ran)

        data = await self._journal.step(step, inputs, perform)
        assert isinstance(data, dict)
        tests, code = data["tests"], data["code"]
        found = {id: Status(str(status)) for id, status in tests.items()} if isinstance(tests, dict) else None
        number = code if isinstance(code, int) else None
        return TestRun(found, number, data["timed_out"] is True, float(str(data["seconds"])), str(data["tail"]))

    async def _run_limited(self, tree: ProofTree, sha: str, files: Sequence[str], head: TestRun | None) -> TestRun:
        """With old or hollow code a test may wait for ever."""
        if tree not in (ProofTree.OLD, ProofTree.AGAIN, ProofTree.HOLLOW, ProofTree.SHALLOW):
            return await self._room.run_tests(sha, files, None)
        if head is None:
            ran = await self._room.run_tests(sha, files, FIRST_S)
            if not ran.timed_out or self._timeout <= FIRST_S:
                return ran
            whole = self._trees.make(ProofTree.HEAD), self._trees.files(ProofTree.HEAD, every=self._every)
            head = await self._room.run_tests(*whole, None)
        return await self._room.run_tests(sha, files, max(SPARE_S, 10 * head.seconds))


def proof_question(proven: ProofResult, task: Task, cycle: int) -> Question:
    name = proven.proof.value
    return Question(
        id=f"{name}{cycle if cycle > 1 else ''}",
        text=f"{task.title}: {QUESTIONS[proven.proof]} Is that proof enough?",
        options=(
            Choice("accept", "Accept", f"the task lands, its proof is called '{name}'"),
            Choice("refuse", "Refuse", "the task goes back as unproved"),
        ),
        detail=proven.detail,
        task=task.id,
    )


QUESTIONS = {
    Proof.ABSENT: "its new tests were red only because there was nothing to load.",
    Proof.WEAK: "it could not be shown that its new tests ask something of the code.",
}


# -- helpers


def _ran_json(ran: TestRun) -> dict[str, Json]:
    tests: Json = None if ran.tests is None else {id: status.value for id, status in ran.tests.items()}
    seconds = round(ran.seconds, 3)
    return {"tests": tests, "code": ran.code, "timed_out": ran.timed_out, "seconds": seconds, "tail": ran.tail}


def _json(verdict: ProofVerdict, tests: TestSettings) -> dict[str, Json]:
    policy = {Proof.ABSENT: tests.absent, Proof.WEAK: tests.weak}.get(verdict.proof, "")
    cut: dict[str, Json] = {name: list(ids[:MOST_IDS]) for name, ids in verdict.tests.items()}
    ok = verdict.ok and policy != "refuse"
    return {
        "proof": verdict.proof.value,
        "reason": verdict.reason,
        "tests": cut,
        "ok": ok,
        "ask": policy == "ask",
    }


def _count(ran: TestRun) -> Json:
    if ran.tests is None:
        return "timed out" if ran.timed_out else f"exit code {ran.code}"
    return {status.value: len(ran.with_status(status)) for status in Status if ran.with_status(status)}


def evidence_text(result: Mapping[str, Json]) -> str:
    """The verdict and its evidence, for a fixer and for a person."""
    lines = [f"{result['proof']}: {result['reason']}"]
    if result["command"] and result["trees"]:
        lines.append(f"Run with: {result['command']}")
    runs = result["runs"]
    for name, count in runs.items() if isinstance(runs, dict) else ():
        text = str(count)
        if isinstance(count, dict):
            text = ", ".join(f"{number} {status}" for status, number in count.items()) or "no tests"
        lines.append(f"- {MEANING[ProofTree(name)]}: {text}")
    return "\n".join(lines)


MEANING = {
    ProofTree.HEAD: "with the task",
    ProofTree.BASE: "before the task",
    ProofTree.WITH_OLD_TESTS: "the task's code with the tests as they were before",
    ProofTree.OLD: "the task's tests without its code",
    ProofTree.AGAIN: "the same once more",
    ProofTree.HOLLOW: "the task's tests with the changed bodies hollowed out",
    ProofTree.SHALLOW: "the same with what runs while modules are loaded",
    ProofTree.RESPELLED: "the task's tests with its code in other words",
}


def _events(task: Task, result: Json) -> list[Event]:
    assert isinstance(result, dict)
    trees, tests = result["trees"], result["tests"]
    assert isinstance(trees, dict)
    assert isinstance(tests, dict)
    ok = result["ok"] is True
    words = str(result["proof"]), ok, str(result["reason"])[:2000], str(result["command"])
    refused: list[Event] = [] if ok else [LandingRefused(task.id, "unproved", evidence_text(result)[:2000], [])]
    return [TaskProved(task.id, *words, trees, tests), *refused]
