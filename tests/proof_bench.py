"""Proves changes of a small repository as the engine does: the same trees, slots and rules, real runners."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gitrepo import make_engine
from windlass.checks.reports import read_report
from windlass.checks.test_files import Names
from windlass.git.engine_repo import EngineRepo
from windlass.git.proof_slot import ProofSlot
from windlass.git.trees import commit_tree, restaged_tree
from windlass.proof.facts import Declaration, ProofFacts, ProofTree, ProofVerdict, TestRun
from windlass.proof.rules import judge, possible_trees, shuffle_trees
from windlass.proof.trees import Trees, counts_every_file, gather_facts

GONE = "0 " + "0" * 40


@dataclass(frozen=True)
class Case:
    """A change, and what the proof says of it."""

    name: str
    expect: str
    """One verdict, or several with `|` between them where it depends on how much can be hollowed out."""
    files: Mapping[str, str] = field(default_factory=dict)
    delete: tuple[str, ...] = ()
    tdd: str = ""
    plan_files: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()
    """Which of the files may be run."""
    head_first: bool = False
    """The order that suits a test which counts its runs; else it is drawn, by the case's name."""
    why: str = ""
    """Why it cannot be detected."""


class ProofBench:
    """One repository, one slot; every change starts at the same base."""

    def __init__(
        self, tmp: Path, base: Mapping[str, str], programs: tuple[str, ...] = (), runner: str = "pytest"
    ) -> None:
        self.tmp = tmp
        self.runner = runner
        self.engine: EngineRepo = make_engine(tmp, {"README.md": "hello\n"})
        tree = self._tree(self.engine.user.head, base, (), programs)
        self.base = commit_tree(self.engine, tree, [self.engine.user.head], "base", 1.0)
        self.slot = ProofSlot.take(self.engine)
        self.slot.check_out(self.engine.objects.tree_of(self.base))
        self.slot.remember("", 1_700_000_000.0)
        self.report = tmp / "run" / "junit.xml"
        self.report.parent.mkdir()
        (tmp / "home").mkdir()
        self._server: subprocess.Popen[str] | None = None
        self.ran: list[ProofTree] = []

    def close(self) -> None:
        self.slot.release()
        if self._server is not None:
            assert self._server.stdin is not None
            self._server.stdin.close()
            self._server.wait()
            assert self._server.stdout is not None
            self._server.stdout.close()

    @property
    def output(self) -> str:
        """What the last run wrote."""
        path = self.report.with_name("output")
        return path.read_text(errors="replace") if path.exists() else ""

    def prove(self, case: Case, *, timeout: float = 20.0) -> ProofVerdict:
        self.ran = []
        trees = self._trees(case)
        declared = Declaration(case.tdd)
        allowed = frozenset(case.plan_files)
        facts = gather_facts(trees, declared, known=frozenset(), allowed=allowed, coarse=False)
        answer = judge(facts)
        possible = possible_trees(facts)
        waiting = list(possible)[::-1] if case.head_first else shuffle_trees(possible, case.name)
        while isinstance(answer, ProofTree):
            tree = waiting.pop() if waiting else answer
            facts = facts.with_run(tree, self._run(trees, tree, facts, timeout))
            answer = judge(facts)
        return answer

    def _trees(self, case: Case) -> Trees:
        tree = self._tree(self.base, case.files, case.delete, case.programs)
        head = commit_tree(self.engine, tree, [self.base], "work", 2.0)
        return Trees(self.engine, self.base, head, Names())

    def _tree(self, onto: str, files: Mapping[str, str], delete: tuple[str, ...], programs: tuple[str, ...]) -> str:
        entries = dict.fromkeys(delete, GONE)
        for path, text in files.items():
            blob = self.engine.git("hash-object", "-w", "--stdin", input=text).line
            entries[path] = f"{'100755' if path in programs else '100644'} {blob}"
        return restaged_tree(self.engine, onto, entries)

    def _run(self, trees: Trees, tree: ProofTree, facts: ProofFacts, timeout: float) -> TestRun:
        files = trees.files(tree, every=counts_every_file(trees, facts.declared, facts.known))
        sha = trees.make(tree)
        self.ran.append(tree)
        if not files:
            return TestRun()
        assert self.slot.check_out(sha, trees.paths)
        self.report.unlink(missing_ok=True)
        env = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.tmp / "home"),
            "TMPDIR": str(self.slot.temporary),
            "CI": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "WINDLASS_ATTEMPT": "r1:run",
        }
        ended = self._pytest(files, env, timeout) if self.runner == "pytest" else self._node(files, env, timeout)
        return TestRun(read_report(self.report, self.slot.slot.path), *ended)

    def _pytest(self, files: tuple[str, ...], env: dict[str, str], timeout: float) -> tuple[int | None, bool, float]:
        args = ["-q", "-p", "no:cacheprovider", f"--junitxml={self.report}", *files]
        output = str(self.report.with_name("output"))
        job = {"cwd": str(self.slot.slot.path), "args": args, "env": env, "timeout": timeout, "output": output}
        if self._server is None:
            program = Path(__file__).with_name("pytest_forks.py")
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
            self._server = subprocess.Popen(
                [sys.executable, str(program)], text=True, env={**os.environ, **env}, **pipes
            )  # type: ignore[call-overload]
        server = self._server
        assert server is not None
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write(json.dumps(job) + "\n")
        server.stdin.flush()
        ended = json.loads(server.stdout.readline())
        return ended["code"], ended["timed_out"], ended["seconds"]

    def _node(self, files: tuple[str, ...], env: dict[str, str], timeout: float) -> tuple[int | None, bool, float]:
        reporting = ["--test-reporter=junit", f"--test-reporter-destination={self.report}"]
        done = subprocess.run(
            ["node", "--test", *reporting, *files],
            cwd=self.slot.slot.path,
            env=env,
            capture_output=True,
            timeout=timeout,
            check=False,
        )
        return done.returncode, False, 0.0
