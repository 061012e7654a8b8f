"""The proof: from what was seen of a task's trees to the next tree to look at, or the verdict.

B is the task's base, H its head, T its changed tests, S its changed code. O is B with T: tests that are red there are
red without the code. W is H with B's tests: what fails there, the task changed the meaning of. X is H with the changed
bodies hollowed out: a test that still passes there asks nothing of the code.
"""

from __future__ import annotations

from collections.abc import Collection

from msgspec import Struct

from windlass.checks.junit import Status
from windlass.model import digest
from windlass.proof import coarse
from windlass.proof.claims import plain_id
from windlass.proof.facts import (
    NOT_RED,
    Answer,
    Declared,
    Proof,
    ProofFacts,
    ProofTree,
    ProofVerdict,
    Rule,
    TestRun,
    some,
)


def judge(facts: ProofFacts) -> Answer:
    for rule in _rules(facts):
        answer = rule(facts)
        if answer is not None:
            return answer
    raise AssertionError("the last rule decides")


def _rules(facts: ProofFacts) -> tuple[Rule, ...]:
    kinds = COARSE if facts.coarse else PRECISE
    return kinds[facts.declared]


# -- before anything is run


def _harness(facts: ProofFacts) -> Answer | None:
    touched = sorted(set(facts.changed.harness) - facts.allowed)
    if not touched:
        return None
    reason = f"changes how tests are run, and the plan does not name it among the task's files: {some(touched)}"
    return ProofVerdict(Proof.HARNESS, reason)


def _exempt(facts: ProofFacts) -> Answer:
    return ProofVerdict(Proof.EXEMPT, "exempted by the approved plan")


def _nothing(facts: ProofFacts) -> Answer | None:
    changed = facts.changed
    if changed.code or changed.swapped:
        return None
    return ProofVerdict(Proof.EXEMPT, "no code changed")


def _only_tests(facts: ProofFacts) -> Answer | None:
    changed = facts.changed
    if changed.code or changed.data:
        return None
    return ProofVerdict(Proof.UNPROVED, "only tests changed, and the plan does not declare the task test-only")


def _no_code(facts: ProofFacts) -> Answer | None:
    if not facts.changed.code:
        return None
    return ProofVerdict(Proof.UNPROVED, f"declared test-only, but code changed: {some(facts.changed.code)}")


def _some_test(facts: ProofFacts) -> Answer | None:
    # A failing test that a person accepted is a test written first.
    if facts.changed.swapped or facts.known:
        return None
    return ProofVerdict(Proof.UNPROVED, f"code changed without a test: {some(facts.changed.code)}")


# -- with reports


def _head_is_green(facts: ProofFacts) -> Answer | None:
    head = facts.runs.get(ProofTree.HEAD)
    if head is None:
        return ProofTree.HEAD
    return _not_green(facts, head, "the tests of the task are not green at its head")


def _base_is_green(facts: ProofFacts) -> Answer | None:
    base = facts.runs.get(ProofTree.BASE)
    if base is None:
        return ProofTree.BASE if facts.in_base else None
    return _not_green(facts, base, "these tests were not green before the task began")


def _not_green(facts: ProofFacts, ran: TestRun, what: str) -> Answer | None:
    if ran.timed_out:
        return ProofVerdict(Proof.UNPROVED, f"{what}: they did not end in time")
    if ran.tests is None:
        return ProofVerdict(Proof.UNPROVED, f"{what}: there is no report (exit code {ran.code})\n{ran.tail}".rstrip())
    red = [id for id in sorted(ran.having(Status.FAILED, Status.ERROR)) if not facts.accepted(id)]
    return ProofVerdict(Proof.UNPROVED, f"{what}: {some(red)}", {"failing": tuple(red)}) if red else None


def _nothing_emptied(facts: ProofFacts) -> Answer | None:
    """A test that kept its name and claims nothing any more passes, whatever the code does."""
    base = facts.runs.get(ProofTree.BASE)
    passed = {plain_id(id): id for id in base.passed} if base else {}
    silent = [name for name in facts.compared.emptied if name in passed or name in facts.changed.tests]
    if not silent:
        return None
    shown = tuple(sorted(passed.get(name, name) for name in silent))
    return ProofVerdict(Proof.WEAKENED, f"old tests claim nothing any more: {some(shown)}", {"weakened": shown})


def _nothing_weakened(facts: ProofFacts) -> Answer | None:
    head = facts.runs[ProofTree.HEAD]
    lost = [id for id in _lost(facts) if not _is_moved(facts, id)]
    if lost and facts.declared is Declared.BEHAVIOUR:
        # A test of what is no more goes with it. One that would still pass guards something, and stays.
        with_old = facts.runs.get(ProofTree.WITH_OLD_TESTS)
        if with_old is None:
            return ProofTree.WITH_OLD_TESTS
        lost = [id for id in lost if head.of(id) is not None or id in with_old.passed]
    if not lost:
        return None
    told = some([f"{id} ({head.of(id) or 'gone'})" for id in lost])
    return ProofVerdict(Proof.WEAKENED, f"passed before, and does no longer: {told}", {"weakened": tuple(lost)})


def _lost(facts: ProofFacts) -> list[str]:
    base = facts.runs.get(ProofTree.BASE)
    return sorted(base.passed - facts.runs[ProofTree.HEAD].passed) if base else []


def _is_moved(facts: ProofFacts, id: str) -> bool:
    """It says the same under another name or in another file, and passes there."""
    there = facts.compared.at_head(id)
    if there is None:
        return False
    return any(plain_id(other) == there for other in facts.runs[ProofTree.HEAD].passed)


def _is_untouched(facts: ProofFacts, id: str) -> bool:
    """Its file is the same in B and H, so what it said at H it says in W. Some runners stop at a file that does not
    load, and leave the others out."""
    touched = facts.compared.touched
    return touched is not None and plain_id(id) not in touched and id in facts.runs[ProofTree.HEAD].passed


def _expectations_kept(facts: ProofFacts) -> Answer | None:
    base, with_old = facts.runs.get(ProofTree.BASE), facts.runs.get(ProofTree.WITH_OLD_TESTS)
    if base is None or not base.passed:
        return None
    if with_old is None:
        return ProofTree.WITH_OLD_TESTS
    # What did not load beside the new code was moved with it, if its new text says the same.
    turned = sorted(
        id
        for id in base.passed - with_old.passed
        if with_old.of(id) in (Status.FAILED, Status.SKIPPED) or not (_is_moved(facts, id) or _is_untouched(facts, id))
    )
    if not turned:
        return None
    reason = f"as they were written before, these tests fail with the new code: {some(turned)}"
    return ProofVerdict(Proof.EXPECTATION, reason, {"expectation": tuple(turned)})


def _added(facts: ProofFacts) -> frozenset[str]:
    """Passes at H and did not at B."""
    base = facts.runs.get(ProofTree.BASE)
    return facts.runs[ProofTree.HEAD].passed - (base.passed if base else frozenset())


def new_green(facts: ProofFacts) -> frozenset[str]:
    """A test that kept its name but was rewritten counts too: its new text passes at H and fails with the old code."""
    both = facts.runs[ProofTree.HEAD].passed - _added(facts)
    old = [facts.runs[tree] for tree in (ProofTree.OLD, ProofTree.AGAIN) if tree in facts.runs]
    return _added(facts) | (both & frozenset().union(*(ran.having(Status.FAILED) for ran in old)))


def _feature_removed(facts: ProofFacts) -> Answer | None:
    """Declared, and without a new test: the tests that went with the feature fail with the new code."""
    with_old = facts.runs.get(ProofTree.WITH_OLD_TESTS)
    if with_old is None or _added(facts) or not facts.removes_code:
        return None
    gone = tuple(id for id in _lost(facts) if id not in with_old.passed)
    if not gone or with_old.timed_out:
        return None
    reason = f"{len(gone)} tests went with what they tested, as declared, and fail with the new code"
    return ProofVerdict(Proof.PROVED, reason, {"removed": gone})


def _something_new_passes(facts: ProofFacts) -> Answer | None:
    if _added(facts) or ProofTree.BASE in facts.runs:
        return None
    return ProofVerdict(Proof.UNPROVED, "no test passes that did not pass before")


class Red(Struct, frozen=True):
    ran: frozenset[str]
    """Red by running: the old code gave another answer."""
    absent: frozenset[str]
    """Red by absence: it did not come to run."""


def red_without(facts: ProofFacts) -> Red:
    """Which of the new-green tests are red in O."""
    new, old = new_green(facts), facts.runs[ProofTree.OLD]
    ran = frozenset(id for id in new if old.of(id) is Status.FAILED)
    absent = frozenset(id for id in new - ran if _did_not_load(id, old, facts.runs[ProofTree.HEAD]))
    return Red(ran, absent)


def _did_not_load(id: str, ran: TestRun, head: TestRun) -> bool:
    status = ran.of(id)
    if status is not None:
        return status is Status.ERROR
    # Missing is no proof of anything, unless something says that it could not be loaded.
    failing = ran.having(Status.FAILED, Status.ERROR)
    # Some runners name the file that did not load, others only end red.
    return bool(failing - set(head.tests or ())) or (not failing and ran.code not in (0, None, *NOT_RED))


def _red_without_the_code(facts: ProofFacts) -> Answer | None:
    old = facts.runs.get(ProofTree.OLD)
    if old is None:
        return ProofTree.OLD
    if old.timed_out:
        return ProofVerdict(Proof.UNPROVED, "without the code the new tests do not end in time, which is not red")
    red = red_without(facts)
    if red.ran or red.absent:
        return None
    differs = _red_twice(facts) if ProofTree.AGAIN in facts.runs else None
    if differs is not None:
        # The second run came first, and was red.
        return differs
    new = tuple(sorted(new_green(facts)))
    if not new:
        return ProofVerdict(Proof.UNPROVED, "no test passes that did not pass before")
    return ProofVerdict(
        Proof.UNPROVED, f"the new tests pass, or do not run, without the code: {some(new)}", {"new": new}
    )


def _red_twice(facts: ProofFacts) -> Answer | None:
    old, again = facts.runs[ProofTree.OLD], facts.runs.get(ProofTree.AGAIN)
    if again is None:
        return ProofTree.AGAIN
    unlike = sorted(id for id in new_green(facts) if old.of(id) is not again.of(id))
    if not unlike and not again.timed_out:
        return None
    reason = f"without the code, two runs of the same tests differ: {some(unlike) or 'one did not end in time'}"
    return ProofVerdict(Proof.FLAKY, reason, {"flaky": tuple(unlike)})


def _asks_something_of_the_code(facts: ProofFacts) -> Answer:
    """The last rule: red without the code, and red where the code has its names but not its behaviour."""
    if facts.hollow and ProofTree.HOLLOW not in facts.runs:
        return ProofTree.HOLLOW
    red = red_without(facts)
    wanted = red.ran | red.absent
    tree, left = ProofTree.HOLLOW, facts.left
    if facts.shallow and not any(_ran_in(facts, tree, id) for id in wanted):
        tree, left = ProofTree.SHALLOW, facts.left_shallow
        if tree not in facts.runs:
            return tree
    if not facts.hollow:
        shown = red.ran
    elif facts.real:
        shown = frozenset(id for id in wanted if _fails_in(facts, tree, id))
    else:
        shown = frozenset(id for id in red.ran if not _passes_in(facts, tree, id))
    if shown and facts.reads_source and facts.changed.code:
        respelled = facts.runs.get(ProofTree.RESPELLED)
        if respelled is None:
            return ProofTree.RESPELLED
        spelled = shown - respelled.passed
        shown -= spelled
        if spelled and not shown:
            names = tuple(sorted(spelled))
            reason = f"the new tests depend on how the code is spelled, not on what it does: {some(names)}"
            return ProofVerdict(Proof.UNPROVED, reason, {"new": names})
    if shown:
        return _proved(facts, shown & red.ran, shown - red.ran)
    return _cannot_tell(facts, red, tree, left)


def _cannot_tell(facts: ProofFacts, red: Red, tree: ProofTree, left: tuple[str, ...]) -> Answer:
    """No test failed in X."""
    wanted = tuple(sorted(red.ran | red.absent))
    passing = tuple(id for id in wanted if facts.hollow and _passes_in(facts, tree, id))
    if not passing and not (facts.hollow and facts.real):
        reason = f"red only because there was nothing to load: {some(wanted)}"
        return ProofVerdict(Proof.ABSENT, reason + _not_hollowed(facts), {"absent": wanted})
    if not passing and red.ran and facts.runs[tree].timed_out:
        # It waits for an answer that only the new code gives.
        return _proved(facts, red.ran, ())
    if passing and not left:
        if facts.sure or not red.ran:
            reason = f"the new tests pass with the changed code hollowed out: {some(passing)}"
            return ProofVerdict(Proof.UNPROVED, reason, {"new": passing})
        if not facts.reads_source:
            # An empty body may be the right answer. The old one was not.
            return _proved(facts, red.ran, ())
        reason = f"these tests pass with the changed code hollowed out, and may read its source: {some(passing)}"
        return ProofVerdict(Proof.WEAK, reason, {"weak": passing})
    why = f"is still at work there: {some(left)}" if passing else "does not load, or does not end"
    told = f"the hollow tree cannot tell whether these tests ask something of the code, because it {why}"
    if passing:
        told = f"these tests pass with the changed code hollowed out, but a part of it {why}"
    return ProofVerdict(Proof.WEAK, f"{told}. Tests: {some(wanted)}", {"weak": wanted})


def _ran_in(facts: ProofFacts, tree: ProofTree, id: str) -> bool:
    return facts.runs[tree].of(id) is not None or facts.runs[tree].timed_out


def _passes_in(facts: ProofFacts, tree: ProofTree, id: str) -> bool:
    return facts.runs[tree].of(id) in (Status.PASSED, Status.SKIPPED)


def _fails_in(facts: ProofFacts, tree: ProofTree, id: str) -> bool:
    """It ran there and failed. A tree that does not load, or does not end, shows nothing."""
    return not facts.runs[tree].timed_out and facts.runs[tree].of(id) in (Status.FAILED, Status.ERROR)


def _proved(facts: ProofFacts, ran: Collection[str], absent: Collection[str]) -> ProofVerdict:
    idle = sorted(new_green(facts) - set(ran) - set(absent))
    groups = {"red": sorted(ran), "red by absence": sorted(absent), "green from the start": idle}
    count = len(ran) + len(absent)
    reason = f"{count} test{'s are' if count != 1 else ' is'} red without the code and green with it"
    reason += _not_hollowed(facts)
    return ProofVerdict(Proof.PROVED, reason, {name: tuple(ids) for name, ids in groups.items() if ids})


def _not_hollowed(facts: ProofFacts) -> str:
    """What the proof does not rest on."""
    parts = [*facts.left, *(f"{path} (no bodies can be taken out of it)" for path in facts.put_back)]
    return f"; not hollowed out: {some(parts)}" if parts else ""


def planned(facts: ProofFacts) -> tuple[ProofTree, ...]:
    """The trees that the rules may ask for, in the order in which they do."""
    first = (ProofTree.HEAD, *((ProofTree.BASE,) if facts.in_base else ()))
    old = (ProofTree.WITH_OLD_TESTS,) if facts.in_base else ()
    hollow = (ProofTree.HOLLOW,) if facts.hollow else ()
    spelled = (ProofTree.RESPELLED,) if facts.reads_source and facts.changed.code and not facts.coarse else ()
    match facts.declared:
        case Declared.ADDS:
            return (*first, *old, ProofTree.OLD, ProofTree.AGAIN, *hollow, *spelled)
        case Declared.BEHAVIOUR:
            return (*first, ProofTree.OLD, ProofTree.AGAIN, *hollow, *spelled)
        case Declared.PRESERVE:
            return (*first, *old)
        case Declared.TEST_ONLY:
            return first
        case Declared.EXEMPT:
            return ()


def shuffled(trees: Collection[ProofTree], seed: str) -> list[ProofTree]:
    """An order that nobody can know who does not know the seed."""
    return sorted(trees, key=lambda tree: digest([seed, tree.value]))


def _preserved(facts: ProofFacts) -> Answer:
    base = facts.runs.get(ProofTree.BASE)
    kept = tuple(sorted(base.passed)) if base else ()
    if not kept:
        return ProofVerdict(Proof.UNPROVED, "no test guards what is to be preserved")
    return ProofVerdict(Proof.PRESERVED, f"{len(kept)} tests of the base pass with the new code", {"kept": kept})


def _tests_only(facts: ProofFacts) -> Answer:
    new = tuple(sorted(new_green(facts)))
    return ProofVerdict(Proof.TESTS_ONLY, f"declared test-only; {len(new)} new tests", {"new": new} if new else {})


_START: tuple[Rule, ...] = (_harness, _nothing)
_FIRST: tuple[Rule, ...] = (*_START, _only_tests, _some_test)
_GREEN: tuple[Rule, ...] = (_head_is_green, _base_is_green, _nothing_emptied, _nothing_weakened)
_RED: tuple[Rule, ...] = (_something_new_passes, _red_without_the_code, _red_twice, _asks_something_of_the_code)
PRECISE: dict[Declared, tuple[Rule, ...]] = {
    Declared.ADDS: (*_FIRST, *_GREEN, _expectations_kept, *_RED),
    Declared.BEHAVIOUR: (*_FIRST, *_GREEN, _feature_removed, *_RED),
    Declared.TEST_ONLY: (*_START, _no_code, *_GREEN, _tests_only),
    Declared.PRESERVE: (*_START, *_GREEN, _expectations_kept, _preserved),
    Declared.EXEMPT: (_harness, _exempt),
}
_COARSE_GREEN: tuple[Rule, ...] = (coarse.nothing_weakened, coarse.head_is_green, coarse.base_is_green)
_COARSE_RED: tuple[Rule, ...] = (coarse.red_without_the_code, coarse.proved)
COARSE: dict[Declared, tuple[Rule, ...]] = {
    Declared.ADDS: (*_FIRST, *_COARSE_GREEN, coarse.expectations_kept, *_COARSE_RED),
    Declared.BEHAVIOUR: (*_FIRST, *_COARSE_GREEN, *_COARSE_RED),
    Declared.TEST_ONLY: (*_START, _no_code, *_COARSE_GREEN, coarse.tests_only),
    Declared.PRESERVE: (*_START, *_COARSE_GREEN, coarse.expectations_kept, coarse.preserved),
    Declared.EXEMPT: (_harness, _exempt),
}
