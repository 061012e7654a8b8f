"""The one line that a shell shows when a session starts in a repository with an unfinished run."""

from __future__ import annotations

import shlex

from windlass.model import RunState
from windlass.text import clean, plural

LONGEST_REQUEST, LONGEST_QUESTION = 60, 80


def brief_line(run: str, request: str, state: RunState, *, driven: bool, question: str = "", others: int = 0) -> str:
    if question:
        does, command = f"waits for your answer to '{clean(question, LONGEST_QUESTION)}'", "windlass status"
    elif driven:
        does, command = "is at work", "windlass log --follow"
    else:
        does, command = "has no driver" if state is RunState.RUNNING else f"is {state}", "windlass resume"
    more = f" ({plural(others, 'more run')}: windlass runs)" if others else ""
    return f"windlass: run {run} ({clean(request, LONGEST_REQUEST)}) {does}: {command} {shlex.quote(run)}{more}"
