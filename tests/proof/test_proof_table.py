"""The proof against honest work and against cheats: each a small change of a real repository, run on real trees."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

import pytest

from proof_bench import Case, ProofBench
from proof_cases import BASE, CHEATS, HONEST, PROGRAMS, UNDETECTED
from windlass.proof.facts import REFUSED, Proof

pytestmark = pytest.mark.long

NOT_PROVED = {*REFUSED, Proof.WEAK}

#: each case runs real test programs several times: `make proofs` judges all of them, other runs every third
STEP = 1 if os.environ.get("WINDLASS_PROOFS") == "all" else 3


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProofBench]:
    bench = ProofBench(tmp_path_factory.mktemp("proof"), BASE, PROGRAMS)
    yield bench
    bench.close()


def named(cases: list[Case]) -> list[object]:
    return [pytest.param(case, id=case.name) for case in cases]


def verdict(bench: ProofBench, case: Case) -> str:
    found = bench.prove(case, timeout=2.0 if case.name == "red by not ending" else 20.0)
    assert found.reason
    assert found.proof in case.expect.split("|"), f"{found}\n{bench.ran}\n{bench.output[-3000:]}"
    return found.proof


@pytest.mark.parametrize("case", named(CHEATS[::STEP]))
def test_a_cheat_is_not_proved(bench: ProofBench, case: Case) -> None:
    assert verdict(bench, case) in NOT_PROVED


@pytest.mark.parametrize("case", named(HONEST[::STEP]))
def test_honest_work_passes(bench: ProofBench, case: Case) -> None:
    assert verdict(bench, case) not in NOT_PROVED


@pytest.mark.parametrize("case", named(UNDETECTED))
def test_what_cannot_be_detected_is_known(bench: ProofBench, case: Case) -> None:
    assert case.why
    assert verdict(bench, case) == Proof.PROVED


def test_the_table_is_as_large_as_it_says() -> None:
    names = [case.name for case in (*CHEATS, *HONEST, *UNDETECTED)]
    assert len(set(names)) == len(names)
    assert len(CHEATS) >= 54
    assert len(CHEATS) + len(UNDETECTED) >= 58
    assert len(HONEST) >= 37


# -- another language


NODE = 'import { test } from "node:test";\nimport assert from "node:assert";\nimport { half } from "../src/calc.mjs";\n'
HALF = "export function half(n) { return Math.floor(n / 2) }\n"
TEST_HALF = NODE + 'test("half", () => assert.equal(half(8), 4));\n'
EXACT = HALF.replace("Math.floor(n / 2)", "n / 2")
NODE_BASE = {"src/calc.mjs": HALF, "test/calc.test.mjs": TEST_HALF}
ODD = NODE + 'test("odd", () => assert.equal(half(3), 1.5));\n'
SKIPPED = TEST_HALF.replace("test(", "test.skip(")
NOTHING = NODE + 'test("half", () => {});\n'
BROKEN = {"src/calc.mjs": EXACT.replace("n / 2", "n"), "test/calc.test.mjs": TEST_HALF.replace("4)", "8)")}
NODE_CASES = [
    Case("a bug fix", "proved", {"src/calc.mjs": EXACT, "test/odd.test.mjs": ODD}),
    Case("a test that cannot fail", "unproved", {"src/calc.mjs": EXACT, "test/odd.test.mjs": NOTHING}),
    Case("an old test is skipped", "weakened", {"src/calc.mjs": EXACT, "test/calc.test.mjs": SKIPPED}),
    Case("an old test is empty", "weakened", {"src/calc.mjs": EXACT, "test/calc.test.mjs": NOTHING}),
    Case("an old test is gone", "weakened", {"src/calc.mjs": EXACT, "test/calc.test.mjs": ODD}),
    Case("an old test expects what broke", "expectation changed", BROKEN),
]


@pytest.fixture(scope="module")
def node_bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProofBench]:
    bench = ProofBench(tmp_path_factory.mktemp("node"), NODE_BASE, runner="node")
    yield bench
    bench.close()


@pytest.mark.skipif(shutil.which("node") is None, reason="there is no node here")
@pytest.mark.parametrize("case", named(NODE_CASES))
def test_node_s_own_runner_is_judged_by_the_same_rules(node_bench: ProofBench, case: Case) -> None:
    assert node_bench.prove(case).proof == case.expect
