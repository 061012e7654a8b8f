"""The graph of a plan's tasks: waves, and the longest chain behind each task. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from windlass.events import TasksListed
from windlass.model import Task


def layers(tasks: Sequence[Task]) -> dict[str, int]:
    """The wave of each task: one more than the highest wave of its dependencies."""
    return _longest({task.id: task.depends_on for task in tasks})


def with_groups(key: str, tasks: Sequence[Task]) -> TasksListed:
    """The recorded list: each task with its wave."""
    group = layers(tasks)
    return TasksListed(key, [{**task.to_json(), "group": group[task.id]} for task in tasks])


def chains(tasks: Sequence[Task]) -> dict[str, int]:
    """The length of the longest chain of tasks that begins with each task."""
    after: dict[str, list[str]] = {task.id: [] for task in tasks}
    for task in tasks:
        for id in task.depends_on:
            if id in after:
                after[id].append(task.id)
    return _longest(after)


def _longest(next_of: Mapping[str, Collection[str]]) -> dict[str, int]:
    """The longest path from each node, in nodes. Without recursion: a plan may be one long chain."""
    found: dict[str, int] = {}
    for start in next_of:
        todo, on_the_way = [(start, iter(next_of[start]))], {start}
        while todo:
            id, rest = todo[-1]
            ahead = next((to for to in rest if to in next_of and to not in found and to not in on_the_way), None)
            if ahead is not None:
                todo.append((ahead, iter(next_of[ahead])))
                on_the_way.add(ahead)
                continue
            todo.pop()
            on_the_way.discard(id)
            found[id] = 1 + max((found.get(to, 0) for to in next_of[id]), default=0)
    return found
