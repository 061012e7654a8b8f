"""The task list of a plan: parsed from agents' markdown, checked, and matched with known tasks."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from graphlib import CycleError, TopologicalSorter
from itertools import count

from msgspec import Struct
from msgspec.structs import replace

from windlass.agents.contracts.fences import last_block
from windlass.model import Json, Task, is_id
from windlass.strict_yaml import Plain, YamlError, read, values
from windlass.text import plain

TAGS = ("superteam-tasks", "superteam-plan")
DIFFICULTIES = ("easy", "medium", "hard")
TDD = ("behaviour-change", "test-only", "preserve", "exempt")
MAX_TASKS = 10_000


class PlanTask(Struct, frozen=True):
    """One entry of a plan; `match_tasks` gives it the engine's id."""

    title: str
    id: str = ""
    """The id in the plan, otherwise ''."""
    description: str = ""
    files: tuple[str, ...] = ()
    depends_on: tuple[str, ...] = ()
    """As written: ids, positions (t1 is the first) or titles."""
    difficulty: str = "medium"
    tdd: str = ""
    """The rule of its proof; '' for code that comes with its test."""
    needs: tuple[int, ...] = ()
    """`depends_on` as positions in this plan, from 0."""

    def to_json(self) -> dict[str, Json]:
        return {
            "id": self.id,
            "title": self.title,
            "description": self.description,
            "files": list(self.files),
            "depends_on": list(self.depends_on),
            "difficulty": self.difficulty,
            **({"tdd": self.tdd} if self.tdd else {}),
        }


class PlanParse(Struct, frozen=True):
    tasks: tuple[PlanTask, ...] = ()
    problem: str = ""
    """'' when the list is valid; otherwise every problem, one a line."""
    empty: bool = False
    """There is no block or it lists nothing: the outcome `empty`, not a malformed plan."""


class MatchResult(Struct, frozen=True):
    tasks: tuple[Task, ...] = ()
    problem: str = ""


def parse_plan(markdown: str) -> PlanParse:
    block = last_block(markdown, TAGS)
    if block is None:
        return PlanParse(problem=f"there is no closed block tagged `{TAGS[0]}`", empty=True)
    try:
        entries = values(read(block))
    except YamlError as error:
        return PlanParse(problem=f"the `{TAGS[0]}` block is not valid YAML: {error}")
    return parse_entries(entries)


def parse_entries(entries: Plain | Json) -> PlanParse:
    """The same checks for a list that is already data."""
    if isinstance(entries, dict) and set(entries) == {"tasks"}:
        entries = entries["tasks"]
    if entries in (None, "", []):
        return PlanParse(problem="the task list is empty", empty=True)
    if not isinstance(entries, list):
        return PlanParse(problem="the task block must be a list of tasks")
    if len(entries) > MAX_TASKS:
        return PlanParse(problem=f"{len(entries)} tasks; at most {MAX_TASKS} are taken")
    problems: list[str] = []
    tasks = [_entry(number, item, problems) for number, item in enumerate(entries, 1)]
    if problems:
        return PlanParse(problem="\n".join(problems))
    return _resolve(tasks)


def _entry(number: int, item: object, problems: list[str]) -> PlanTask:
    if not isinstance(item, dict):
        problems.append(f"task {number} is not a mapping with a title")
        return PlanTask(title="")
    task = PlanTask(
        title=" ".join(_text(item.get("title")).split()),
        id=_text(item.get("id")).strip(),
        description=_text(item.get("description")).strip(),
        files=tuple(name.removeprefix("./") for name in _words(item.get("files"))),
        depends_on=_words(item.get("depends_on")),
        difficulty=_text(item.get("difficulty")).strip().lower() or "medium",
        tdd=_text(item.get("tdd")).strip().lower().replace("behavior", "behaviour"),
    )
    title = f" ('{task.title[:60]}')" if task.title else ""
    problems.extend(f"task {number}{title} {what}" for what in _entry_problems(task))
    return task


def _entry_problems(task: PlanTask) -> Iterable[str]:
    if not task.title:
        yield "has no title"
    if task.id and not is_id(task.id):
        yield f"has the id '{task.id}': only letters, digits, '.', '_' and '-' may be in it, at most 64"
    if task.difficulty not in DIFFICULTIES:
        yield f"has the difficulty '{task.difficulty}': use {', '.join(DIFFICULTIES)}"
    if task.tdd and task.tdd not in TDD:
        yield f"has 'tdd: {task.tdd}': use {', '.join(TDD)}, or leave it out"
    for path in task.files:
        if not is_inside(path):
            yield f"names the file '{path}', which is not a path inside the repository"


def is_inside(path: str) -> bool:
    """A relative path inside the repository and outside .git."""
    parts = re.split(r"[/\\]", path)
    rooted = path.startswith(("/", "\\", "~")) or re.match(r"[A-Za-z]:", path) is not None
    return not (rooted or not path or ".." in parts or parts[0].lower() == ".git" or "\n" in path)


def _text(value: object) -> str:
    return plain(value) if isinstance(value, str) else "" if value is None else plain(str(value))


def _words(value: object) -> tuple[str, ...]:
    items = value if isinstance(value, list) else [value]
    return tuple(word for word in (_text(item).strip() for item in items) if word)


def _resolve(tasks: Sequence[PlanTask]) -> PlanParse:
    problems = [
        *_duplicates("id", [task.id for task in tasks]),
        *_duplicates("title", [normal(task.title) for task in tasks]),
    ]
    # The names of each entry. An explicit id wins over a position, a position over a title.
    titles = {normal(task.title): place for place, task in enumerate(tasks)}
    numbers = {f"t{place + 1}": place for place, task in enumerate(tasks) if not task.id}
    ids = {task.id: place for place, task in enumerate(tasks) if task.id}
    places = titles | numbers | ids
    resolved: list[PlanTask] = []
    for task in tasks:
        unknown = [name for name in task.depends_on if _place(name, places) is None]
        problems += [f"'{task.title}' depends on '{name}', which is no task of this plan" for name in unknown]
        needs = [place for name in task.depends_on if (place := _place(name, places)) is not None]
        resolved.append(replace(task, needs=tuple(dict.fromkeys(needs))))
    if problems:
        return PlanParse(problem="\n".join(problems))
    try:
        TopologicalSorter({place: task.needs for place, task in enumerate(resolved)}).prepare()
    except CycleError as error:
        cycle = " -> ".join(f"'{tasks[place].title}'" for place in error.args[1])
        return PlanParse(problem=f"these tasks wait for each other: {cycle}")
    return PlanParse(tuple(resolved))


def _duplicates(what: str, names: Sequence[str]) -> list[str]:
    return [f"two tasks have the {what} '{name}'" for name, times in Counter(names).items() if name and times > 1]


def _place(name: str, places: dict[str, int]) -> int | None:
    return places.get(name, places.get(normal(name)))


def normal(title: str) -> str:
    return " ".join(re.findall(r"\w+", title.casefold()))


def match_tasks(
    old: Sequence[Task],
    new: Sequence[PlanTask],
    *,
    started: Collection[str] = (),
    landed: Collection[str] = (),
    used: Collection[str] = (),
) -> MatchResult:
    """Gives ids to a plan's entries: those of the tasks they continue, otherwise ids that were never used.

    `used`: earlier ids of tasks that are no longer in `old`.
    """
    matched: dict[int, Task] = {}
    _join(matched, [(task.id, task) for task in old], [entry.id for entry in new])
    _join(matched, [(normal(task.title), task) for task in old], [normal(entry.title) for entry in new])
    _join(matched, [(task.description.strip(), task) for task in old], [entry.description for entry in new])
    kept, needed = {task.id for task in matched.values()}, {*started, *landed}
    missing = [task for task in old if task.id in needed and task.id not in kept]
    if missing:
        names = "; ".join(f"{t.id} '{t.title}' ({'landed' if t.id in landed else 'started'})" for t in missing[:20])
        return MatchResult(problem=f"the new plan drops tasks that are already at work or done: {names}")
    ids = _give_ids(new, matched, {*used, *(task.id for task in old)})
    tasks = [_task(entry, ids, place, matched.get(place), landed) for place, entry in enumerate(new)]
    return MatchResult(tuple(tasks))


def _join(matched: dict[int, Task], old: Sequence[tuple[str, Task]], new: Sequence[str]) -> None:
    """Pair entries that are left where a name occurs exactly once on each side."""
    taken = {task.id for task in matched.values()}
    free = [(name, task) for name, task in old if name and task.id not in taken]
    places = [(name, place) for place, name in enumerate(new) if name and place not in matched]
    by_name, olds, news = dict(free), Counter(name for name, _ in free), Counter(name for name, _ in places)
    for name, place in places:
        if olds[name] == 1 and news[name] == 1:
            matched[place] = by_name[name]


def _give_ids(new: Sequence[PlanTask], matched: dict[int, Task], used: set[str]) -> list[str]:
    explicit = {place: entry.id for place, entry in enumerate(new) if entry.id and entry.id not in used}
    known = explicit | {place: task.id for place, task in matched.items()}
    taken = used | set(known.values())
    numbers = count(1 + max((int(id[1:]) for id in taken if re.fullmatch(r"t[0-9]{1,9}", id)), default=0))
    ids = []
    for place in range(len(new)):
        id, own = known.get(place), f"t{place + 1}"
        if not id:
            # In a first plan an id is a position, so that "depends_on: [t2]" means the second task.
            id = own if not used and own not in taken else f"t{next(numbers)}"
            taken.add(id)
        ids.append(id)
    return ids


def _task(entry: PlanTask, ids: Sequence[str], place: int, before: Task | None, landed: Collection[str]) -> Task:
    visit = before.visit if before else 1
    if before and before.id in landed:
        same = normal(before.title) == normal(entry.title) and before.description.split() == entry.description.split()
        visit += 0 if same else 1
    return Task(
        id=ids[place],
        title=entry.title,
        description=entry.description,
        files=entry.files,
        depends_on=tuple(ids[need] for need in entry.needs),
        difficulty=entry.difficulty,
        tdd=entry.tdd,
        visit=visit,
    )
