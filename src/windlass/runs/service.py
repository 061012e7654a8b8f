"""The waist, its light half: what can be read of runs, and what can be asked of them without driving.

Every face stands on this and on `driving`. Nothing heavy is loaded here.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path

from msgspec import Struct

from windlass.errors import LockHeldError, UserError, near
from windlass.events import Activity, Recorded, RunEnded, RunTold
from windlass.locks import boot_id, driver_lock, is_driven
from windlass.model import Answer, RunState
from windlass.paths import ProjectPaths, state_dir
from windlass.runs.answer import answer_from_outside, refuse_final
from windlass.store.epoch import EpochClaim, Person
from windlass.store.port import Store
from windlass.store.rows import QuestionRow, RunRow
from windlass.store.sqlite.store import SqliteStore
from windlass.text import clean
from windlass.views.build import ViewBuilder
from windlass.views.state import View


class Host(Struct, frozen=True):
    """The outside world, handed in by `app.compose`."""

    place: ProjectPaths
    environ: Mapping[str, str]
    clock: Callable[[], float]
    cwd: Path
    new_id: Callable[[], str]
    """Of a run."""
    spawn: Callable[[Sequence[str], Path, Path], int]
    """Start a program in a session of its own, its output in a private file. Returns the process id."""
    named: str = ""
    """How the repository was named on the command line; the next command must name it again."""

    @property
    def has_store(self) -> bool:
        return self.place.database.exists()

    def open_store(self, *, create: bool = False, drives: bool = False) -> Store:
        """The only place that knows which store there is, and where. `drives`: for a run's driver."""
        waits = state_dir(self.environ) / "windlass" / "waits.db" if drives else None
        return SqliteStore.open(self.place.database, self.clock, waits=waits, create=create, drives=drives)


class Service:
    def __init__(self, world: Host) -> None:
        self.world = world

    @cached_property
    def store(self) -> Store:
        return self.world.open_store()

    def close(self) -> None:
        """What was opened for reading; a face that lives long opens anew for each thing it is asked."""
        if "store" in vars(self):
            self.store.close()

    @property
    def has_runs(self) -> bool:
        return bool(self.runs())

    # -- reading

    def runs(self) -> list[RunRow]:
        return self.store.runs.all() if self.world.has_store else []

    def active(self) -> RunRow | None:
        """The newest run that is not at its end: what a bare `windlass` means."""
        return next((row for row in self.runs() if not row.state.final), None)

    def run(self, id: str = "") -> RunRow:
        """By id or the start of one; without, the active run, else the newest."""
        rows = self.runs()
        if not rows:
            raise UserError("there are no runs here yet", hint='start one: windlass run "what to build"')
        if not id:
            return self.active() or rows[0]
        found = [row for row in rows if row.id == id] or [row for row in rows if row.id.startswith(id)]
        if len(found) != 1:
            what = f"'{id}' stands for {len(found)} runs" if found else f"there is no run '{id}'"
            raise UserError(what, hint=near(id, [row.id for row in rows]))
        return found[0]

    def meant(self, id: str = "") -> RunRow:
        """The run that a command changes. Without an id nothing is guessed: several active runs are listed."""
        active = [row for row in self.runs() if not row.state.final]
        if not id and len(active) > 1:
            raise _ambiguous(active, "active")
        return self.run(id)

    def asking(self) -> RunRow:
        """The run whose question an answer without a run is for."""
        waiting = [row for row in self.runs() if self.pending(row.id)]
        if len(waiting) > 1:
            raise _ambiguous(waiting, "waiting for an answer")
        return waiting[0] if waiting else self.meant()

    def view(self, run: str) -> View:
        folder = ViewBuilder(run, self.world.named)
        for page in self.store.events.pages(run):
            for recorded in page:
                folder.feed(recorded)
        view = folder.live
        self._feed_usage(folder, run)
        if view.published:
            # The user may have moved or deleted it since.
            now = self.world.place.branch_commit(view.published)
            view.shown_at = view.shown_at if now is None else now
        return view

    def _feed_usage(self, folder: ViewBuilder, run: str) -> None:
        """What dispatches at work have used so far is no event: their driver notes it down."""
        if not folder.live.running:
            return
        for row in self.store.attempts.running(run):
            cost = row.usage.get("cost_usd") if isinstance(row.usage, dict) else None
            seen = folder.live.running.get(row.intent.key)
            if seen and isinstance(cost, int | float):
                used = Activity(row.intent.key, row.intent.role, "usage", "", cost_usd=cost)
                folder.feed(Recorded(0, run, seen.seen_at, used))

    def events(self, run: str, after: int = 0) -> list[Recorded]:
        return self.store.events.all(run, after)

    def event_pages(self, run: str, after: int = 0) -> Iterator[list[Recorded]]:
        """The same, page by page, as they are read."""
        return self.store.events.pages(run, after)

    def watch(self, run: str, after: int, sleep: Callable[[float], None]) -> Iterator[list[Recorded]]:
        """Events as they come, page by page, until no driver is left and nothing is new."""
        while True:
            driven = self.driven(run)
            for page in self.event_pages(run, after):
                after = page[-1].seq
                yield page
            if not driven:
                return
            sleep(0.1)

    def driven(self, run: str) -> bool:
        return is_driven(self.world.place.lock(run))

    def pending(self, run: str) -> list[QuestionRow]:
        """What can be answered: nothing of a run that is at its end."""
        return [] if self.store.runs.get(run).state.final else self.store.questions.all(run, pending=True)

    # -- asking of a run

    def answer(self, run: str, key: str, value: str, comment: str, by: str) -> tuple[QuestionRow, Answer]:
        row = self._question(run, key)
        return row, answer_from_outside(self.store, run, row, value, comment, by)

    def _question(self, run: str, key: str) -> QuestionRow:
        refuse_final(self.store, run)
        pending = self.pending(run)
        found = [row for row in pending if not key or key in (row.key, row.id)]
        if len(found) == 1:
            return found[0]
        if found:
            raise UserError("more than one question is open", hint=f"name one: {', '.join(row.key for row in found)}")
        self._refuse_answered(run, key)
        hint = near(key, [row.key for row in pending]) if pending else "windlass status shows where it stands"
        raise UserError(f"no question '{key}' is open" if key else "no question is open", hint=hint)

    def _refuse_answered(self, run: str, key: str) -> None:
        done = [row for row in self.store.questions.all(run) if row.state == "answered" and key in (row.key, row.id)]
        if done:
            last = done[-1]
            raise UserError(
                f"'{last.id}' was already answered with '{last.answer}' by {last.by}", hint="windlass status"
            )

    def pause(self, run: str) -> str:
        """What happens now, in words."""
        row = self.run(run)
        if row.state.final:
            raise UserError(f"run {row.id} is {row.state}", hint="windlass runs lists the others")
        if not self.driven(row.id):
            return f"run {row.id} is at rest already ({row.state})"
        self.store.runs.request(row.id, "pause")
        return f"run {row.id} pauses when the agents at work are done"

    def abort(self, run: str) -> str:
        row = self.run(run)
        if row.state.final:
            raise UserError(f"run {row.id} is {row.state} already", hint="windlass runs lists the others")
        try:
            # Nobody can begin to drive it meanwhile.
            with driver_lock(self.world.place.lock(row.id), row.id):
                left = self._end_agents(row.id)
                self._close_attempts(row.id)
                self._record_abort(row)
        except LockHeldError:
            if self._asks_driver(row):
                return f"run {row.id} is being aborted"
            left = ""
        self._clear(row)
        return f"run {row.id} is aborted; its branch and its record stay{left}"

    def _asks_driver(self, row: RunRow) -> bool:
        """False: whoever holds the lock has recorded the run's rest, or not yet begun. The run was ended here."""
        with self.store.transaction():
            if self.store.runs.get(row.id).state is RunState.RUNNING:
                # Its driver looks at this before it records anything else, and so does the next one if that dies.
                self.store.runs.request(row.id, "abort")
                return True
            self._record_abort(row)
        return False

    def _record_abort(self, row: RunRow) -> None:
        """With an epoch of its own: a driver that lost its lock, and lives, writes nothing over it."""
        with self.store.transaction():
            if self.store.runs.get(row.id).state.final:
                return
            claim = self.store.runs.take(row.id)
            for attempt in self.store.attempts.running(row.id):
                self.store.attempts.interrupt(claim, attempt.intent.key, attempt.intent.n)
            self.store.runs.request(row.id, "")
            self.store.runs.set_state(claim, RunState.ABORTED, "aborted by the user")
            self.store.events.add(claim, RunEnded(RunState.ABORTED, "aborted by the user"))

    def _close_attempts(self, run: str) -> None:
        """What agents of a driver that died cost, as far as they wrote it down."""
        from windlass.dispatch.late_costs import LateCosts
        from windlass.errors import WindlassError
        from windlass.runs.project import Project

        attempts = self.store.attempts.running(run)
        if not attempts:
            return
        kit, row = Project(self.world), self.store.runs.get(run)
        claim = EpochClaim(run, row.epoch)
        try:
            config = kit.config()
            adapters = kit.adapters(config, str(row.options.get("script") or ""))
            accounts = LateCosts(
                self.store, claim, self.world.place.run_folder(run), adapters, config.budget.unknown_usd
            )
        except WindlassError:
            # an abort goes through whatever the config says
            accounts = LateCosts(self.store, claim, self.world.place.run_folder(run), None)
        accounts.interrupt(attempts)

    def _end_agents(self, run: str) -> str:
        """What a driver that died left at work. In words what cannot be reached from here."""
        from windlass.dispatch.recovery import end_attempts, end_checks
        from windlass.git import user_repo
        from windlass.git.engine_repo import EngineRepo
        from windlass.git.slots import Slots

        host, folder = socket.gethostname(), self.world.place.run_folder(run)
        attempts = self.store.attempts.running(run)
        here = [row for row in attempts if row.intent.host == host]
        slots = Slots(EngineRepo.open(user_repo.discover(self.world.cwd), state_dir(self.world.environ)))
        end_attempts(here, run, slots, folder, host, boot_id())
        end_checks(slots.engine, folder, host, boot_id())
        others = sorted({row.intent.host for row in attempts} - {host})
        return f"; an agent may still be at work on {', '.join(others)}" if others else ""

    def _clear(self, row: RunRow) -> None:
        """A driver that ends a run takes the active-workflow file away; here there is none."""
        from windlass.views import superteam
        from windlass.views.files import IN_PLACE_MEMORY, Projector

        folder = self.world.place.run_folder(row.id)
        there = [Projector(self.world.place.root, folder / IN_PLACE_MEMORY)] if row.options.get("in_place") else []
        for projector in (Projector(folder, private=True), *there):
            projector.remove(superteam.FILE)

    def tell(self, run: str, text: str, by: str, role: str = "") -> str:
        """The next dispatch of that role is given it, once; without one, the next that writes code."""
        row = self.run(run)
        if row.state.final:
            raise UserError(f"run {row.id} is {row.state}", hint="windlass runs lists the others")
        with self.store.transaction():
            self.store.messages.add(row.id, text, by, role)
            self.store.events.add(Person(row.id), RunTold(text, by, role))
        whom = f"'{role}'" if role else "an agent that writes code"
        return f"queued: the next dispatch of {whom} in run {row.id} is given it; windlass status says when"

    def leave(self, run: str) -> None:
        """From now on the run is driven in the background, also after an answer."""
        row = self.run(run)
        self.store.runs.set_options(Person(row.id), {**row.options, "detached": True})

    def set_budget(self, run: str, limit: float | None) -> None:
        from windlass.events import BudgetChanged

        row = self.run(run)
        with self.store.transaction():
            self.store.runs.set_budget(Person(row.id), limit, row.warn_usd)
            self.store.events.add(Person(row.id), BudgetChanged(limit, "command line"))


def _ambiguous(rows: Sequence[RunRow], what: str) -> UserError:
    listed = "\n".join(f"  {row.id}  {row.state:<8} {clean(row.request, 60)}" for row in rows)
    return UserError(
        f"{len(rows)} runs are {what}; name the one you mean:\n{listed}", hint="the beginning of its id is enough"
    )
