"""The light half of the service layer: read runs, and control them without driving them.

Every interface uses this module and `runs/drive.py`. This module imports nothing heavy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path

from msgspec import Struct

from windlass.errors import UserError, near
from windlass.events import Activity, Recorded
from windlass.locks import is_driven
from windlass.paths import ProjectPaths, state_dir
from windlass.runs.answer import RunQuestions
from windlass.runs.controls import RunControls
from windlass.store.port import Store
from windlass.store.rows import RunRow
from windlass.store.sqlite.store import SqliteStore
from windlass.text import clean
from windlass.views.build import ViewBuilder
from windlass.views.state import View


class Host(Struct, frozen=True):
    """The outside world. `app.compose` passes it in."""

    place: ProjectPaths
    environ: Mapping[str, str]
    clock: Callable[[], float]
    cwd: Path
    new_id: Callable[[], str]
    """Returns the id for a new run."""
    spawn: Callable[[Sequence[str], Path, Path], int]
    """Starts a program in its own session, with its output in a private file. Returns the process id."""
    named: str = ""
    """The repository as the command line named it. Commands in hints must name it again."""

    @property
    def has_store(self) -> bool:
        return self.place.database.exists()

    def open_store(self, *, create: bool = False, drives: bool = False) -> Store:
        """The only place that knows which store there is, and where. `drives`: for a run's driver."""
        waits = state_dir(self.environ) / "windlass" / "waits.db" if drives else None
        return SqliteStore.open(self.place.database, self.clock, waits=waits, create=create, drives=drives)


class Service:
    """One repository's runs. `questions` answers their questions, `controls` changes their state."""

    def __init__(self, host: Host) -> None:
        self.host = host

    @cached_property
    def store(self) -> Store:
        return self.host.open_store()

    @cached_property
    def questions(self) -> RunQuestions:
        return RunQuestions(self.store)

    @cached_property
    def controls(self) -> RunControls:
        return RunControls(self.store, self.host)

    def close(self) -> None:
        """Close the database. A long-lived interface opens a new service for each request."""
        if "store" in vars(self):
            self.store.close()

    # -- which run

    @property
    def has_runs(self) -> bool:
        return bool(self.runs())

    def runs(self) -> list[RunRow]:
        return self.store.runs.all() if self.host.has_store else []

    def active(self) -> RunRow | None:
        """The newest run that is not final. A bare `windlass` continues it."""
        return next((row for row in self.runs() if not row.state.final), None)

    def run(self, id: str = "") -> RunRow:
        """Find a run by its id or the start of it. Without an id: the active run, or else the newest."""
        rows = self.runs()
        if not rows:
            raise UserError("there are no runs here yet", hint='start one: windlass run "what to build"')
        if not id:
            return self.active() or rows[0]
        found = [row for row in rows if row.id == id] or [row for row in rows if row.id.startswith(id)]
        if len(found) != 1:
            what = f"'{id}' matches {len(found)} runs" if found else f"there is no run '{id}'"
            raise UserError(what, hint=near(id, [row.id for row in rows]))
        return found[0]

    def run_to_change(self, id: str = "") -> RunRow:
        """Find the run that a command changes. Without an id and with several active runs, list them and refuse."""
        active = [row for row in self.runs() if not row.state.final]
        if not id and len(active) > 1:
            raise _ambiguous(active, "active")
        return self.run(id)

    def run_to_answer(self) -> RunRow:
        """Find the run that an answer without a run is for: the only one with an open question."""
        waiting = [row for row in self.runs() if self.questions.pending(row.id)]
        if len(waiting) > 1:
            raise _ambiguous(waiting, "waiting for an answer")
        return waiting[0] if waiting else self.run_to_change()

    # -- what a run did

    def is_driven(self, run: str) -> bool:
        """Whether a driver process holds the run's lock."""
        return is_driven(self.host.place.lock(run))

    def view(self, run: str) -> View:
        builder = ViewBuilder(run, self.host.named)
        for page in self.store.events.pages(run):
            for recorded in page:
                builder.feed(recorded)
        view = builder.live
        # The driver stores the cost so far of a running dispatch with the attempt, not as an event.
        for row in self.store.attempts.running(run) if view.running else ():
            cost = row.usage.get("cost_usd") if isinstance(row.usage, dict) else None
            seen = view.running.get(row.intent.key)
            if seen and isinstance(cost, int | float):
                used = Activity(row.intent.key, row.intent.role, "usage", "", cost_usd=cost)
                builder.feed(Recorded(0, run, seen.seen_at, used))
        if view.published:
            # The user may have moved or deleted the branch since.
            now = self.host.place.branch_commit(view.published)
            view.shown_at = view.shown_at if now is None else now
        return view

    def events(self, run: str, after: int = 0) -> list[Recorded]:
        return self.store.events.all(run, after)

    def event_pages(self, run: str, after: int = 0) -> Iterator[list[Recorded]]:
        """Read the same events page by page."""
        return self.store.events.pages(run, after)

    def watch(self, run: str, after: int, sleep: Callable[[float], None]) -> Iterator[list[Recorded]]:
        """Yield events as they are recorded, until the run has no driver and no new events."""
        while True:
            driven = self.is_driven(run)
            for page in self.event_pages(run, after):
                after = page[-1].seq
                yield page
            if not driven:
                return
            sleep(0.1)


def _ambiguous(rows: Sequence[RunRow], what: str) -> UserError:
    listed = "\n".join(f"  {row.id}  {row.state:<8} {clean(row.request, 60)}" for row in rows)
    return UserError(
        f"{len(rows)} runs are {what}; name the one you mean:\n{listed}", hint="the beginning of its id is enough"
    )
