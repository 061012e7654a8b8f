"""The state file of the staged flow: after every event it says what the journal says, and its schema is published."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

import reference
from front import Rule
from staged import Staged, basics, issue, negative, review, unchanged, worker
from windlass.events import (
    ArtifactsRemoved,
    ArtifactStored,
    PhaseEntered,
    PhaseFinished,
    PhaseSkipped,
    QuestionAnswered,
    QuestionAsked,
    Recorded,
    RunEnded,
    RunResumed,
    RunStarted,
    ScheduleMade,
    StageRestarted,
)
from windlass.runs.view_files import AT_ONCE, ViewFiles
from windlass.views.build import ViewBuilder
from windlass.views.state_file import StateFile, render_state

SCHEMA = Path(__file__).parents[2] / "docs/reference/state.schema.json"
ONE = [{"title": "Add sub", "description": "Do sub."}]
TESTS = '[commands.test]\ncommands = [["sh", "-c", "test -e src/right || { echo src/t1.py:1: wrong; exit 1; }"]]\n'
RIGHT = worker(files={"src/t1.py": "y = 2\n", "src/right": "\n", "tests/test_t1.py": "def test_it(): pass\n"}, times=1)
WORK = [worker(times=1), RIGHT, unchanged()]
LEAN = {"explorers": "1", "planners": "1", "phase": "0"}
GOOD = frozenset({"ok", "pass", "noted", "done", "nothing"})

Story = tuple[Sequence[Rule], dict[str, str], Sequence[tuple[str, ...]]]
STORIES: dict[str, Story] = {
    "a source error, a question, a waived phase": (
        [negative("3.3", times=1), *WORK, *basics(ONE)],
        {"between_phases": "true"},
        [("skip", "--why", "reviewed by hand")],
    ),
    "TEST is off, the final review restarts IMPLEMENT, twice": (
        [review("4.2", "approved", issue("not yet"), times=2), *WORK, *basics(ONE)],
        {"test": "false"},
        [],
    ),
    "a person stops it and restarts an earlier stage": (
        [negative("1.3", times=1), negative("3.3", times=1), {**RIGHT}, unchanged(), *basics(ONE)],
        {},
        [("answer", "abort"), ("restart",), ("answer", "restart-previous")],
    ),
}


# -- what the journal says, read once more and in another way


def reading(events: Sequence[Any]) -> dict[str, Any]:
    """The facts of the state file from all events so far: each fact by the last event about it."""
    schedule = [stage for event in events if isinstance(event, ScheduleMade) for stage in event.stages][:5]
    restarts = [(n, event) for n, event in enumerate(events) if isinstance(event, StageRestarted)]
    phases: dict[str, str] = {}
    for stage in schedule:
        for phase in (one["id"] for one in stage["phases"]):
            since = max((n for n, event in restarts if phase in event.phases), default=-1)
            marks = [event for event in events[since + 1 :] if getattr(event, "phase", None) == phase]
            marks = [mark for mark in marks if isinstance(mark, PhaseEntered | PhaseFinished | PhaseSkipped)]
            phases[phase] = _status(marks[-1]) if stage["enabled"] and marks else "pending"
            phases[phase] = phases[phase] if stage["enabled"] else "skipped"
    files: dict[str, str] = {}
    for event in events:
        if isinstance(event, ArtifactStored) and event.path:
            files[event.name] = event.path
        if isinstance(event, ArtifactsRemoved):
            files = {name: path for name, path in files.items() if name not in event.names}
    return {
        "status": _run_status(events),
        "current": _current(events, schedule),
        "phases": phases,
        "restarts": {stage["id"]: sum(event.stage == stage["id"] for _, event in restarts) for stage in schedule},
        "restartCount": len(restarts),
        "files": set(files.values()),
        "failures": [event.phase for event in events if isinstance(event, PhaseFinished) and event.outcome not in GOOD],
        "waivers": [event.phase for event in events if isinstance(event, PhaseSkipped) and event.waived],
        "schedule": [(one["id"], stage["id"], one["kind"]) for stage in schedule for one in stage["phases"]],
    }


def _status(mark: PhaseEntered | PhaseFinished | PhaseSkipped) -> str:
    if isinstance(mark, PhaseFinished):
        return "completed" if mark.outcome in GOOD else "failed"
    return "in_progress" if isinstance(mark, PhaseEntered) else "skipped"


def _run_status(events: Sequence[Any]) -> str:
    turns = [event for event in events if isinstance(event, RunStarted | RunResumed | RunEnded)]
    # An answer from another process comes after the end of a driver that waited.
    if isinstance(turns[-1], RunEnded) and turns[-1].state != "waiting":
        return {"finished": "completed"}.get(turns[-1].state, turns[-1].state)
    asked = {event.key for event in events if isinstance(event, QuestionAsked)}
    return (
        "waiting" if asked - {event.key for event in events if isinstance(event, QuestionAnswered)} else "in_progress"
    )


def _current(events: Sequence[Any], schedule: Sequence[Any]) -> tuple[str, str]:
    listed = {one["id"]: stage["id"] for stage in schedule for one in stage["phases"]}
    for event in reversed(events):
        if isinstance(event, StageRestarted):
            return event.stage, event.phase
        if isinstance(event, PhaseEntered) and event.phase in listed:
            return event.stage, event.phase
    return "", ""


def facts(text: str) -> dict[str, Any]:
    """The same facts as the file has them."""
    state = msgspec.json.decode(text, type=StateFile)
    phases = {id: phase.status for stage in state.stages.values() for id, phase in stage.phases.items()}
    return {
        "status": state.status,
        "current": (state.current_stage, state.current_phase),
        "phases": phases,
        "restarts": {id: stage.restart_count for id, stage in state.stages.items()},
        "restartCount": state.restart_count,
        "files": {*state.files.values(), *state.summaries.values()},
        "failures": [one.phase for one in state.failures],
        "waivers": [one.phase for one in state.waivers],
        "schedule": [(one.phase, one.stage, one.type) for one in state.schedule],
    }


# -- every step


def tell(front: Staged, story: Story) -> list[int]:
    rules, settings, then = story
    codes = [front.go(rules, **(LEAN | settings)).code]
    return codes + [front(*argv).code for argv in then]


@pytest.mark.req("S3-02", "S3-06", "S3-08", "S3-11", "S3-58", "S3-75")
@pytest.mark.sweep(3)
@pytest.mark.parametrize("name", STORIES)
def test_the_file_says_after_every_event_what_the_journal_says(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the disk: at once after every event that changes a phase, a stage, a question or the run."""
    front, real, wrong, looked = Staged(tmp_path, TESTS), ViewFiles.feed, [], []

    def feed(self: ViewFiles, recorded: Recorded) -> None:
        real(self, recorded)
        if isinstance(recorded.event, AT_ONCE):
            looked.append(recorded.seq)
            events = [one.event for one in self._store.events.all(recorded.run) if one.seq <= recorded.seq]
            text = front.state_path.read_text()
            if facts(text) != reading(events) or text != render_state(self.view):
                wrong.append((recorded.event, facts(text), reading(events)))

    monkeypatch.setattr(ViewFiles, "feed", feed)
    assert tell(front, STORIES[name])[-1] == 0
    assert wrong == []
    assert len(looked) > 40
    builder, events = ViewBuilder(front.run), []
    for recorded in front.records:
        builder.feed(recorded)
        events.append(recorded.event)
        text = render_state(builder.view)
        assert facts(text) == reading(events), recorded
    assert front.state_path.read_text() == text
    assert set(reading(events)["phases"].values()) <= {"completed", "skipped"}


# -- the file belongs to a person, too


@pytest.fixture
def waiting(tmp_path: Path) -> Staged:
    """A run that waits for a person in 3.3."""
    front = Staged(tmp_path)
    assert front.go([negative("3.3", times=1), *basics(ONE)], **LEAN).code == 10
    return front


def kept(front: Staged) -> list[str]:
    return sorted(path.name for path in front.state_path.parent.glob("state.json.edited*"))


def test_an_edited_file_is_kept_and_written_anew(waiting: Staged) -> None:
    edited = json.dumps({**waiting.state, "currentPhase": "4.3", "status": "completed"})
    waiting.state_path.write_text(edited)
    assert waiting("answer", "retry").code == 0
    assert kept(waiting) == ["state.json.edited-1"]
    assert waiting.state_path.with_name("state.json.edited-1").read_text() == edited
    assert waiting.state_path.read_text() == render_state(waiting.view)
    assert [event.phase for event in waiting.events(PhaseEntered)].count("4.1") == 1, "the edit changed the way"


@pytest.mark.parametrize("text", ["", "{", "[1, 2]\n", "\ud800"], ids=["empty", "half", "no table", "no text"])
@pytest.mark.sweep(4)
def test_a_file_that_is_not_json_is_an_edit(waiting: Staged, text: str) -> None:
    data = text.encode("utf-8", "surrogatepass")
    waiting.state_path.write_bytes(data)
    assert waiting("answer", "retry").code == 0
    assert waiting.state_path.with_name("state.json.edited-1").read_bytes() == data
    assert waiting.state_path.read_text() == render_state(waiting.view)


def test_a_deleted_file_is_written_again(waiting: Staged) -> None:
    waiting.state_path.unlink()
    assert waiting("answer", "retry").code == 0
    assert waiting.state_path.read_text() == render_state(waiting.view)
    assert kept(waiting) == []


@pytest.mark.long
def test_a_file_of_another_run_is_an_edit_and_changes_nothing(waiting: Staged, tmp_path_factory: Any) -> None:
    other = Staged(tmp_path_factory.mktemp("other"))
    assert other.go(basics(ONE), **LEAN).code == 0
    text = other.state_path.read_text()
    waiting.state_path.write_text(text)
    assert waiting("answer", "retry").code == 0
    assert waiting.state["run"] == waiting.run
    assert waiting.state_path.with_name("state.json.edited-1").read_text() == text
    assert waiting.state_path.read_text() == render_state(waiting.view)


# -- its schema


@pytest.mark.req("S3-84")
def test_the_published_schema_describes_the_file(waiting: Staged) -> None:
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    assert schema == json.loads(reference.state_schema())
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    state = schema["$defs"]["StateFile"]
    assert set(state["properties"]) == set(waiting.state)
    assert set(state["required"]) == set(waiting.state) - {"version"}
    jsonschema = pytest.importorskip("jsonschema")
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    validator.validate(waiting.state)
    for change in ({"surprise": 1}, {"restartCount": "two"}, {"stages": []}):
        assert not validator.is_valid({**waiting.state, **change}), change
