"""Finds the tip of a run in its journal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from windlass.model import Key
from windlass.store.port import Store
from windlass.store.rows import StepRow


def tip_of_run(store: Store, run: str, shown: str = "") -> str:
    """The commit that counts as the run's tip. Refs do not count.

    A run that is older than the table of tips uses the commit of its last recorded step. There is one exception:
    `shown`, the commit of the ref, counts if it is the commit of a replaced step that has not run again.
    """
    tips = store.tips.all(run)
    if tips:
        return tips[-1]
    base, steps = store.runs.get(run).base, store.steps.all(run)
    replaced = {tip_of_step(step) for step in store.steps.superseded(run)} - {tip_of_step(step) for step in steps}
    return shown if shown and shown in replaced else tip_of_steps(steps, base)


def tip_of_steps(steps: Sequence[StepRow], base: str) -> str:
    """The commit that the last of these steps put on the run's tip."""
    return next(iter(tips_of_steps(steps)), base)


def tips_of_steps(steps: Iterable[StepRow]) -> list[str]:
    """Every commit that a step put on the run's tip, the last one first."""
    ordered = sorted(steps, key=lambda step: step.seq, reverse=True)
    return [commit for step in ordered if (commit := tip_of_step(step))]


def tip_of_step(step: StepRow) -> str:
    """The commit that the step put on the run's tip; '' when it put none."""
    last, result = Key.parse(step.key).parts[-1].id, step.result
    if isinstance(result, dict) and last == "land":
        # The landing of a task, or of a fix for the whole run.
        landed = result["kind"] == "landed" if "kind" in result else not result.get("refused", True)
        return str(result["tip"]) if landed else ""
    if isinstance(result, dict) and last == "restart":
        # Only a restart that resets the code moves the tip.
        return str(result["tip"]) if result["kept"] else ""
    commits = last in ("commit", "progress") or last.startswith(("adopted.", "tip."))
    return result if commits and isinstance(result, str) else ""
