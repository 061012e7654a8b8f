"""The proof as a pure function: from what was seen to the next tree, or the verdict."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from windlass.checks.junit import Status
from windlass.checks.test_files import ChangedFiles, Names, sort_files
from windlass.proof.claims import Comparison
from windlass.proof.facts import REFUSED, Declaration, Proof, ProofFacts, ProofTree, ProofVerdict, TestRun
from windlass.proof.rules import judge

P, F, E, S = Status.PASSED, Status.FAILED, Status.ERROR, Status.SKIPPED
B, H, O1, O2, W, X = (
    ProofTree.BASE,
    ProofTree.HEAD,
    ProofTree.OLD,
    ProofTree.AGAIN,
    ProofTree.WITH_OLD_TESTS,
    ProofTree.HOLLOW,
)
Y, R = ProofTree.SHALLOW, ProofTree.RESPELLED
CHANGED = ChangedFiles(tests=("tests/test_a.py",), code=("a.py",))
HUNG = TestRun(None, None, timed_out=True)


def ran(**tests: Status) -> TestRun:
    return TestRun(tests, 1 if {F, E} & set(tests.values()) else 0)


def seen(facts: ProofFacts, runs: dict[ProofTree, TestRun]) -> tuple[ProofVerdict, list[ProofTree]]:
    """The verdict, and the trees that had to be looked at for it."""
    asked: list[ProofTree] = []
    answer = judge(facts)
    while isinstance(answer, ProofTree):
        assert answer not in asked
        asked.append(answer)
        facts = facts.with_run(answer, runs[answer])
        answer = judge(facts)
    return answer, asked


NEW = ProofFacts(CHANGED, hollow=True)
OLD = ProofFacts(CHANGED, hollow=True, in_base=True)
KEEP = replace(OLD, declared=Declaration.PRESERVE)
RED = {H: ran(t=P), O1: ran(t=F), O2: ran(t=F), X: ran(t=F)}
# What was not loaded is missing, and the module that could not be loaded is named.
GONE = TestRun({"module": E}, 2)
TABLE: list[tuple[str, ProofFacts, dict[ProofTree, TestRun], Proof, list[ProofTree]]] = [
    ("red by running", NEW, RED, Proof.PROVED, [H, O1, O2, X]),
    ("red by running, no hollow tree", replace(NEW, hollow=False), RED, Proof.PROVED, [H, O1, O2]),
    ("red by absence", NEW, {**RED, O1: GONE, O2: GONE}, Proof.PROVED, [H, O1, O2, X]),
    ("red by absence, no X", replace(NEW, hollow=False), {**RED, O1: GONE, O2: GONE}, Proof.ABSENT, [H, O1, O2]),
    ("red by absence, hollow does not load", NEW, {**RED, O1: GONE, O2: GONE, X: GONE}, Proof.WEAK, [H, O1, O2, X]),
    ("red by running, hollow does not load", NEW, {**RED, X: GONE}, Proof.WEAK, [H, O1, O2, X]),
    ("red by running, hollow hangs", NEW, {**RED, X: HUNG}, Proof.PROVED, [H, O1, O2, X]),
    ("passes hollow", NEW, {**RED, X: ran(t=P)}, Proof.UNPROVED, [H, O1, O2, X]),
    ("passes hollow, a part is left", replace(NEW, left=("a",)), {**RED, X: ran(t=P)}, Proof.WEAK, [H, O1, O2, X]),
    ("may read it", replace(NEW, has_old_bodies=False, reads_source=True), {**RED, X: ran(t=P)},
     Proof.WEAK, [H, O1, O2, X]),
    ("an empty body may be right", replace(NEW, has_old_bodies=False), {**RED, X: ran(t=P)},
     Proof.PROVED, [H, O1, O2, X]),
    ("absent, and passes hollow", replace(NEW, has_old_bodies=False), {**RED, O1: GONE, O2: GONE, X: ran(t=P)},
     Proof.UNPROVED, [H, O1, O2, X]),
    ("hollow does not load, shallow does", replace(NEW, shallow=True), {**RED, X: GONE, Y: ran(t=F)},
     Proof.PROVED, [H, O1, O2, X, Y]),
    ("passes shallow", replace(NEW, shallow=True, left_shallow=("a",)), {**RED, X: GONE, Y: ran(t=P)},
     Proof.WEAK, [H, O1, O2, X, Y]),
    ("only put back, red by absence", replace(NEW, has_empty_bodies=False), {**RED, O1: GONE, O2: GONE},
     Proof.ABSENT, [H, O1, O2, X]),
    ("only put back, not loaded", replace(NEW, has_empty_bodies=False), {**RED, X: GONE}, Proof.PROVED, [H, O1, O2, X]),
    ("only put back, passes", replace(NEW, has_empty_bodies=False), {**RED, X: ran(t=P)},
     Proof.UNPROVED, [H, O1, O2, X]),
    ("respelled", replace(NEW, reads_source=True), {**RED, R: ran(t=P)}, Proof.PROVED, [H, O1, O2, X, R]),
    ("depends on the spelling", replace(NEW, reads_source=True), {**RED, R: ran(t=F)},
     Proof.UNPROVED, [H, O1, O2, X, R]),
    ("only imports", NEW, {**RED, O1: GONE, O2: GONE, X: ran(t=P)}, Proof.UNPROVED, [H, O1, O2, X]),
    ("no report in O1, red", NEW, {**RED, O1: TestRun(None, 4), O2: TestRun(None, 4)}, Proof.PROVED, [H, O1, O2, X]),
    ("the runner only ends red", NEW, {**RED, O1: TestRun({}, 1), O2: TestRun({}, 1)}, Proof.PROVED, [H, O1, O2, X]),
    ("no tests collected in O1", NEW, {**RED, O1: TestRun({}, 5)}, Proof.UNPROVED, [H, O1]),
    ("the command is not there", NEW, {**RED, O1: TestRun(None, 127)}, Proof.UNPROVED, [H, O1]),
    ("O1 hangs", NEW, {**RED, O1: HUNG}, Proof.UNPROVED, [H, O1]),
    ("green in O1", NEW, {**RED, O1: ran(t=P)}, Proof.UNPROVED, [H, O1]),
    ("skipped in O1", NEW, {**RED, O1: ran(t=S)}, Proof.UNPROVED, [H, O1]),
    ("red once", NEW, {**RED, O2: ran(t=P)}, Proof.FLAKY, [H, O1, O2]),
    ("red once, then hung", NEW, {**RED, O2: HUNG}, Proof.FLAKY, [H, O1, O2]),
    ("red at the head", NEW, {H: ran(t=F)}, Proof.UNPROVED, [H]),
    ("hangs at the head", NEW, {H: HUNG}, Proof.UNPROVED, [H]),
    ("no report at the head", NEW, {H: TestRun(None, 2)}, Proof.UNPROVED, [H]),
    ("all skipped at the head", NEW, {H: ran(t=S)}, Proof.UNPROVED, [H]),
    ("base red", OLD, {H: ran(t=P), B: ran(t=F)}, Proof.UNPROVED, [H, B]),
    ("base red, known", replace(OLD, known=frozenset({"t"})), {**RED, B: ran(t=F)}, Proof.PROVED, [H, B, O1, O2, X]),
    ("gone", OLD, {H: ran(t=P), B: ran(u=P)}, Proof.WEAKENED, [H, B]),
    ("skipped", OLD, {H: ran(t=P, u=S), B: ran(u=P)}, Proof.WEAKENED, [H, B]),
    (
        "expectation changed",
        OLD,
        {H: ran(t=P, u=P), B: ran(u=P), W: ran(u=F)},
        Proof.EXPECTATION,
        [H, B, W],
    ),
    (
        "expectation changed, as declared; the rewritten test is red without the code",
        replace(OLD, declared=Declaration.BEHAVIOUR),
        {H: ran(u=P), B: ran(u=P), O1: ran(u=F), O2: ran(u=F), X: ran(u=F)},
        Proof.PROVED,
        [H, B, O1, O2, X],
    ),
    (
        "gone, as declared, and fails with the new code",
        replace(OLD, declared=Declaration.BEHAVIOUR, removes_code=True),
        {H: ran(), B: ran(u=P), W: ran(u=F)},
        Proof.PROVED,
        [H, B, W],
    ),
    (
        "gone, as declared, although it would still pass",
        replace(OLD, declared=Declaration.BEHAVIOUR, removes_code=True),
        {H: ran(), B: ran(u=P), W: ran(u=P)},
        Proof.WEAKENED,
        [H, B, W],
    ),
    ("moved", replace(KEEP, comparison=Comparison(moved={"u": "v"})), {H: ran(v=P), B: ran(u=P), W: GONE},
     Proof.PRESERVED, [H, B, W]),
    ("emptied", replace(OLD, comparison=Comparison(frozenset({"u"}))), {H: ran(t=P, u=P), B: ran(u=P)},
     Proof.WEAKENED, [H, B]),
    ("nothing new", OLD, {H: ran(u=P), B: ran(u=P), W: ran(u=P), O1: ran(u=P)}, Proof.UNPROVED, [H, B, W, O1]),
    ("preserve", KEEP, {H: ran(u=P), B: ran(u=P), W: ran(u=P)}, Proof.PRESERVED, [H, B, W]),
    ("preserve, broken", KEEP, {H: ran(u=P), B: ran(u=P), W: ran(u=F)}, Proof.EXPECTATION, [H, B, W]),
    ("preserve, nothing guards it", replace(KEEP, in_base=False), {H: TestRun()}, Proof.UNPROVED, [H]),
    ("test-only with code", replace(NEW, declared=Declaration.TEST_ONLY), {}, Proof.UNPROVED, []),
    ("exempt", replace(NEW, declared=Declaration.EXEMPT), {}, Proof.EXEMPT, []),
    ("no code", ProofFacts(ChangedFiles(data=("a.yaml",))), {}, Proof.EXEMPT, []),
    ("no test", ProofFacts(ChangedFiles(code=("a.py",))), {}, Proof.UNPROVED, []),
    ("only tests", ProofFacts(ChangedFiles(tests=("tests/test_a.py",))), {}, Proof.UNPROVED, []),
    ("test, data", ProofFacts(replace(CHANGED, code=(), data=("a.yaml",))), RED, Proof.PROVED, [H, O1, O2]),
    ("harness", ProofFacts(replace(CHANGED, harness=("conftest.py",))), {}, Proof.HARNESS, []),
    (
        "harness that the plan names",
        ProofFacts(replace(CHANGED, harness=("conftest.py",)), allowed=frozenset({"conftest.py"})),
        RED,
        Proof.PROVED,
        [H, O1, O2],
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("facts", "runs", "proof", "looked"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE]
)
def test_each_rule_gives_its_verdict_and_looks_no_further(
    facts: ProofFacts, runs: dict[ProofTree, TestRun], proof: Proof, looked: list[ProofTree]
) -> None:
    verdict, asked = seen(facts, runs)
    assert (verdict.proof, asked) == (proof, looked)
    assert verdict.reason


def test_red_once_is_flaky_whichever_of_the_two_runs_was_red() -> None:
    """The order in which trees are run is drawn."""
    for one, other in ((O1, O2), (O2, O1)):
        facts = NEW.with_run(H, ran(t=P)).with_run(one, ran(t=F)).with_run(other, ran(t=P))
        answer = judge(facts)
        assert isinstance(answer, ProofVerdict)
        assert answer.proof is Proof.FLAKY


CODES = {
    H: TestRun(None, 0),
    B: TestRun(None, 0),
    W: TestRun(None, 0),
    O1: TestRun(None, 1),
    O2: TestRun(None, 1),
    X: TestRun(None, 1),
}
ROUGH = ProofFacts(CHANGED, coarse=True, hollow=True, in_base=True)


@pytest.mark.parametrize(
    ("facts", "runs", "proof"),
    [
        (ROUGH, {}, Proof.COARSE),
        (ROUGH, {O1: TestRun(None, 0)}, Proof.UNPROVED),
        (ROUGH, {O1: TestRun(None, 5)}, Proof.UNPROVED),
        (ROUGH, {O1: HUNG}, Proof.UNPROVED),
        (ROUGH, {O2: TestRun(None, 0)}, Proof.FLAKY),
        (ROUGH, {H: TestRun(None, 1)}, Proof.UNPROVED),
        (ROUGH, {B: TestRun(None, 1)}, Proof.UNPROVED),
        (ROUGH, {W: TestRun(None, 1)}, Proof.EXPECTATION),
        (ROUGH, {X: TestRun(None, 0)}, Proof.UNPROVED),
        (replace(ROUGH, removed=("tests/test_b.py",)), {}, Proof.WEAKENED),
        (replace(ROUGH, declared=Declaration.PRESERVE), {}, Proof.PRESERVED),
        (replace(ROUGH, declared=Declaration.PRESERVE, in_base=False), {}, Proof.UNPROVED),
        (ProofFacts(ChangedFiles(tests=("t.py",)), Declaration.TEST_ONLY, coarse=True), {}, Proof.TESTS_ONLY),
    ],
)
def test_exit_codes_alone_are_judged_by_the_coarse_rule(
    facts: ProofFacts, runs: dict[ProofTree, TestRun], proof: Proof
) -> None:
    assert seen(facts, {**CODES, **runs})[0].proof == proof


results = st.dictionaries(st.sampled_from("abcd"), st.sampled_from(Status), max_size=4)
some_run = st.builds(
    TestRun, st.none() | results, st.sampled_from([0, 1, 2, 5, 127, None]), st.sampled_from([False, False, True])
)
any_facts = st.builds(
    ProofFacts,
    st.just(CHANGED),
    st.sampled_from(Declaration),
    st.booleans(),
    st.sampled_from([(), ("tests/test_b.py",)]),
    st.frozensets(st.sampled_from("abcd"), max_size=1),
    st.just(frozenset()),
    hollow=st.booleans(),
    left=st.sampled_from([(), ("a",)]),
    has_old_bodies=st.booleans(),
    has_empty_bodies=st.booleans(),
    shallow=st.booleans(),
    reads_source=st.booleans(),
    removes_code=st.booleans(),
    coarse=st.booleans(),
)


@given(any_facts, st.fixed_dictionaries(dict.fromkeys(ProofTree, some_run)))
def test_every_set_of_results_ends_in_a_verdict_and_proved_means_red_without_and_green_with(
    facts: ProofFacts, runs: dict[ProofTree, TestRun]
) -> None:
    verdict, _ = seen(facts, runs)
    assert verdict.ok is (verdict.proof not in REFUSED)
    if verdict.proof is not Proof.PROVED:
        return
    shown = [*verdict.tests.get("red", ()), *verdict.tests.get("red by absence", ())]
    assert shown or facts.removes_code
    for id in shown:
        assert runs[H].of(id) is P
        assert runs[O1].of(id) is not P
        assert runs[O2].of(id) is runs[O1].of(id)
        assert not (facts.hollow and facts.has_old_bodies and not facts.left and runs[X].of(id) is P)
    if facts.in_base and facts.declared is not Declaration.BEHAVIOUR:
        assert runs[B].passed <= runs[H].passed


def test_files_are_sorted_by_what_they_mean_for_the_proof() -> None:
    paths = ["a.py", "tests/test_a.py", "tests/data.json", "conftest.py", "README.md", "limits.yaml"]
    assert sort_files(paths, Names(), ["conftest.py"]) == ChangedFiles(
        tests=("tests/test_a.py", "tests/data.json"), code=("a.py",), data=("limits.yaml",), harness=("conftest.py",)
    )


def test_a_runner_is_given_the_files_that_hold_tests() -> None:
    paths = ["a.py", "tests/test_a.py", "tests/helper.py", "tests/data.json", "tests/conftest.py", "web/a.spec.ts"]
    assert Names().modules_in(paths) == ("tests/test_a.py", "web/a.spec.ts")
    assert Names(tests=("qa/**",)).modules_in(["qa/checks.py", "qa/data.json", "test_a.py"]) == ("qa/checks.py",)
