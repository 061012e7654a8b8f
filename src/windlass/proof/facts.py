"""What is seen of a task's trees, and what it can come to."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from enum import StrEnum
from typing import TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from windlass.checks.junit import Status, normal_id
from windlass.checks.test_files import Changed
from windlass.proof.claims import Compared

MANY = 5
#: exit codes that say nothing of the code: no tests collected (pytest), not executable, not found
NOT_RED = (5, 126, 127)


class ProofTree(StrEnum):
    BASE = "b"
    HEAD = "h"
    #: B with T from H
    OLD = "o"
    #: O once more: what is red must be red twice
    AGAIN = "o2"
    #: H with B's tests
    WITH_OLD_TESTS = "w"
    #: H with the names and the text of the change, and the behaviour of B
    HOLLOW = "x"
    #: X with the statements that run while a module is loaded, where X does not load without them
    SHALLOW = "y"
    #: H with its code in other words
    RESPELLED = "r"


class Proof(StrEnum):
    PROVED = "proved"
    #: by exit codes alone, where the test command writes no JUnit report
    COARSE = "proved (coarse)"
    #: red because there was nothing to load, and no hollow tree to tell more: `tests.absent` decides
    ABSENT = "absent"
    #: the hollow tree cannot tell whether a test asks something of the code: `tests.weak` decides
    WEAK = "weak"
    #: `tdd: preserve`: every test of the base passes with the new code
    PRESERVED = "preserved"
    #: declared test-only, and nothing but tests changed
    TESTS_ONLY = "tests only"
    #: nothing that could be proved changed, or the approved plan exempts it
    EXEMPT = "exempt"
    #: no `tests.run_files`: nothing was run
    UNCHECKED = "unchecked"
    UNPROVED = "unproved"
    #: a test that passed is gone, skipped or expected to fail
    WEAKENED = "weakened"
    #: a test of the base fails with the new code, and the task declares no change of behaviour
    EXPECTATION = "expectation changed"
    #: what decides how tests are run was changed without the plan saying so
    HARNESS = "harness changed"
    FLAKY = "flaky"


REFUSED = frozenset({Proof.UNPROVED, Proof.WEAKENED, Proof.EXPECTATION, Proof.HARNESS, Proof.FLAKY})


class Declared(StrEnum):
    """What the approved plan says of a task."""

    #: a test that fails first, and no old test that has to change its mind
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

    def having(self, *wanted: Status) -> frozenset[str]:
        return frozenset(id for id, status in (self.tests or {}).items() if status in wanted)

    @property
    def passed(self) -> frozenset[str]:
        return self.having(Status.PASSED)

    def of(self, id: str) -> Status | None:
        return (self.tests or {}).get(id)


class ProofFacts(Struct, frozen=True):
    changed: Changed
    declared: Declared = Declared.ADDS
    in_base: bool = False
    """B has tests to run: then B and W mean something."""
    removed: tuple[str, ...] = ()
    """Test files of B that are not in H."""
    known: frozenset[str] = frozenset()
    """Tests that a person accepted as failing before any work."""
    allowed: frozenset[str] = frozenset()
    """Files that the approved plan names: harness files among them may change."""
    hollow: bool = False
    """X exists."""
    left: tuple[str, ...] = ()
    """What of the change is still at work in X: a test that passes there may be about that."""
    sure: bool = True
    """X has a changed function as it was, not empty: a test that passes there did not need the change."""
    real: bool = True
    """X has bodies taken out, not only files as they were: what fails there had all names it wants."""
    put_back: tuple[str, ...] = ()
    """Files that X has as they were, or empty, because nobody here can take their bodies out."""
    shallow: bool = False
    """There is a second X, for when the first does not load."""
    left_shallow: tuple[str, ...] = ()
    reads_source: bool = False
    """The new tests may read the source: then they must also pass where it is spelled in another way."""
    removes_code: bool = False
    compared: Compared = Compared()
    coarse: bool = False
    runs: Mapping[ProofTree, TestRun] = field(default_factory=dict)

    def having(self, tree: ProofTree, ran: TestRun) -> ProofFacts:
        return replace(self, runs={**self.runs, tree: ran})

    def accepted(self, id: str) -> bool:
        return normal_id(id) in {normal_id(known) for known in self.known}


class ProofVerdict(Struct, frozen=True):
    proof: Proof
    reason: str
    tests: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The tests it rests on, by what they showed."""

    @property
    def ok(self) -> bool:
        return self.proof not in REFUSED


Answer: TypeAlias = ProofTree | ProofVerdict
Rule: TypeAlias = Callable[[ProofFacts], Answer | None]
"""The tree it has to see, the verdict, or None: the next rule decides."""


def some(names: Collection[str]) -> str:
    """The first few, and how many more."""
    shown = ", ".join(list(names)[:MANY])
    return f"{shown} and {len(names) - MANY} more" if len(names) > MANY else shown
