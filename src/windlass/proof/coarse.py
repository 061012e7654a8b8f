"""The proof for a test command without a report. Exit codes must show B green, O red and H green."""

from __future__ import annotations

from windlass.proof.facts import NOT_RED, Answer, Proof, ProofFacts, ProofTree, ProofVerdict, TestRun, some


def head_is_green(facts: ProofFacts) -> Answer | None:
    return _green(facts, ProofTree.HEAD, "the tests of the task are not green at its head")


def base_is_green(facts: ProofFacts) -> Answer | None:
    return _green(facts, ProofTree.BASE, "these tests were not green before the task began") if facts.in_base else None


def _green(facts: ProofFacts, tree: ProofTree, what: str) -> Answer | None:
    ran = facts.runs.get(tree)
    if ran is None:
        return tree
    return None if ran.green else ProofVerdict(Proof.UNPROVED, f"{what} ({_end_text(ran)})\n{ran.tail}".rstrip())


def nothing_weakened(facts: ProofFacts) -> Answer | None:
    empty = tuple(sorted(facts.comparison.emptied))
    if empty:
        return ProofVerdict(Proof.WEAKENED, f"old tests no longer assert anything: {some(empty)}", {"weakened": empty})
    if not facts.removed:
        return None
    return ProofVerdict(Proof.WEAKENED, f"test files are gone: {some(facts.removed)}", {"weakened": facts.removed})


def expectations_kept(facts: ProofFacts) -> Answer | None:
    ran = facts.runs.get(ProofTree.WITH_OLD_TESTS)
    if ran is None:
        return ProofTree.WITH_OLD_TESTS if facts.in_base else None
    if ran.green:
        return None
    return ProofVerdict(Proof.EXPECTATION, f"the old tests fail with the new code ({_end_text(ran)})")


def red_without_the_code(facts: ProofFacts) -> Answer | None:
    for tree in (ProofTree.OLD, ProofTree.AGAIN):
        ran = facts.runs.get(tree)
        if ran is None:
            return tree
        if ran.timed_out or ran.code in (None, *NOT_RED):
            return ProofVerdict(
                Proof.UNPROVED, f"without the code the tests do not run ({_end_text(ran)}), which is not red"
            )
        if ran.green and tree is ProofTree.OLD:
            return ProofVerdict(Proof.UNPROVED, "the tests pass without the code")
        if ran.green:
            return ProofVerdict(Proof.FLAKY, "without the code, the tests were red once and green once")
    return None


def proved_verdict(facts: ProofFacts) -> Answer:
    hollow = facts.runs.get(ProofTree.HOLLOW)
    if facts.hollow and hollow is None:
        return ProofTree.HOLLOW
    if hollow is not None and hollow.green and facts.has_old_bodies and not facts.left:
        return ProofVerdict(Proof.UNPROVED, "the tests pass with the changed code hollowed out")
    return ProofVerdict(Proof.COARSE, "red without the code and green with it, by exit codes alone")


def preserved_verdict(facts: ProofFacts) -> Answer:
    if not facts.in_base:
        return ProofVerdict(Proof.UNPROVED, "no test covers the behaviour to preserve")
    return ProofVerdict(Proof.PRESERVED, "the tests of the base pass with the new code, by exit codes alone")


def tests_only(facts: ProofFacts) -> Answer:
    return ProofVerdict(Proof.TESTS_ONLY, "declared test-only; the tests pass")


def _end_text(ran: TestRun) -> str:
    return f"ended after {ran.seconds:.0f} s" if ran.timed_out else f"exit code {ran.code}"
