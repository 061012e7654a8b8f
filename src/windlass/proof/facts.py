"""The facts about a task's trees, and the possible verdicts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from enum import StrEnum
from typing import TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from windlass.checks.junit import Status, normal_id
from windlass.checks.test_files import ChangedFiles
from windlass.proof.claims import Comparison

MANY = 5
#: exit codes that do not mean a failed test: no tests collected (pytest), not executable, not found
NOT_RED = (5, 126, 127)


class ProofTree(StrEnum):
    BASE = "b"
    HEAD = "h"
    #: B with T from H
    OLD = "o"
    #: O once more: a red test must be red twice
    AGAIN = "o2"
    #: H with B's tests
    WITH_OLD_TESTS = "w"
    #: H with the names and the text of the change, and the behaviour of B
    HOLLOW = "x"
    #: X with the statements that run while a module loads, for an X that does not load without them
    SHALLOW = "y"
    #: H with its code in other words
    RESPELLED = "r"


class Proof(StrEnum):
    PROVED = "proved"
    #: by exit codes alone, because the test command writes no JUnit report
    COARSE = "proved (coarse)"
    #: red only because the tests could not load, and no hollow tree shows more: `tests.absent` decides
    ABSENT = "absent"
    #: the hollow tree does not show whether a test depends on the change: `tests.weak` decides
    WEAK = "weak"
    #: `tdd: preserve`: every test of the base passes with the new code
    PRESERVED = "preserved"
    #: declared test-only, and nothing but tests changed
    TESTS_ONLY = "tests only"
    #: no code changed, or the approved plan exempts the task
    EXEMPT = "exempt"
    #: no `tests.run_files`, so no tests ran
    UNCHECKED = "unchecked"
    UNPROVED = "unproved"
    #: a test that passed is gone, skipped or expected to fail
    WEAKENED = "weakened"
    #: a test of the base fails with the new code, and the task declares no change of behaviour
    EXPECTATION = "expectation changed"
    #: the task changed files that decide how tests run, and the plan does not name them
    HARNESS = "harness changed"
    FLAKY = "flaky"


REFUSED = frozenset({Proof.UNPROVED, Proof.WEAKENED, Proof.EXPECTATION, Proof.HARNESS, Proof.FLAKY})


class Declaration(StrEnum):
    """What the approved plan declares for a task."""

    #: a new test that fails first; old tests still pass
    ADDS = ""
    BEHAVIOUR = "behaviour-change"
    TEST_ONLY = "test-only"
    EXEMPT = "exempt"
    PRESERVE = "preserve"


class TestRun(Struct, frozen=True):
    """One run of the tests on one tree."""

    tests: Mapping[str, Status] | None = field(default_factory=dict)
    """None: there is no report."""
    code: int | None = 0
    timed_out: bool = False
    seconds: float = 0.0
    tail: str = ""

    @property
    def green(self) -> bool:
        return self.code == 0 and not self.timed_out

    def with_status(self, *wanted: Status) -> frozenset[str]:
        return frozenset(id for id, status in (self.tests or {}).items() if status in wanted)

    @property
    def passed(self) -> frozenset[str]:
        return self.with_status(Status.PASSED)

    def of(self, id: str) -> Status | None:
        return (self.tests or {}).get(id)


class ProofFacts(Struct, frozen=True):
    changed: ChangedFiles
    declared: Declaration = Declaration.ADDS
    in_base: bool = False
    """B has tests to run, so runs on B and W are useful."""
    removed: tuple[str, ...] = ()
    """Test files of B that are not in H."""
    known: frozenset[str] = frozenset()
    """Tests that a person accepted as failing before any work."""
    allowed: frozenset[str] = frozenset()
    """Files that the approved plan names. Harness files in this set may change."""
    hollow: bool = False
    """X exists."""
    left: tuple[str, ...] = ()
    """Parts of the change that still have an effect in X. A test that passes there may be about them."""
    has_old_bodies: bool = True
    """Changed functions have their old bodies in X. A test that passes there does not need the change."""
    has_empty_bodies: bool = True
    """X has emptied bodies, not only old files. A test that fails there found all names it needs."""
    put_back: tuple[str, ...] = ()
    """Files that are old or empty in X, because Windlass cannot empty bodies in their language."""
    shallow: bool = False
    """There is a second X, to use when the first does not load."""
    left_shallow: tuple[str, ...] = ()
    reads_source: bool = False
    """The new tests may read the source. They must also pass on the respelled tree."""
    removes_code: bool = False
    comparison: Comparison = Comparison()
    coarse: bool = False
    runs: Mapping[ProofTree, TestRun] = field(default_factory=dict)

    def with_run(self, tree: ProofTree, ran: TestRun) -> ProofFacts:
        return replace(self, runs={**self.runs, tree: ran})

    def is_accepted(self, id: str) -> bool:
        return normal_id(id) in {normal_id(known) for known in self.known}


class ProofVerdict(Struct, frozen=True):
    proof: Proof
    reason: str
    tests: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The decisive tests, by their result."""

    @property
    def ok(self) -> bool:
        return self.proof not in REFUSED


Answer: TypeAlias = ProofTree | ProofVerdict
Rule: TypeAlias = Callable[[ProofFacts], Answer | None]
"""Returns the next tree to run, the verdict, or None if the next rule decides."""


def some(names: Collection[str]) -> str:
    """The first few, and how many more."""
    first = ", ".join(list(names)[:MANY])
    return f"{first} and {len(names) - MANY} more" if len(names) > MANY else first
