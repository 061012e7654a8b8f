"""The live view as a pure function: from the state, the screen size and the time to lines."""

from __future__ import annotations

from windlass.interfaces.terminal import panel_agents as agents
from windlass.interfaces.terminal.live_state import Live, Mood
from windlass.interfaces.terminal.spans import BLANK, Line, Look, Span, Tone, cut, row
from windlass.text import elapsed, hhmm, money, plural, spoken
from windlass.views.outlook import elicit_progress, headline
from windlass.views.stages import stage_line
from windlass.views.state import COMPLETE, ENDED, IMPLEMENTED, SKIPPED, TaskView, View

CELLS = 20
#: rows that the task list keeps when the screen is too small for everything
LEAST_TASKS = 4
QUIET_S = 90.0
#: rows of a screen that has no room for the line of stages
LOW = 10
KEYS = (("p", "pause"), ("t", "tell"), ("d", "details"), ("b", "background"))


def panel(live: Live, look: Look, now: float) -> list[Line]:
    """The whole view, in at most `look.height` lines."""
    top = _top(live, look, now)
    bottom = [*warnings(live, look, now), *footer(live, look, now)]
    room = look.height - 1 - len(top) - len(bottom) - bool(bottom)
    # Each section needs a blank line. Agents have priority over tasks, tasks over details.
    wanted = 0 if live.ended else agents.rows_wanted(live) + bool(live.view.running)
    listed = min(len(live.view.tasks), LEAST_TASKS) + 2
    tasks = progress(live, look, now, max(room - wanted, min(listed, room)) - 1)
    room -= len(tasks) + bool(tasks)
    more = details(live, look)[: max(room - wanted - 1, 0)] if live.details and not live.ended else []
    room -= len(more) + bool(more)
    working = [] if live.ended else agents.block(live, look, now, room - 1)
    sections = [top, tasks, more, working, bottom]
    lines = [line for section in sections if section for line in (BLANK, *section)]
    return lines[: look.height]


def panel_above_dialog(live: Live, look: Look, now: float, room: int) -> list[Line]:
    """The short view while a question is open: the run's phase and its running agents."""
    rows = agents.compact(live, look, now, max(room - 3, 1)) if live.view.running else []
    return [BLANK, *_top(live, look, now), *rows, BLANK]


def _top(live: Live, look: Look, now: float) -> list[Line]:
    view = live.view
    name = look.joined((look.text(view.flow, 30), look.text(view.run, 20)))
    head = row((look.span(view.request, Tone.STRONG),), (Span(name, Tone.DIM),), look)
    if view.phase is None:
        return [head]
    since = "" if live.ended else elapsed(now - view.phase.since)
    sign = "✓" if live.ended and view.state.final else "▸"
    tone = Tone.DIM if live.ended else Tone.NOW
    left = (look.span(sign, tone), Span(" "), look.span(headline(view), tone))
    now_line = row(left, (Span(since, Tone.DIM),) if since else (), look)
    return [head, *_stages(view, look), now_line]


def _stages(view: View, look: Look) -> list[Line]:
    """One line with all stages, if the flow has some and the screen has the room."""
    if not view.stages or look.height < LOW:
        return []
    return [cut((look.span(stage_line(view, look.width), Tone.DIM),), look.width, look.ellipsis)]


# -- tasks


def progress(live: Live, look: Look, now: float, room: int) -> list[Line]:
    """A bar, and all tasks, or those around the first that has not ended, with a count of the others."""
    tasks = live.view.tasks
    if not tasks or room < 1:
        return []
    head, room = bar(live.view, look), room - 1
    if len(tasks) <= room or live.ended:
        return [head, *(_task(task, live, look, now) for task in tasks)]
    if room < 3:
        return [head, *[_task(task, live, look, now) for task in tasks if task.active][: max(room, 0)]]
    first = next((n for n, task in enumerate(tasks) if not task.ended), len(tasks))
    begin = max(0, min(first - 1, len(tasks) - (room - 2)))
    end = min(len(tasks), begin + room - 2)
    rows = [_task(task, live, look, now) for task in tasks[begin:end]]
    before = [_left_out("✓", tasks[:begin], look)] if begin else []
    after = [_left_out("○", tasks[end:], look)] if end < len(tasks) else []
    return [head, *before, *rows, *after]


def bar(view: View, look: Look) -> Line:
    done = len(view.tasks_in(COMPLETE, IMPLEMENTED))
    share = done / len(view.tasks)
    full = int(share * CELLS)
    return (
        look.span("█" * full, Tone.GOOD),
        look.span("░" * (CELLS - full), Tone.DIM),
        Span(f"  {int(share * 100)}%", Tone.STRONG),
        Span(f"  {done}/{len(view.tasks)} tasks", Tone.DIM),
    )


def _left_out(sign: str, tasks: list[TaskView], look: Look) -> Line:
    bad = sum(task.ended and task.state not in (COMPLETE, SKIPPED) for task in tasks)
    trouble = f", {bad} not complete" if bad else ""
    return Span("  "), look.span(f"{sign} {plural(len(tasks), 'more task')}{trouble}", Tone.DIM)


def _task(task: TaskView, live: Live, look: Look, now: float) -> Line:
    if task.state == COMPLETE:
        sign, tone = "✓", Tone.GOOD
    elif task.ended:
        sign, tone = ("–", Tone.DIM) if task.state == SKIPPED else ("✗", Tone.BAD)
    else:
        sign, tone = ("▸", Tone.NOW) if task.active else ("○", Tone.DIM)
    number = f"{task.index}".rjust(len(str(len(live.view.tasks))))
    title = Tone.PLAIN if task.active else (Tone.DIM if task.state != COMPLETE else Tone.PLAIN)
    left = (Span("  "), look.span(sign, tone), Span(f" {number} "), look.span(task.title, title))
    right = look.joined(_task_facts(task, look, now)) if task.state != "pending" else ""
    return row(left, (Span(right, Tone.DIM if task.state not in ENDED - {COMPLETE} else tone),) if right else (), look)


def _task_facts(task: TaskView, look: Look, now: float) -> list[str]:
    began = task.started_at
    took = elapsed((task.ended_at if task.ended_at is not None else now) - began) if began is not None else ""
    cost = task.cost.cost.text if task.cost.dispatches else ""
    word = "" if task.state == COMPLETE else look.text(task.step if task.active and task.step else task.state, 30)
    unchecked = "unchecked" if task.state == COMPLETE and task.checks == "unchecked" else ""
    return [word, unchecked, cost, took]


# -- warnings, details, footer


def warnings(live: Live, look: Look, now: float) -> list[Line]:
    """Current problems. Earlier warnings are in the lines above the view."""
    if live.ended:
        return []
    view, found = live.view, list[str]()
    for running in view.running.values():
        if now - max(running.seen_at, running.since) >= QUIET_S:
            quiet = elapsed(now - max(running.seen_at, running.since))
            found.append(f"{running.role}: no event for {quiet}; it may be stuck")
    found += [
        f"waiting for {wait.credential}, {elapsed(wait.until - now)} to go, until {hhmm(wait.until)} UTC: {wait.reason}"
        for wait in view.waits.values()
        if wait.until > now
    ]
    spent = view.cost.spent
    if view.limit_usd is not None and spent >= 0.9 * view.limit_usd:
        found.append(f"{view.cost.spent_of_limit} spent: the run will stop at its limit")
    elif view.warn_usd is not None and spent >= view.warn_usd:
        found.append(f"{money(spent)} spent, more than your warning limit of {money(view.warn_usd)}")
    shown = found[:2] + ([f"and {plural(len(found) - 2, 'more warning')}"] if len(found) > 2 else [])
    return [cut((look.span(f"! {text}", Tone.WARN),), look.width, look.ellipsis) for text in shown]


def details(live: Live, look: Look) -> list[Line]:
    view = live.view
    roles = [f"{look.text(role, 40)} {total.cost.text}" for role, total in view.by_role.items()]
    files = [look.text(made.path, 100) for made in view.artifacts.values() if made.path]
    calls = f"{view.spent.dispatches} dispatch" + ("" if view.spent.dispatches == 1 else "es")
    facts = (
        ("branch", look.text(view.published or view.branch, 100)),
        ("spent", look.joined(roles)),
        ("tokens", f"{view.spent.input:,} in, {view.spent.output:,} out, {calls}"),
        ("files", look.joined(files)),
        ("working", look.joined(look.text(f"{one.key}@{one.attempt}", 100) for one in view.running.values())),
    )
    return [
        cut((Span(f"  {look.text(name, 20):<9}", Tone.DIM), Span(text)), look.width, look.ellipsis)
        for name, text in facts
        if text
    ]


def footer(live: Live, look: Look, now: float) -> list[Line]:
    if live.ended:
        return []
    view = live.view
    left = "" if view.cost.left is None else f"{money(view.cost.left)} left"
    words = look.joined([_where(view), view.cost.text, left, elapsed(now - view.started_at)])
    facts, keys = (look.span(words, Tone.DIM),), _keys(live, look)
    both = row(facts, keys, look, least=1000)
    if len(both) > len(facts):
        return [both]
    return [cut(facts, look.width, look.ellipsis), cut(keys, look.width, look.ellipsis)]


def _where(view: View) -> str:
    if view.phase is None:
        return "starting"
    task = view.current_task
    if view.phase.kind == "tasks" and view.tasks:
        at = task.index if task else min(sum(one.ended for one in view.tasks) + 1, len(view.tasks))
        return f"{spoken(view.phase.name)} task {at}/{len(view.tasks)}"
    asked = view.asked.get(view.phase.id, 0)
    known = elicit_progress(view) or (f", question {asked}" if asked and view.questions else "")
    return f"{spoken(view.phase.name)}{known}"


def _keys(live: Live, look: Look) -> Line:
    match live.mood:
        case Mood.PAUSING:
            text = "pausing when the agents finish; p: continue, Ctrl-C: stop now"
        case Mood.LEAVING:
            text = "moving to the background when the agents finish; b again: now"
        case Mood.STOPPING:
            text = "stopping"
        case Mood.RUNNING:
            spans = [(Span(key, Tone.STRONG), Span(f" {word}  ", Tone.DIM)) for key, word in KEYS]
            flat = [span for pair in spans for span in pair]
            return (*flat[:-1], Span(flat[-1].text.rstrip(), Tone.DIM))
    return (look.span(text, Tone.WARN),)
