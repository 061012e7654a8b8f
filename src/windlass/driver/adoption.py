"""Adoption of artifacts. If a person edited an artifact while the run rested, the person decides: adopt, keep aside or
restore the edit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from windlass.agents.contracts.task_list import match_tasks, parse_plan
from windlass.engine.journal import Journal
from windlass.events import PlanAdopted
from windlass.flow.schema import Flow
from windlass.model import Choice, Json, Key, Question, Task, content_id
from windlass.store.port import Store
from windlass.store.rows import AdoptionRow

if TYPE_CHECKING:
    from windlass.driver.context import StepContext
    from windlass.driver.scopes import RunScope


class ArtifactEdit(Struct, frozen=True):
    """A file with another content than the step recorded."""

    artifact: str
    path: str
    producer: str
    old_sha: str
    content: str


class AdoptionProposal(Struct, frozen=True):
    """The effects of an adoption."""

    edit: ArtifactEdit
    effect: str
    """The key where the new content takes effect: the `tasks` phase that has started with it, or the step that made
    it."""
    again: tuple[str, ...]
    """Recorded steps that would run again."""
    cost_usd: float
    problem: str = ""
    """Why the edit cannot be adopted."""


def propose(store: Store, run: str, flow: Flow, journal: Journal, edit: ArtifactEdit) -> AdoptionProposal:
    rows = journal.recorded_keys()
    # The last visit of a `tasks` phase that has started with this artifact.
    ids = {phase.id for phase in flow.all_phases() if phase.task_list() == edit.artifact}
    lists = [Key.parse(row.key) for row in rows if row.key.endswith("/tasks")]
    lists = [key for key in lists if len(key.parts) == 2 and key.parts[0].id in ids]
    if lists:
        phase = Key(lists[-1].parts[:1])
        again, problem = _changed_tasks(journal, phase, edit)
        covers = (f"{phase}/tasks", *again)
        return AdoptionProposal(edit, phase.text, covers, _cost(store, run, again), problem)
    made = next((row.seq for row in rows if row.key == edit.producer), 0)
    again = tuple(row.key for row in rows if row.seq > made and not row.key.startswith(("baseline", "retry#")))
    problem = ""
    if flow.artifacts[edit.artifact].contract == "tasks":
        parsed = parse_plan(edit.content)
        problem = parsed.problem or match_tasks((), parsed.tasks).problem
    return AdoptionProposal(edit, edit.producer, again, _cost(store, run, again), problem)


def question(proposal: AdoptionProposal) -> Question:
    edit = proposal.edit
    steps = [key for key in proposal.again if not key.endswith("/tasks")]
    lines = [
        f"{len(steps)} recorded step(s) would run again, about ${proposal.cost_usd:.2f}:",
        *(f"  {k}" for k in steps[:20]),
    ]
    detail = "\n".join(lines) if steps else "No recorded step would run again."
    adopt = (Choice("adopt", "Adopt", "use the edited file"),)
    return Question(
        id="adopt",
        text=f"'{edit.path}' was edited after it was recorded. Which version should the run use?",
        options=(
            *(() if proposal.problem else adopt),
            Choice("aside", "Keep mine aside", "save the edit in another file, use the recorded version"),
            Choice("restore", "Restore", "discard the edit, use the recorded version"),
        ),
        detail=f"It cannot be adopted: {proposal.problem}" if proposal.problem else detail,
    )


def record(store: Store, run: str, journal: Journal, proposal: AdoptionProposal, by: str) -> None:
    edit, sha = proposal.edit, content_id(proposal.edit.content)
    with journal.writing("adopt", PlanAdopted(edit.artifact, sha, list(proposal.again), by)):
        store.blobs.put(journal.claim, sha, edit.content)
        row = AdoptionRow(0, edit.artifact, proposal.effect, edit.old_sha, sha, by, frozenset(proposal.again))
        store.adoptions.add(journal.claim, row)
    journal.adoptions = store.adoptions.all(run)


async def apply(run: RunScope, ctx: StepContext) -> None:
    """Put the adopted artifacts of a phase in force when it is entered, and commit them to the run's branch."""
    journal, values, key = run.journal, run.values, ctx.place.key
    adoptions = [a for a in journal.adoptions if a.producer == key.text]
    for number, adoption in enumerate(adoptions, 1):
        values.artifacts.hold(adoption.artifact, journal.store.blobs.get(adoption.new_sha), key.text)
        if values.flow.artifacts[adoption.artifact].commit:
            step = key.child(f"adopted.{number}")
            ctx.set_head(await run.artifacts.commit(step, [adoption.artifact], "adopted"), step)


# -- inside


def _changed_tasks(journal: Journal, phase: Key, edit: ArtifactEdit) -> tuple[tuple[str, ...], str]:
    """The recorded steps of the tasks that the edit changes, and why it cannot be adopted."""
    listed = journal.recorded(phase.child("tasks"))
    assert listed is not None
    old = [Task.from_json(t) for t in listed.result if isinstance(t, dict)] if isinstance(listed.result, list) else []
    rows = [(row, Key.parse(row.key)) for row in journal.recorded_keys()]
    steps = {task.id: [row for row, key in rows if is_step_of(phase, key, task.id)] for task in old}
    landed = {id for id, rows in steps.items() if any(is_landed(row.result) for row in rows)}
    started = {id for id, rows in steps.items() if rows}
    parsed = parse_plan(edit.content)
    matched = match_tasks(old, parsed.tasks, started=started, landed=landed)
    problem = parsed.problem or matched.problem
    if problem:
        return (), problem
    before = {task.id: task for task in old}
    changed = [t.id for t in matched.tasks if t.id in before and _fields(t) != _fields(before[t.id])]
    again = [row.key for id in changed if id not in landed for row in steps[id]]
    return tuple(again), ""


def _fields(task: Task) -> Json:
    """The fields that a replay compares for the steps of a task, without its position and dependencies."""
    return {**task.to_json(), "visit": 1, "depends_on": []}


def is_step_of(phase: Key, key: Key, task: str) -> bool:
    """The key belongs to a visit to this task of the phase."""
    depth = len(phase.parts)
    return len(key.parts) > depth + 1 and phase.contains(key) and key.parts[depth].id == task


def is_landed(result: Json) -> bool:
    return isinstance(result, dict) and result.get("kind") == "landed"


def _cost(store: Store, run: str, keys: Sequence[str]) -> float:
    wanted = set(keys)
    return sum(
        row.cost_usd or 0.0 for row in store.attempts.all(run) if row.intent.key in wanted and row.state == "done"
    )
