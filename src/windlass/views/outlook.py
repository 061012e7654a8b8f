"""Every wait is visible: what a run does, what it waits for, and the command that goes on."""

from __future__ import annotations

import re
import shlex
from typing import NamedTuple

from windlass.model import RunState
from windlass.text import clean, elapsed, hhmm, short_sha, spoken
from windlass.views.state import MessageView, QuestionView, Running, View

#: our own commands in a hint; one that names a repository itself is whole
COMMAND = re.compile(r"\bwindlass (?=[a-z])(?!run --repo)")

OWN_LINE = re.compile(r"^    windlass (?=[a-z])", re.MULTILINE)


class Outlook(NamedTuple):
    waiting: str
    """What it waits for; empty when it waits for nothing."""
    command: str
    """What a person can type next."""


def outlook(view: View, now: float, driver_alive: bool | None = None) -> Outlook:
    if view.state is RunState.FINISHED:
        return Outlook("", land_command(view) if view.has_code and not view.is_landed else show_command(view))
    if view.state is RunState.ABORTED:
        return Outlook("", show_command(view))
    if view.questions:
        question = next(iter(view.questions.values()))
        return Outlook(f"your answer to '{clean(question.text, 200)}'", answer_command(question, view.run, view.place))
    if view.state is RunState.RUNNING and driver_alive is not False:
        return Outlook(_at_work(view, now), f"{called(view.place)} log {shown(view.run)} --follow")
    return Outlook(_at_rest(view, now), resume_command(view))


def _at_work(view: View, now: float) -> str:
    timer = _timer(view, now)
    if view.running:
        names = ", ".join(running.role for running in view.running.values())
        return f"{names} to end" + (f"; {timer}" if timer else "")
    return timer or "the driver's next step"


def _at_rest(view: View, now: float) -> str:
    timer = _timer(view, now)
    if timer:
        return f"{timer}, then a resume"
    match view.state:
        case RunState.RUNNING:
            return "a driver: none is at work on this run, what has a result is kept"
        case RunState.WAITING:
            return "a driver: every question is answered"
        case RunState.PAUSED:
            return "you to go on"
        case _:
            return "you to mend the cause and go on"


def _timer(view: View, now: float) -> str:
    pending = [wait for wait in view.waits.values() if wait.until > now]
    if not pending:
        return ""
    last = max(pending, key=lambda wait: wait.until)
    end = f"{hhmm(last.until)} UTC (in {elapsed(last.until - now)})"
    return f"the quota of {clean(last.credential, 60)} until {end}: {clean(last.reason, 120)}"


def shown(value: str) -> str:
    """As one word of a command that can be pasted."""
    return shlex.quote(clean(value, 300))


def called(place: str) -> str:
    """The program, told where: who is not in the repository must say so with every command."""
    return f"windlass --repo {shown(place)}" if place else "windlass"


def addressed(hint: str, place: str) -> str:
    """A hint of ours whose commands work from where the person is."""
    return COMMAND.sub(lambda _: f"{called(place)} ", hint) if place else hint


def addressed_report(text: str, place: str) -> str:
    """As `addressed`, for a text that says many things: in it only a line of its own is a command."""
    return OWN_LINE.sub(lambda _: f"    {called(place)} ", text) if place else text


def answer_command(question: QuestionView, run: str = "", place: str = "") -> str:
    words = [called(place), "answer", *([shown(run)] if run else []), shown(question.key), "VALUE"]
    return " ".join(words)


def resume_command(view: View) -> str:
    return f"{called(view.place)} resume {shown(view.run)}"


def land_command(view: View) -> str:
    return f"{called(view.place)} land {shown(view.run)}"


def show_command(view: View) -> str:
    return f"{called(view.place)} show {shown(view.run)}"


def diff_command(view: View) -> str:
    """Empty while there is nothing to look at."""
    if not view.has_code:
        return ""
    if view.published and view.shown_at != view.tip:
        return f"{called(view.place)} show {shown(view.run)} --diff"
    branch = view.published or view.branch
    base = view.base or next((task.base for task in view.tasks if task.base), "")
    return f"git diff {shown(short_sha(base))}..{shown(branch)}" if branch and base else ""


def code_place(view: View) -> str:
    """Where the code is, as 'branch windlass/x at 1a2b3c4'. It is the tip, whatever became of the branch."""
    branch, tip = clean(view.published or view.branch, 200), short_sha(view.tip)
    if not view.published:
        return f"{branch} at {tip}, not published yet"
    if view.shown_at == view.tip:
        return f"{branch} at {tip}"
    if not view.shown_at:
        return f"commit {tip}; branch {branch} is gone"
    return f"commit {tip}; branch {branch} is still at {short_sha(view.shown_at)}"


def landed_line(view: View) -> str:
    """Where a person took the code; '' while nobody has."""
    if view.landed is None:
        return ""
    done, more = view.landed, "" if view.is_landed else "; the run has landed more since"
    return f"on {clean(done.branch, 200)} at {short_sha(done.commit)} ({done.how}, checks: {done.checks}){more}"


def headline(view: View) -> str:
    """Phase with its own progress, as 'execute: task 2/3 Rate limit middleware (reviewing)'."""
    if view.phase is None:
        return "not begun"
    task = view.current_task
    name = spoken(view.phase.name)
    stage = f"{view.stage} / " if view.stage else ""
    if task and view.phase.kind == "tasks":
        return f"{stage}{name}: task {task.index}/{len(view.tasks)} {clean(task.title, 80)} ({task.step or task.state})"
    return f"{stage}{name}{elicited(view)}"


def elicited(view: View) -> str:
    """How far the person is with what was proposed, as ' 2/5'."""
    here = view.phase.id if view.phase and view.phase.kind == "elicit" else ""
    found = next((one for one in view.proposed.values() if one.phase == here), None)
    if found is None or found.item == "approaches":
        return ""
    done = len(view.settled(found.item))
    return f" {min(done + 1, len(found.items))}/{len(found.items)}"


def at_work(running: Running, now: float) -> str:
    tries = f", attempt {running.attempt}" if running.attempt > 1 else ""
    doing = f": {clean(running.doing, 100)}" if running.doing else ""
    return f"{running.who} on {running.key}{tries}, for {elapsed(now - running.since)}{doing}"


def message_line(message: MessageView) -> str:
    if message.delivered_to:
        return f"{message.text}: delivered to {message.delivered_to} at {hhmm(message.delivered_at)} UTC"
    return f"{message.text}: not delivered yet; it waits for {message.whom}"
