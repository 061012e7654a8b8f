"""The running agents: a block with the last actions for one or two agents, a row each for more."""

from __future__ import annotations

from windlass.interfaces.terminal.live_state import LAST, Action, ActionState, Live
from windlass.interfaces.terminal.spans import Line, Look, Span, Tone, cut, row
from windlass.text import elapsed, money, plural
from windlass.views.state import Running

#: more than these are shown as rows
MOST_BLOCKS = 2
LEAST_ACTIONS = 2
BESIDE_DETAILS = 3
SIGNS = {
    ActionState.OK: ("✓", Tone.GOOD),
    ActionState.FAILED: ("✗", Tone.BAD),
    ActionState.RUNNING: ("▸", Tone.NOW),
    ActionState.SAID: ("·", Tone.DIM),
}


def rows_wanted(live: Live) -> int:
    running = live.view.running
    if len(running) > MOST_BLOCKS:
        return len(running)
    most = BESIDE_DETAILS if live.details else LAST
    return sum(1 + min(len(live.actions.get(key, ())), most) for key in running)


def block(live: Live, look: Look, now: float, room: int) -> list[Line]:
    running = list(live.view.running.values())
    if not running or room < 1:
        return []
    actions = min(room // len(running) - 1, LAST)
    if len(running) > MOST_BLOCKS or actions < LEAST_ACTIONS:
        return compact(live, look, now, room)
    return [line for one in running for line in _full(one, live, look, now, actions)]


def compact(live: Live, look: Look, now: float, room: int) -> list[Line]:
    running = list(live.view.running.values())
    shown = running if len(running) <= room else running[: max(room - 1, 0)]
    widest = max((len(look.text(_task_role(one, live), 40)) for one in shown), default=0)
    rows = [_compact(one, live, look, now, min(widest, look.width // 3)) for one in shown]
    left = len(running) - len(shown)
    return [*rows, (Span(f"  and {plural(left, 'more agent')} at work", Tone.DIM),)] if left else rows


def _full(running: Running, live: Live, look: Look, now: float, actions: int) -> list[Line]:
    who = " ".join(part for part in (running.agent, running.model) if part)
    cycle = f"{running.purpose} {running.cycle}" + (f"/{running.cycles}" if running.cycles else "")
    tries = f"try {running.attempt}" if running.attempt > 1 else ""
    about = look.joined((look.text(who, 60), look.text(cycle, 30) if running.cycle else "", tries))
    left = (look.span(running.role, Tone.STRONG), Span("  "), Span(about, Tone.DIM))
    task = live.view.task(running.task)
    place = f"task {task.index}/{len(live.view.tasks)}" if task else ""
    facts = look.joined((place, *_clock(running, now)))
    ring = list(live.actions.get(running.key, ()))[-actions:]
    return [row(left, (Span(facts, Tone.DIM),), look), *(_action(one, look) for one in ring)]


def _action(action: Action, look: Look) -> Line:
    sign, tone = SIGNS[action.done]
    text = Tone.DIM if action.done in (ActionState.SAID, ActionState.OK) else Tone.PLAIN
    why = (
        (look.span(f": {action.why}", Tone.DIM if action.done is ActionState.RUNNING else Tone.BAD, 200),)
        if action.why and action.why not in action.text
        else ()
    )
    line = (Span("  "), look.span(sign, tone), Span(" "), look.span(action.text, text), *why)
    return cut(line, look.width, look.ellipsis)


def _compact(running: Running, live: Live, look: Look, now: float, column: int) -> Line:
    action = live.last(running)
    sign, tone = SIGNS[action.done if action else ActionState.RUNNING]
    name = look.text(_task_role(running, live), 40)[:column].ljust(column)
    doing = look.text(action.text if action else "starting", 200)
    model = look.text(running.model or running.agent, 24) if look.width >= 100 else ""
    left = (look.span(sign, tone), Span(f" {name}  ", Tone.STRONG), Span(doing))
    return row(left, (Span(look.joined((model, *_clock(running, now))), Tone.DIM),), look)


def _task_role(running: Running, live: Live) -> str:
    task = live.view.task(running.task)
    return f"{task.index} {running.role}" if task else running.role


def _clock(running: Running, now: float) -> tuple[str, str]:
    cost = money(running.cost_usd) if running.cost_usd is not None else ""
    return cost, elapsed(now - running.since)
