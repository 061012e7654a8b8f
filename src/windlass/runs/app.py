"""What an interface can ask of Windlass in one repository: read runs, start one, drive one."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeAlias

from msgspec import Struct

from windlass.runs.service import Host, Service

if TYPE_CHECKING:
    from windlass.events import Recorded
    from windlass.runs.project import Project
    from windlass.runs.start import Start

    Heard: TypeAlias = Callable[[Recorded], None]


class App(Struct, frozen=True, dict=True):
    world: Host

    @cached_property
    def service(self) -> Service:
        return Service(self.world)

    @cached_property
    def kit(self) -> Project:
        from windlass.runs.project import Project

        return Project(self.world)

    def start(self, start: Start) -> str:
        from windlass.runs.start import start_run

        return start_run(self.kit, start, self.world.new_id())

    def detach(self, run: str) -> int:
        """Start a driver in a process and a session of its own. Returns its process id."""
        from windlass.private_files import make_private

        folder = self.world.place.run_folder(run)
        make_private(folder)
        named = ["--repo", self.world.named] if self.world.named else []
        # -P: nothing that lies in the user's repository is imported.
        argv = [sys.executable, "-P", "-m", "windlass", *named, "drive", run]
        return self.world.spawn(argv, self.world.cwd, folder / "driver.log")


class Apps(Protocol):
    """Makes the `App` of a repository. The composition root implements it and hands it to the interface."""

    @property
    def environ(self) -> Mapping[str, str]: ...

    def at(self, place: str = "") -> App:
        """Of the current folder, or of the folder or address that a person named."""
        ...

    def in_folder(self, folder: Path) -> App: ...

    def in_clone(self, url: str) -> App:
        """Of the clone that Windlass keeps for this address. Makes the clone, or brings it up to date."""
        ...
