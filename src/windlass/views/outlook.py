"""What a run does, what it waits for, and the next command that a person can type."""

from __future__ import annotations

import re
import shlex
from typing import NamedTuple

from windlass.model import RunState
from windlass.text import clean, elapsed, hhmm, short_sha, spoken
from windlass.views.state import MessageView, QuestionView, Running, View

#: commands of Windlass in a hint, except those that already name a repository
COMMAND = re.compile(r"\bwindlass (?=[a-z])(?!run --repo)")

OWN_LINE = re.compile(r"^    windlass (?=[a-z])", re.MULTILINE)


class Outlook(NamedTuple):
    waiting: str
    """What the run waits for; '' when it waits for nothing."""
    command: str
    """The next command that a person can type."""


def outlook(view: View, now: float, driver_alive: bool | None = None) -> Outlook:
    if view.state is RunState.FINISHED:
        return Outlook("", land_command(view) if view.has_code and not view.is_landed else show_command(view))
    if view.state is RunState.ABORTED:
        return Outlook("", show_command(view))
    if view.questions:
        question = next(iter(view.questions.values()))
        return Outlook(f"your answer to '{clean(question.text, 200)}'", answer_command(question, view.run, view.place))
    quota = ""
    if pending := [wait for wait in view.waits.values() if wait.until > now]:
        last = max(pending, key=lambda wait: wait.until)
        end = f"{hhmm(last.until)} UTC (in {elapsed(last.until - now)})"
        quota = f"the quota of {clean(last.credential, 60)} until {end}: {clean(last.reason, 120)}"
    if view.state is RunState.RUNNING and driver_alive is not False:
        waiting = quota or "the driver's next step"
        if view.running:
            names = ", ".join(running.role for running in view.running.values())
            waiting = f"{names} to end" + (f"; {quota}" if quota else "")
        return Outlook(waiting, f"{program(view.place)} log {shell_word(view.run)} --follow")
    if quota:
        return Outlook(f"{quota}, then for you to resume it", resume_command(view))
    match view.state:
        case RunState.RUNNING:
            waiting = "you to resume it: no driver is running. Finished steps are kept"
        case RunState.WAITING:
            waiting = "you to resume it: every question has an answer"
        case RunState.PAUSED:
            waiting = "you to resume it"
        case _:
            waiting = "you to fix the cause and resume it"
    return Outlook(waiting, resume_command(view))


def shell_word(value: str) -> str:
    """The value, quoted as one word of a shell command."""
    return shlex.quote(clean(value, 300))


def program(place: str) -> str:
    """The start of every command. It names the repository unless the person is in it."""
    return f"windlass --repo {shell_word(place)}" if place else "windlass"


def add_repository(hint: str, place: str) -> str:
    """A hint with `--repo` in its commands, so that they work from the person's folder."""
    return COMMAND.sub(lambda _: f"{program(place)} ", hint) if place else hint


def add_repository_to_report(text: str, place: str) -> str:
    """As `add_repository`, for a long text, in which only indented lines are commands."""
    return OWN_LINE.sub(lambda _: f"    {program(place)} ", text) if place else text


def answer_command(question: QuestionView, run: str = "", place: str = "") -> str:
    words = [program(place), "answer", *([shell_word(run)] if run else []), shell_word(question.key), "VALUE"]
    return " ".join(words)


def resume_command(view: View) -> str:
    return f"{program(view.place)} resume {shell_word(view.run)}"


def land_command(view: View) -> str:
    return f"{program(view.place)} land {shell_word(view.run)}"


def show_command(view: View) -> str:
    return f"{program(view.place)} show {shell_word(view.run)}"


def diff_command(view: View) -> str:
    """'' while there is no diff."""
    if not view.has_code:
        return ""
    if view.published and view.shown_at != view.tip:
        return f"{program(view.place)} show {shell_word(view.run)} --diff"
    branch = view.published or view.branch
    base = view.base or next((task.base for task in view.tasks if task.base), "")
    return f"git diff {shell_word(short_sha(base))}..{shell_word(branch)}" if branch and base else ""


def code_place(view: View) -> str:
    """Where the code is, as 'branch windlass/x at 1a2b3c4'. The tip is right even if the branch is not."""
    branch, tip = clean(view.published or view.branch, 200), short_sha(view.tip)
    if not view.published:
        return f"{branch} at {tip}, not published yet"
    if view.shown_at == view.tip:
        return f"{branch} at {tip}"
    if not view.shown_at:
        return f"commit {tip}; branch {branch} is gone"
    return f"commit {tip}; branch {branch} is still at {short_sha(view.shown_at)}"


def landed_line(view: View) -> str:
    """Where a person landed the code; '' before the first landing."""
    if view.landed is None:
        return ""
    done, more = view.landed, "" if view.is_landed else "; the run has landed more since"
    return f"on {clean(done.branch, 200)} at {short_sha(done.commit)} ({done.how}, checks: {done.checks}){more}"


def headline(view: View) -> str:
    """The phase and its progress, as 'execute: task 2/3 Rate limit middleware (reviewing)'."""
    if view.phase is None:
        return "not started"
    task = view.current_task
    name = spoken(view.phase.name)
    stage = f"{view.stage} / " if view.stage else ""
    if task and view.phase.kind == "tasks":
        return f"{stage}{name}: task {task.index}/{len(view.tasks)} {clean(task.title, 80)} ({task.step or task.state})"
    return f"{stage}{name}{elicit_progress(view)}"


def elicit_progress(view: View) -> str:
    """How many of the proposed items the person has answered, as ' 2/5'."""
    here = view.phase.id if view.phase and view.phase.kind == "elicit" else ""
    found = next((one for one in view.proposed.values() if one.phase == here), None)
    if found is None or found.item == "approaches":
        return ""
    done = len(view.settled_answers(found.item))
    return f" {min(done + 1, len(found.items))}/{len(found.items)}"


def running_line(running: Running, now: float) -> str:
    attempt = f", attempt {running.attempt}" if running.attempt > 1 else ""
    doing = f": {clean(running.doing, 100)}" if running.doing else ""
    return f"{running.agent_text} on {running.key}{attempt}, for {elapsed(now - running.since)}{doing}"


def message_line(message: MessageView) -> str:
    if message.delivered_to:
        return f"{message.text}: delivered to {message.delivered_to} at {hhmm(message.delivered_at)} UTC"
    return f"{message.text}: not delivered yet; it waits for {message.addressee}"
