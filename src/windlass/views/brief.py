"""The one line that a shell shows when a session starts in a repository with an unfinished run."""

from __future__ import annotations

import shlex

from windlass.model import RunState
from windlass.text import clean, plural

LONGEST_REQUEST, LONGEST_QUESTION = 60, 80


def brief_line(run: str, request: str, state: RunState, *, driven: bool, question: str = "", others: int = 0) -> str:
    does, command = _state_and_command(state, driven=driven, question=question)
    more = f" ({plural(others, 'more run')}: windlass runs)" if others else ""
    return f"windlass: run {run} ({clean(request, LONGEST_REQUEST)}) {does}: {command} {shlex.quote(run)}{more}"


def _state_and_command(state: RunState, *, driven: bool, question: str) -> tuple[str, str]:
    if question:
        return f"waits for your answer to '{clean(question, LONGEST_QUESTION)}'", "windlass status"
    if driven:
        return "is at work", "windlass log --follow"
    lost = state is RunState.RUNNING
    return ("has no driver" if lost else f"is {state}"), "windlass resume"
