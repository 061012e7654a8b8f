"""Change a run from another process: pause, abort, restart a stage, skip a phase, send a message."""

from __future__ import annotations

import json
import socket
from typing import TYPE_CHECKING

from windlass.errors import LockHeldError, UserError
from windlass.events import RunEnded, RunTold
from windlass.locks import boot_id, driver_lock, is_driven
from windlass.model import RunState
from windlass.store.epoch import EpochClaim, Person
from windlass.store.port import Store
from windlass.store.rows import RunRow

if TYPE_CHECKING:
    from windlass.runs.service import Host


class RunControls:
    """Methods that return a string return what happens next, in words for a person."""

    def __init__(self, store: Store, host: Host) -> None:
        self._store = store
        self._host = host

    def pause(self, run: str) -> str:
        row = self._store.runs.get(run)
        if row.state.final:
            raise UserError(f"run {row.id} is {row.state}", hint="windlass runs lists the others")
        if not is_driven(self._host.place.lock(row.id)):
            return f"run {row.id} is not running ({row.state})"
        self._store.runs.request(row.id, "pause")
        return f"run {row.id} will pause when its running agents finish"

    def detour(self, run: str, target: str, by: str, comment: str = "") -> bool:
        """Have the run leave its way: `restart STAGE`, or `waive` to go on without the phase where it is.

        Returns whether a driver does it now. Otherwise the next driver does it first.
        """
        row = self._store.runs.get(run)
        if row.state.final:
            raise UserError(f"run {row.id} is {row.state}", hint="windlass runs lists the others")
        wish = {"id": f"{self._host.new_id()}", "target": target, "by": by, "comment": comment}
        with self._store.transaction():
            if self._store.runs.get(row.id).wanted == "abort":
                raise UserError(f"run {row.id} is being aborted", hint=f"windlass show {row.id}")
            self._store.runs.request(row.id, json.dumps(wish))
        return is_driven(self._host.place.lock(row.id))

    def tell(self, run: str, text: str, by: str, role: str = "") -> str:
        """Queue a message for the next dispatch of that role. Without a role: the next one that writes code."""
        row = self._store.runs.get(run)
        if row.state.final:
            raise UserError(f"run {row.id} is {row.state}", hint="windlass runs lists the others")
        with self._store.transaction():
            self._store.messages.add(row.id, text, by, role)
            self._store.events.add(Person(row.id), RunTold(text, by, role))
        receiver = f"'{role}'" if role else "an agent that writes code"
        return f"queued: the next dispatch of {receiver} in run {row.id} will receive it; see windlass status"

    def detach(self, run: str) -> None:
        """Mark the run as one that a background driver continues, also after an answer."""
        row = self._store.runs.get(run)
        self._store.runs.set_options(Person(row.id), {**row.options, "detached": True})

    # -- abort

    def abort(self, run: str) -> str:
        row = self._store.runs.get(run)
        if row.state.final:
            raise UserError(f"run {row.id} is {row.state} already", hint="windlass runs lists the others")
        try:
            # While this process holds the lock, no driver can start.
            with driver_lock(self._host.place.lock(row.id), row.id):
                left = self._end_agents(row.id)
                self._record_abort(row)
        except LockHeldError:
            with self._store.transaction():
                if self._store.runs.get(row.id).state is RunState.RUNNING:
                    # The driver reads this before it records anything else. If it dies, the next driver reads it.
                    self._store.runs.request(row.id, "abort")
                    return f"run {row.id} is being aborted"
                self._record_abort(row)
            left = ""
        self._end_workflow_files(row)
        return f"run {row.id} is aborted; its branch and its history are kept{left}"

    def _record_abort(self, row: RunRow) -> None:
        """Record the end under a new epoch, so that a driver that lost its lock cannot write over it."""
        with self._store.transaction():
            if self._store.runs.get(row.id).state.final:
                return
            claim = self._store.runs.take(row.id)
            for attempt in self._store.attempts.running(row.id):
                self._store.attempts.interrupt(claim, attempt.intent.key, attempt.intent.n)
            self._store.runs.request(row.id, "")
            self._store.runs.set_state(claim, RunState.ABORTED, "aborted by the user")
            self._store.events.add(claim, RunEnded(RunState.ABORTED, "aborted by the user"))

    def _end_agents(self, run: str) -> str:
        """End the agents that a dead driver left running, and record what they spent.

        Returns a note about agents on other machines.
        """
        from windlass.dispatch.late_costs import LateCosts
        from windlass.dispatch.recovery import end_attempts, end_checks
        from windlass.errors import WindlassError
        from windlass.git import user_repo
        from windlass.git.engine_repo import EngineRepo
        from windlass.git.slots import Slots
        from windlass.paths import state_dir
        from windlass.runs.project import Project

        hostname, folder = socket.gethostname(), self._host.place.run_folder(run)
        attempts = self._store.attempts.running(run)
        here = [row for row in attempts if row.intent.host == hostname]
        slots = Slots(EngineRepo.open(user_repo.discover(self._host.cwd), state_dir(self._host.environ)))
        end_attempts(here, run, slots, folder, hostname, boot_id())
        end_checks(slots.engine, folder, hostname, boot_id())
        if not attempts:
            return ""
        project, row = Project(self._host), self._store.runs.get(run)
        claim = EpochClaim(run, row.epoch)
        try:
            config = project.config()
            adapters = project.adapters(config, str(row.options.get("script") or ""))
            costs = LateCosts(self._store, claim, folder, adapters, config.budget.unknown_usd)
        except WindlassError:
            # A broken config must not prevent an abort.
            costs = LateCosts(self._store, claim, folder, None)
        # As far as the usage files of the attempts show the cost.
        costs.interrupt(attempts)
        others = sorted({row.intent.host for row in attempts} - {hostname})
        return f"; an agent may still be running on {', '.join(others)}" if others else ""

    def _end_workflow_files(self, row: RunRow) -> None:
        """Remove or update the state files for other tools. A driver does this when it ends a run; here there is no
        driver."""
        from itertools import chain

        from windlass.views import state_file, superteam
        from windlass.views.build import fold
        from windlass.views.files import FILES, IN_PLACE_MEMORY, Projector

        folder = self._host.place.run_folder(row.id)
        projectors = [Projector(folder, private=True)]
        if row.options.get("in_place"):
            projectors.append(Projector(self._host.place.root, folder / IN_PLACE_MEMORY))
        for projector in projectors:
            projector.remove(superteam.FILE)
        view = fold(chain.from_iterable(self._store.events.pages(row.id)), row.id)
        if view.stages:
            # The state of a run with stages stays, with its end.
            text = state_file.render_state(view)
            places = [Projector(folder / FILES, private=True), *projectors[1:]]
            for projector in places:
                projector.write(state_file.FILE, text)
