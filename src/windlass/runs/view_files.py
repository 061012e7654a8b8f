"""Files for people and other programs, made only from events and written after each commit."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from itertools import chain
from pathlib import Path
from typing import Protocol, TypeAlias

from msgspec.structs import replace

from windlass.driver.adoption import ArtifactEdit
from windlass.errors import TakenOverError
from windlass.events import (
    Activity,
    ArtifactsRemoved,
    ArtifactStored,
    Event,
    PhaseEntered,
    PhaseFinished,
    PhaseSkipped,
    PlanAdopted,
    QuestionAnswered,
    QuestionAsked,
    Recorded,
    ReportWritten,
    RunEnded,
    RunResumed,
    ScheduleMade,
    StageRestarted,
)
from windlass.flow.schema import Flow
from windlass.git.slot import read_file
from windlass.model import RunState, content_id
from windlass.store.port import Store
from windlass.store.rows import RunRow
from windlass.views import state_file, superteam
from windlass.views.build import ViewBuilder
from windlass.views.files import FILES, IN_PLACE_MEMORY, Projector, write_view
from windlass.views.progress import render_progress
from windlass.views.report import render_report
from windlass.views.state import View
from windlass.views.superteam import SuperteamFacts

#: the shortest time between two writes during a burst of events
PAUSE_S = 0.1
#: write once more this long after the last event of a burst
TRAIL_S = 0.1
#: the largest share of time to spend on these files, however many tasks they list
SHARE = 0.1
Later: TypeAlias = Callable[[float, Callable[[], None]], "ScheduledWrite"]
AT_ONCE = (
    *(RunEnded, QuestionAsked, QuestionAnswered, PhaseEntered, PhaseFinished, PhaseSkipped, ReportWritten),
    *(StageRestarted, ScheduleMade),
)
PROGRESS = "progress"


class ScheduledWrite(Protocol):
    def cancel(self) -> None: ...


class ViewFiles:
    """Contract: the files match the events TRAIL_S after the last event, and when this object is closed."""

    def __init__(
        self,
        store: Store,
        row: RunRow,
        flow: Flow,
        folder: Path,
        clock: Callable[[], float],
        in_place: Path | None,
        later: Later,
        tdd: str,
        fence: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        """`tdd`: enforced | unchecked | off, from the flow and the configuration.
        `later`: calls a function after so many seconds, in the thread that feeds the events."""
        self._store = store
        self._row = row
        self._flow = flow
        self._folder = folder
        self._clock = clock
        self._fence = fence
        """Files are written behind the fence: after another driver took over the run, the files belong to that one."""
        self._builder = ViewBuilder(row.id)
        self._written_at, self._pause_s = 0.0, PAUSE_S
        self._later = later
        self._tdd = tdd
        self._trailing: ScheduledWrite | None = None
        """The scheduled write after a burst of events."""
        there = [Projector(in_place, folder / IN_PLACE_MEMORY)] if in_place else []
        self._projectors = [Projector(folder, private=True), *there]
        self._files = Projector(folder / FILES, private=True)
        self._stage_files = [self._files, *there]
        """The files of a run with stages are also in the user's checkout, with --in-place."""
        names = {"slug": row.facts.slug, "date": row.facts.date, "id8": row.id[:8]}
        self._progress = flow.progress.format_map({**names, "session": f"{row.facts.date}-{row.facts.slug}"})
        self._report: ReportWritten | None = None
        self._paths: dict[str, str] = {}
        """Artifact -> its path, also of those that are no longer in force."""
        self._removed: dict[str, None] = {}
        """Paths of artifacts that are no longer in force."""
        self._rested = False
        """The last driver ended properly, so its files were complete."""
        self._uncommitted = {one.path for one in flow.artifacts.values() if one.path and not one.commit}
        for recorded in chain.from_iterable(store.events.pages(row.id)):
            self._builder.feed(recorded)
            self._note_path(recorded.event)
            if isinstance(recorded.event, RunEnded | RunResumed):
                self._rested = isinstance(recorded.event, RunEnded)
            if isinstance(recorded.event, ReportWritten):
                self._report = recorded.event
        self._write(lambda: self._rebuild(folder))

    @property
    def view(self) -> View:
        return self._builder.live

    def has_file(self, path: str) -> bool:
        return (self._folder / FILES / path).is_file()

    def feed(self, recorded: Recorded) -> None:
        self._builder.feed(recorded)
        self._note_path(recorded.event)
        if isinstance(recorded.event, ArtifactStored | ArtifactsRemoved | ReportWritten):
            self._write(lambda: self._store_file(recorded.event))
        if isinstance(recorded.event, Activity):
            # No file shows the current activity of an agent.
            return
        if isinstance(recorded.event, AT_ONCE) or self._clock() - self._written_at > self._pause_s:
            self.flush()
            return
        self._cancel_trailing()
        self._trailing = self._later(TRAIL_S, self.flush)

    def _note_path(self, event: Event) -> None:
        match event:
            case ArtifactStored(name=name, path=path) if path:
                self._paths[name] = path
                self._removed.pop(path, None)
            case ArtifactsRemoved():
                self._removed |= dict.fromkeys(self._paths_of(event))
            case _:
                pass

    def close(self) -> None:
        if self._trailing:
            self.flush()

    def _cancel_trailing(self) -> None:
        if self._trailing:
            self._trailing.cancel()
            self._trailing = None

    def report(self, template: str, now: float) -> str:
        """Render the run by a template. The progress page is rendered as it will be when the run has finished."""
        if template == PROGRESS:
            return render_progress(replace(self.view, state=RunState.FINISHED), self._settings())
        return render_report(self.view, template, now=now)

    def _write(self, write: Callable[[], None]) -> None:
        """Write behind the fence. A replaced driver writes nothing; its next record raises the error."""
        # A transaction has already compared the epoch.
        fence = nullcontext() if self._store.in_transaction else self._fence()
        with suppress(TakenOverError), fence:
            write()

    def flush(self, *, final: bool = False) -> None:
        self._cancel_trailing()
        begun = self._clock()
        self._write(lambda: self._flush(final=final))
        self._written_at = self._clock()
        self._pause_s = max(PAUSE_S, (self._written_at - begun) / SHARE)

    def _flush(self, *, final: bool) -> None:
        if self._progress:
            self._files.write(self._progress, render_progress(self.view, self._settings()))
        if self._flow.projection == "stages":
            text = state_file.render_state(self.view)
            for projector in self._stage_files:
                projector.write(state_file.FILE, text)
        if self._flow.projection != "superteam-workflow":
            return
        if final or self.view.state in ("finished", "aborted"):
            # A final run has no active-workflow file. Its history stays in the journal.
            for projector in self._projectors:
                projector.remove(superteam.FILE)
            return
        plan, design = (self.view.artifacts.get(name) for name in ("plan", "design"))
        facts = SuperteamFacts(
            self._settings(),
            plan.path if plan else "",
            self._content("plan"),
            design.path if design else "",
            self._content("design"),
            self._content("scout"),
        )
        text = superteam.render(self.view, facts)
        for projector in self._projectors:
            projector.write(superteam.FILE, text)

    def _content(self, name: str) -> str:
        stored = self.view.artifacts.get(name)
        return self._store.blobs.get(stored.sha) if stored else ""

    def _settings(self) -> dict[str, str]:
        """The values in use: given, answered or default."""
        settings = {name: setting.default for name, setting in self._flow.settings.items()} | dict(self._row.settings)
        settings = {"tdd_mode": self._tdd, **settings}
        return settings | {name: value for name in self._flow.settings if (value := self.view.setting(name))}

    def _store_file(self, event: Event) -> None:
        match event:
            case ArtifactStored(path=path, sha=sha) if path:
                self._removed.pop(path, None)
                for projector in self._projectors_for(path):
                    projector.write(path, self._store.blobs.get(sha))
            case ArtifactsRemoved():
                for path in self._paths_of(event):
                    self._remove(path)
            case ReportWritten(path=path, text=text):
                self._projectors[0].write(path, text)
            case _:
                pass

    def _projectors_for(self, path: str) -> list[Projector]:
        return self._stage_files if self._flow.projection == "stages" and path in self._uncommitted else [self._files]

    def _paths_of(self, event: ArtifactsRemoved) -> list[str]:
        return [path for name in event.names if (path := self._paths.get(name))]

    def _remove(self, path: str) -> None:
        for projector in self._projectors_for(path):
            projector.remove(path)

    def _rebuild(self, folder: Path) -> None:
        """Write missing files again, and remove those that a killed driver left. Leave edited files: the driver will
        ask about them. After a proper end, a missing file that a gate needs was deleted: the driver asks about it."""
        for path in self._removed:
            self._remove(path)
        asked = gate_files(self._flow) if self._rested else set()
        for name, artifact in self.view.artifacts.items():
            if artifact.path and name not in asked and not (folder / FILES / artifact.path).exists():
                self._files.write(artifact.path, self._store.blobs.get(artifact.sha))
        if self._report and not (folder / self._report.path).exists():
            self._projectors[0].write(self._report.path, self._report.text)


def edits(store: Store, run: str, folder: Path) -> list[ArtifactEdit]:
    """Artifacts with a file that differs from the recorded content."""
    made = _files_in_force(store, run)
    contents = {name: read_file(folder / FILES, event.path) for name, event in made.items()}
    return [
        ArtifactEdit(name, event.path, event.key, event.sha, content)
        for name, event in made.items()
        if (content := contents[name]) is not None and content_id(content) != event.sha
    ]


def gate_files(flow: Flow) -> set[str]:
    """The artifacts whose files a gate looks at: those of a flow with stages."""
    needs = (need.split() for phase in flow.all_phases() for need in phase.needs) if flow.stages else ()
    return {words[1] for words in needs if words[0] == "file"}


def deleted(store: Store, run: str, flow: Flow, folder: Path) -> list[ArtifactEdit]:
    """Artifacts in force that a gate needs and whose files are gone."""
    needed = gate_files(flow)
    return [
        ArtifactEdit(name, event.path, event.key, event.sha, "")
        for name, event in _files_in_force(store, run).items()
        if name in needed and not (folder / FILES / event.path).exists()
    ]


def _files_in_force(store: Store, run: str) -> dict[str, ArtifactStored]:
    """The artifacts in force that have a file, each with the content that was stored or adopted last."""
    made: dict[str, ArtifactStored] = {}
    for recorded in chain.from_iterable(store.events.pages(run)):
        match recorded.event:
            case ArtifactStored(name=name, path=path) as event if path:
                made[name] = event
            case PlanAdopted(name=name, sha=sha) if name in made:
                made[name] = replace(made[name], sha=sha)
            case ArtifactsRemoved(names=names):
                for name in names:
                    made.pop(name, None)
            case _:
                pass
    return made


def set_aside(folder: Path, edit: ArtifactEdit) -> str:
    """Keep a copy of the edit. Its name comes from its content, so the same edit is kept once."""
    name = f"{edit.path}.mine-{content_id(edit.content)[:8]}"
    path = folder / FILES / name
    write_view(path, edit.content, private=True)
    return name


def restore(store: Store, folder: Path, edit: ArtifactEdit) -> None:
    path = folder / FILES / edit.path
    write_view(path, store.blobs.get(edit.old_sha), private=True)
