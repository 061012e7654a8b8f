"""Commits that recorded steps name, and the steps to repeat when such a commit is lost."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence

from windlass.model import Json, Key
from windlass.store.rows import StepRow

COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
TIPS = ("commit", "progress")
TIP_PREFIXES = ("adopted.", "tip.")
PLACES = ("base", "workspace")


def commits_of(step: StepRow) -> set[str]:
    """Every commit that the step's result names."""
    return {text for text in _named_commits(Key.parse(step.key).parts[-1].id, step.result) if COMMIT.fullmatch(text)}


def _named_commits(last: str, result: Json) -> Iterator[str]:
    if isinstance(result, dict):
        yield from (str(result[name]) for name in ("head", "tip") if isinstance(result.get(name), str))
    elif isinstance(result, str) and (last in (*TIPS, *PLACES) or last.startswith(TIP_PREFIXES)):
        yield result


def lost_steps(steps: Sequence[StepRow], lost: Collection[str], tasks: Collection[str]) -> list[str]:
    """Keys of the steps to repeat because their commits are lost.

    `tasks`: keys of phases with tasks below them. A task is repeated from its first lost step on, and so is everything
    that later phases made from it.
    """
    fallen: dict[str, int] = {}
    for step in sorted(steps, key=lambda step: step.seq):
        if commits_of(step) & set(lost):
            fallen.setdefault(_scope(step.key, tasks), step.seq)
    phases = {scope.split("/")[0] for scope in fallen}
    first = min(fallen.values(), default=0)

    def is_lost(step: StepRow) -> bool:
        scope, head = _scope(step.key, tasks), step.key.split("/")[0]
        if scope in fallen:
            return step.seq >= fallen[scope]
        return bool(fallen) and step.seq > first and head not in phases

    return [step.key for step in steps if is_lost(step)]


def _scope(key: str, tasks: Collection[str]) -> str:
    """The steps of a task are lost together; the steps of another phase are lost with the phase."""
    parts = key.split("/")
    return "/".join(parts[:2]) if parts[0] in tasks and len(parts) > 2 else parts[0]
