"""The rules of the proof. From the facts about a task's trees they find the next tree to run, or the verdict.

- B is the task's base, H its head, T its changed tests, S its changed code.
- O is B with T. A test that is red there is red without the code.
- W is H with B's tests. A test that fails there had its expectation changed by the task.
- X is H with the changed bodies emptied. A test that passes there does not depend on the changed code.
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
    Declaration,
    Proof,
    ProofFacts,
    ProofTree,
    ProofVerdict,
    Rule,
    TestRun,
    some,
)


def judge(facts: ProofFacts) -> Answer:
    for rule in (COARSE if facts.coarse else PRECISE)[facts.declared]:
        answer = rule(facts)
        if answer is not None:
            return answer
    raise AssertionError("the last rule decides")


# -- before any test runs


def _harness(facts: ProofFacts) -> Answer | None:
    touched = sorted(set(facts.changed.harness) - facts.allowed)
    if not touched:
        return None
    reason = f"changes how tests run, and the plan does not name it among the task's files: {some(touched)}"
    return ProofVerdict(Proof.HARNESS, reason)


def _exempt(facts: ProofFacts) -> Answer:
    return ProofVerdict(Proof.EXEMPT, "exempted by the approved plan")


def _no_code_changed(facts: ProofFacts) -> Answer | None:
    changed = facts.changed
    if changed.code or changed.tests_and_harness:
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


def _has_test(facts: ProofFacts) -> Answer | None:
    # A failing test that a person accepted counts as a test written first.
    if facts.changed.tests_and_harness or facts.known:
        return None
    return ProofVerdict(Proof.UNPROVED, f"code changed without a test: {some(facts.changed.code)}")


# -- with reports


def _head_is_green(facts: ProofFacts) -> Answer | None:
    head = facts.runs.get(ProofTree.HEAD)
    if head is None:
        return ProofTree.HEAD
    return _failure(facts, head, "the tests of the task are not green at its head")


def _base_is_green(facts: ProofFacts) -> Answer | None:
    base = facts.runs.get(ProofTree.BASE)
    if base is None:
        return ProofTree.BASE if facts.in_base else None
    return _failure(facts, base, "these tests were not green before the task began")


def _failure(facts: ProofFacts, ran: TestRun, what: str) -> Answer | None:
    if ran.timed_out:
        return ProofVerdict(Proof.UNPROVED, f"{what}: they did not end in time")
    if ran.tests is None:
        return ProofVerdict(Proof.UNPROVED, f"{what}: there is no report (exit code {ran.code})\n{ran.tail}".rstrip())
    red = [id for id in sorted(ran.with_status(Status.FAILED, Status.ERROR)) if not facts.is_accepted(id)]
    return ProofVerdict(Proof.UNPROVED, f"{what}: {some(red)}", {"failing": tuple(red)}) if red else None


def _nothing_emptied(facts: ProofFacts) -> Answer | None:
    """A test without claims passes for any code."""
    base = facts.runs.get(ProofTree.BASE)
    passed = {plain_id(id): id for id in base.passed} if base else {}
    silent = [name for name in facts.comparison.emptied if name in passed or name in facts.changed.tests]
    if not silent:
        return None
    ids = tuple(sorted(passed.get(name, name) for name in silent))
    return ProofVerdict(Proof.WEAKENED, f"old tests no longer assert anything: {some(ids)}", {"weakened": ids})


def _nothing_weakened(facts: ProofFacts) -> Answer | None:
    head = facts.runs[ProofTree.HEAD]
    lost = [id for id in _lost_tests(facts) if not _is_moved(facts, id)]
    if lost and facts.declared is Declaration.BEHAVIOUR:
        # A test of a removed feature may go. A test that still passes must stay.
        with_old = facts.runs.get(ProofTree.WITH_OLD_TESTS)
        if with_old is None:
            return ProofTree.WITH_OLD_TESTS
        lost = [id for id in lost if head.of(id) is not None or id in with_old.passed]
    if not lost:
        return None
    named = some([f"{id} ({head.of(id) or 'gone'})" for id in lost])
    return ProofVerdict(Proof.WEAKENED, f"passed before, but not any more: {named}", {"weakened": tuple(lost)})


def _lost_tests(facts: ProofFacts) -> list[str]:
    base = facts.runs.get(ProofTree.BASE)
    return sorted(base.passed - facts.runs[ProofTree.HEAD].passed) if base else []


def _is_moved(facts: ProofFacts, id: str) -> bool:
    """The same test passes under another name or in another file."""
    there = facts.comparison.id_at_head(id)
    if there is None:
        return False
    return any(plain_id(other) == there for other in facts.runs[ProofTree.HEAD].passed)


def _expectations_kept(facts: ProofFacts) -> Answer | None:
    base, with_old = facts.runs.get(ProofTree.BASE), facts.runs.get(ProofTree.WITH_OLD_TESTS)
    if base is None or not base.passed:
        return None
    if with_old is None:
        return ProofTree.WITH_OLD_TESTS
    # A file that is the same in B and H has the same result in W as at H. This matters because some runners stop at a
    # file that does not load, and skip the others.
    touched = facts.comparison.touched
    passed = facts.runs[ProofTree.HEAD].passed if touched is not None else frozenset()
    untouched = {id for id in passed if plain_id(id) not in (touched or ())}
    # A test that did not load with the new code may have moved with it.
    failing = sorted(
        id
        for id in base.passed - with_old.passed
        if with_old.of(id) in (Status.FAILED, Status.SKIPPED) or not (id in untouched or _is_moved(facts, id))
    )
    if not failing:
        return None
    reason = f"the old versions of these tests fail with the new code: {some(failing)}"
    return ProofVerdict(Proof.EXPECTATION, reason, {"expectation": tuple(failing)})


def _added_tests(facts: ProofFacts) -> frozenset[str]:
    """Tests that pass at H and do not pass at B."""
    base = facts.runs.get(ProofTree.BASE)
    return facts.runs[ProofTree.HEAD].passed - (base.passed if base else frozenset())


def new_green(facts: ProofFacts) -> frozenset[str]:
    """Added tests, and rewritten tests with the same name: these pass at H and fail with the old code."""
    both = facts.runs[ProofTree.HEAD].passed - _added_tests(facts)
    old = [facts.runs[tree] for tree in (ProofTree.OLD, ProofTree.AGAIN) if tree in facts.runs]
    return _added_tests(facts) | (both & frozenset().union(*(ran.with_status(Status.FAILED) for ran in old)))


def _feature_removed(facts: ProofFacts) -> Answer | None:
    """A declared removal needs no new test: the removed tests fail with the new code."""
    with_old = facts.runs.get(ProofTree.WITH_OLD_TESTS)
    if with_old is None or _added_tests(facts) or not facts.removes_code:
        return None
    gone = tuple(id for id in _lost_tests(facts) if id not in with_old.passed)
    if not gone or with_old.timed_out:
        return None
    reason = f"{len(gone)} tests were removed with their feature, as declared, and fail with the new code"
    return ProofVerdict(Proof.PROVED, reason, {"removed": gone})


def _something_new_passes(facts: ProofFacts) -> Answer | None:
    if _added_tests(facts) or ProofTree.BASE in facts.runs:
        return None
    return ProofVerdict(Proof.UNPROVED, "no test passes that did not pass before")


class Red(Struct, frozen=True):
    ran: frozenset[str]
    """Tests that ran and failed."""
    absent: frozenset[str]
    """Tests that could not run, because a name or a file is missing."""


def red_tests(facts: ProofFacts) -> Red:
    """Which of the new-green tests are red in O."""
    new, old = new_green(facts), facts.runs[ProofTree.OLD]
    ran = frozenset(id for id in new if old.of(id) is Status.FAILED)
    absent = frozenset(id for id in new - ran if _did_not_load(id, old, facts.runs[ProofTree.HEAD]))
    return Red(ran, absent)


def _did_not_load(id: str, ran: TestRun, head: TestRun) -> bool:
    status = ran.of(id)
    if status is not None:
        return status is Status.ERROR
    # A missing test counts only if the runner reports that something did not load.
    failing = ran.with_status(Status.FAILED, Status.ERROR)
    # Some runners name the file that did not load, others only exit with an error.
    return bool(failing - set(head.tests or ())) or (not failing and ran.code not in (0, None, *NOT_RED))


def _red_without_the_code(facts: ProofFacts) -> Answer | None:
    old = facts.runs.get(ProofTree.OLD)
    if old is None:
        return ProofTree.OLD
    if old.timed_out:
        return ProofVerdict(Proof.UNPROVED, "without the code the new tests do not end in time, which is not red")
    red = red_tests(facts)
    if red.ran or red.absent:
        return None
    differs = _red_twice(facts) if ProofTree.AGAIN in facts.runs else None
    if differs is not None:
        # The trees run in random order: the second run was first, and was red.
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
    flaky = sorted(id for id in new_green(facts) if old.of(id) is not again.of(id))
    if not flaky and not again.timed_out:
        return None
    reason = f"without the code, two runs of the same tests differ: {some(flaky) or 'one did not end in time'}"
    return ProofVerdict(Proof.FLAKY, reason, {"flaky": tuple(flaky)})


def _needs_the_code(facts: ProofFacts) -> Answer:
    """The last rule: a new test must be red without the code, and red with its names but without its behaviour."""
    if facts.hollow and ProofTree.HOLLOW not in facts.runs:
        return ProofTree.HOLLOW
    red = red_tests(facts)
    red_ids = red.ran | red.absent
    tree, left = ProofTree.HOLLOW, facts.left
    if facts.shallow and not any(facts.runs[tree].of(id) is not None or facts.runs[tree].timed_out for id in red_ids):
        tree, left = ProofTree.SHALLOW, facts.left_shallow
        if tree not in facts.runs:
            return tree
    if not facts.hollow:
        decisive = red.ran
    elif facts.has_empty_bodies:
        # A tree that does not load or end proves nothing.
        failed = () if facts.runs[tree].timed_out else facts.runs[tree].with_status(Status.FAILED, Status.ERROR)
        decisive = red_ids.intersection(failed)
    else:
        decisive = frozenset(id for id in red.ran if not _passes_in(facts, tree, id))
    if decisive and facts.reads_source and facts.changed.code:
        respelled = facts.runs.get(ProofTree.RESPELLED)
        if respelled is None:
            return ProofTree.RESPELLED
        spelling_only = decisive - respelled.passed
        decisive -= spelling_only
        if spelling_only and not decisive:
            names = tuple(sorted(spelling_only))
            reason = f"the new tests depend on how the code is spelled, not on what it does: {some(names)}"
            return ProofVerdict(Proof.UNPROVED, reason, {"new": names})
    if decisive:
        return _proved_verdict(facts, decisive & red.ran, decisive - red.ran)
    return _inconclusive(facts, red, tree, left)


def _inconclusive(facts: ProofFacts, red: Red, tree: ProofTree, left: tuple[str, ...]) -> Answer:
    """No test failed in X."""
    red_ids = tuple(sorted(red.ran | red.absent))
    passing = tuple(id for id in red_ids if facts.hollow and _passes_in(facts, tree, id))
    if not passing and not (facts.hollow and facts.has_empty_bodies):
        reason = f"red only because the tests could not load: {some(red_ids)}"
        return ProofVerdict(Proof.ABSENT, reason + _uncovered_text(facts), {"absent": red_ids})
    if not passing and red.ran and facts.runs[tree].timed_out:
        # The test waits for an answer that only the new code gives.
        return _proved_verdict(facts, red.ran, ())
    if passing and not left:
        if facts.has_old_bodies or not red.ran:
            reason = f"the new tests pass with the changed code hollowed out: {some(passing)}"
            return ProofVerdict(Proof.UNPROVED, reason, {"new": passing})
        if not facts.reads_source:
            # An empty body may be right. The old body was wrong.
            return _proved_verdict(facts, red.ran, ())
        reason = f"these tests pass with the changed code hollowed out, and may read its source: {some(passing)}"
        return ProofVerdict(Proof.WEAK, reason, {"weak": passing})
    if passing:
        reason = f"these tests pass with the changed code hollowed out, but a part of it still runs: {some(left)}"
    else:
        reason = "it is not clear whether these tests depend on the change: the hollow tree does not load or end"
    return ProofVerdict(Proof.WEAK, f"{reason}. Tests: {some(red_ids)}", {"weak": red_ids})


def _passes_in(facts: ProofFacts, tree: ProofTree, id: str) -> bool:
    return facts.runs[tree].of(id) in (Status.PASSED, Status.SKIPPED)


def _proved_verdict(facts: ProofFacts, ran: Collection[str], absent: Collection[str]) -> ProofVerdict:
    idle = sorted(new_green(facts) - set(ran) - set(absent))
    groups = {"red": sorted(ran), "red by absence": sorted(absent), "green from the start": idle}
    count = len(ran) + len(absent)
    reason = f"{count} test{'s are' if count != 1 else ' is'} red without the code and green with it"
    reason += _uncovered_text(facts)
    return ProofVerdict(Proof.PROVED, reason, {name: tuple(ids) for name, ids in groups.items() if ids})


def _uncovered_text(facts: ProofFacts) -> str:
    """Names the parts that the proof did not cover."""
    parts = [*facts.left, *(f"{path} (Windlass cannot empty its functions)" for path in facts.put_back)]
    return f"; not hollowed out: {some(parts)}" if parts else ""


def possible_trees(facts: ProofFacts) -> tuple[ProofTree, ...]:
    """The trees that the rules may ask for, in their order."""
    first = (ProofTree.HEAD, *((ProofTree.BASE,) if facts.in_base else ()))
    old = (ProofTree.WITH_OLD_TESTS,) if facts.in_base else ()
    hollow = (ProofTree.HOLLOW,) if facts.hollow else ()
    spelling_only = (ProofTree.RESPELLED,) if facts.reads_source and facts.changed.code and not facts.coarse else ()
    match facts.declared:
        case Declaration.ADDS:
            return (*first, *old, ProofTree.OLD, ProofTree.AGAIN, *hollow, *spelling_only)
        case Declaration.BEHAVIOUR:
            return (*first, ProofTree.OLD, ProofTree.AGAIN, *hollow, *spelling_only)
        case Declaration.PRESERVE:
            return (*first, *old)
        case Declaration.TEST_ONLY:
            return first
        case Declaration.EXEMPT:
            return ()


def shuffle_trees(trees: Collection[ProofTree], seed: str) -> list[ProofTree]:
    """The trees in an order that cannot be guessed without the seed."""
    return sorted(trees, key=lambda tree: digest([seed, tree.value]))


def _preserved_verdict(facts: ProofFacts) -> Answer:
    base = facts.runs.get(ProofTree.BASE)
    passed = tuple(sorted(base.passed)) if base else ()
    if not passed:
        return ProofVerdict(Proof.UNPROVED, "no test covers the behaviour to preserve")
    return ProofVerdict(Proof.PRESERVED, f"{len(passed)} tests of the base pass with the new code", {"kept": passed})


def _tests_only(facts: ProofFacts) -> Answer:
    new = tuple(sorted(new_green(facts)))
    return ProofVerdict(Proof.TESTS_ONLY, f"declared test-only; {len(new)} new tests", {"new": new} if new else {})


_START: tuple[Rule, ...] = (_harness, _no_code_changed)
_FIRST: tuple[Rule, ...] = (*_START, _only_tests, _has_test)
_GREEN: tuple[Rule, ...] = (_head_is_green, _base_is_green, _nothing_emptied, _nothing_weakened)
_RED: tuple[Rule, ...] = (_something_new_passes, _red_without_the_code, _red_twice, _needs_the_code)
PRECISE: dict[Declaration, tuple[Rule, ...]] = {
    Declaration.ADDS: (*_FIRST, *_GREEN, _expectations_kept, *_RED),
    Declaration.BEHAVIOUR: (*_FIRST, *_GREEN, _feature_removed, *_RED),
    Declaration.TEST_ONLY: (*_START, _no_code, *_GREEN, _tests_only),
    Declaration.PRESERVE: (*_START, *_GREEN, _expectations_kept, _preserved_verdict),
    Declaration.EXEMPT: (_harness, _exempt),
}
_COARSE_GREEN: tuple[Rule, ...] = (coarse.nothing_weakened, coarse.head_is_green, coarse.base_is_green)
_COARSE_RED: tuple[Rule, ...] = (coarse.red_without_the_code, coarse.proved_verdict)
COARSE: dict[Declaration, tuple[Rule, ...]] = {
    Declaration.ADDS: (*_FIRST, *_COARSE_GREEN, coarse.expectations_kept, *_COARSE_RED),
    Declaration.BEHAVIOUR: (*_FIRST, *_COARSE_GREEN, *_COARSE_RED),
    Declaration.TEST_ONLY: (*_START, _no_code, *_COARSE_GREEN, coarse.tests_only),
    Declaration.PRESERVE: (*_START, *_COARSE_GREEN, coarse.expectations_kept, coarse.preserved_verdict),
    Declaration.EXEMPT: (_harness, _exempt),
}
