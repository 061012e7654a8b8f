"""The proof against honest work and against cheats: each a small change of a real repository, run on real trees."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from proof_bench import Case, ProofBench
from proof_cases import BASE, CHEATS, HONEST, PROGRAMS, UNDETECTED
from windlass.tdd.facts import REFUSED, Proof

NOT_PROVED = {*REFUSED, Proof.WEAK}


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
    assert found.proof == case.expect, f"{found}\n{bench.ran}\n{(bench.report.with_name('output')).read_text()[-3000:]}"
    return found.proof


@pytest.mark.parametrize("case", named(CHEATS))
def test_a_cheat_is_not_proved(bench: ProofBench, case: Case) -> None:
    assert verdict(bench, case) in NOT_PROVED


@pytest.mark.parametrize("case", named(HONEST))
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
