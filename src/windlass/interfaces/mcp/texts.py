"""Texts for an AI host: a run's progress, its question, and how to answer it with these tools."""

from __future__ import annotations

from windlass.answers import comment_wanted
from windlass.events import Recorded, ReportWritten
from windlass.model import Question, RunState
from windlass.text import Page, clean_block, shorten
from windlass.views.show import render_show
from windlass.views.state import View
from windlass.views.status import render_status

WIDTH = 100
LONGEST_REPORT = 20_000
LAST_LINES = 5


def status_text(view: View, now: float, *, driven: bool) -> str:
    return render_status(view, now, width=WIDTH, driver_alive=driven)


def full_text(view: View, now: float, *, driven: bool) -> str:
    return render_show(view, now, width=WIDTH, driver_alive=driven)


def report_text(view: View, records: list[Recorded]) -> str:
    """The report of a finished run; empty for any other."""
    texts = [recorded.event.text for recorded in records if isinstance(recorded.event, ReportWritten)]
    if not texts or view.state is not RunState.FINISHED:
        return ""
    return f"\nReport:\n\n{clean_block(texts[-1], LONGEST_REPORT).rstrip()}\n"


def question_text(key: str, question: Question) -> str:
    """S0-84: the question and its options, in a form that an agent can pass on."""
    page = Page(WIDTH)
    page.line()
    page.line(f"The run waits for an answer to '{question.id}' ({key}).")
    if question.title:
        page.line(question.title)
    page.block(question.detail, indent=2)
    page.line(question.text)
    for number, option in enumerate(question.options, 1):
        label = f" - {option.label}" if option.label != option.key else ""
        about = f": {option.about}" if option.about else ""
        page.line(f"{number}) {option.key}{label}{about}", indent=2, hang=3)
    if question.default:
        page.line(f"default: {question.default}", indent=2)
    if question.type == "multi":
        page.line("Answer with the keys, numbers or labels of some options, separated by commas.")
    elif question.options:
        page.line("Answer with one option's key, number or label.")
    elif question.type == "confirm":
        page.line("Answer with yes or no.")
    else:
        page.line("Answer with a whole number from 1." if question.check == "int" else "Answer with text.")
    for option in question.options:
        if comment_wanted(question, option.key):
            page.line(f"'{option.key}' takes a comment: '{option.key}: what to change'.")
    page.line("Unless the person left the choice to you, show them the question and pass on their answer.")
    return page.text()


def background_text(run: str, pid: int) -> str:
    return f"run {run} continues in the background (process {pid}); the tool status shows its progress\n"


def start_failure_text(run: str, log: str) -> str:
    last = "\n".join(clean_block(log[-4000:]).rstrip().splitlines()[-LAST_LINES:])
    return f"\nThe driver of run {run} ended before it started the run:\n{shorten(last, 1000)}\n"
