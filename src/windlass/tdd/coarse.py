"""The proof where the test command writes no report: B green, O red, H green, by exit codes."""

from __future__ import annotations

from windlass.tdd.facts import NOT_RED, Answer, Facts, Proof, Ran, Tree, Verdict, some


def head_is_green(facts: Facts) -> Answer | None:
    return _green(facts, Tree.HEAD, "the tests of the task are not green at its head")


def base_is_green(facts: Facts) -> Answer | None:
    return _green(facts, Tree.BASE, "these tests were not green before the task began") if facts.in_base else None


def _green(facts: Facts, tree: Tree, what: str) -> Answer | None:
    ran = facts.runs.get(tree)
    if ran is None:
        return tree
    return None if ran.green else Verdict(Proof.UNPROVED, f"{what} ({_ending(ran)})\n{ran.tail}".rstrip())


def nothing_weakened(facts: Facts) -> Answer | None:
    empty = tuple(sorted(facts.compared.emptied))
    if empty:
        return Verdict(Proof.WEAKENED, f"old tests claim nothing any more: {some(empty)}", {"weakened": empty})
    if not facts.removed:
        return None
    return Verdict(Proof.WEAKENED, f"test files are gone: {some(facts.removed)}", {"weakened": facts.removed})


def expectations_kept(facts: Facts) -> Answer | None:
    ran = facts.runs.get(Tree.WITH_OLD_TESTS)
    if ran is None:
        return Tree.WITH_OLD_TESTS if facts.in_base else None
    if ran.green:
        return None
    return Verdict(Proof.EXPECTATION, f"the tests as they were before fail with the new code ({_ending(ran)})")


def red_without_the_code(facts: Facts) -> Answer | None:
    for tree in (Tree.OLD, Tree.AGAIN):
        ran = facts.runs.get(tree)
        if ran is None:
            return tree
        if ran.timed_out or ran.code in (None, *NOT_RED):
            return Verdict(Proof.UNPROVED, f"without the code the tests do not run ({_ending(ran)}), which is not red")
        if ran.green and tree is Tree.OLD:
            return Verdict(Proof.UNPROVED, "the tests pass without the code")
        if ran.green:
            return Verdict(Proof.FLAKY, "without the code, the tests were red once and green once")
    return None


def proved(facts: Facts) -> Answer:
    hollow = facts.runs.get(Tree.HOLLOW)
    if facts.hollow and hollow is None:
        return Tree.HOLLOW
    if hollow is not None and hollow.green and facts.sure and not facts.left:
        return Verdict(Proof.UNPROVED, "the tests pass with the changed code hollowed out")
    return Verdict(Proof.COARSE, "red without the code and green with it, by exit codes alone")


def preserved(facts: Facts) -> Answer:
    if not facts.in_base:
        return Verdict(Proof.UNPROVED, "no test guards what is to be preserved")
    return Verdict(Proof.PRESERVED, "the tests of the base pass with the new code, by exit codes alone")


def tests_only(facts: Facts) -> Answer:
    return Verdict(Proof.TESTS_ONLY, "declared test-only; the tests pass")


def _ending(ran: Ran) -> str:
    return f"ended after {ran.seconds:.0f} s" if ran.timed_out else f"exit code {ran.code}"
