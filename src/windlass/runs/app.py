"""What an interface can do in one repository: read runs, start one, drive one."""

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

    EventHandler: TypeAlias = Callable[[Recorded], None]


class App(Struct, frozen=True, dict=True):
    host: Host

    @cached_property
    def service(self) -> Service:
        return Service(self.host)

    @cached_property
    def project(self) -> Project:
        from windlass.runs.project import Project

        return Project(self.host)

    def start(self, start: Start) -> str:
        from windlass.runs.start import start_run

        return start_run(self.project, start, self.host.new_id())

    def detach(self, run: str) -> int:
        """Start a driver in a new process and session. Returns its process id."""
        from windlass.private_files import make_private

        folder = self.host.place.run_folder(run)
        make_private(folder)
        named = ["--repo", self.host.named] if self.host.named else []
        # -P: do not import modules from the user's repository.
        argv = [sys.executable, "-P", "-m", "windlass", *named, "drive", run]
        return self.host.spawn(argv, self.host.cwd, folder / "driver.log")


class Apps(Protocol):
    """Makes the `App` of a repository. The composition root implements this and passes it to the interface."""

    @property
    def environ(self) -> Mapping[str, str]: ...

    def at(self, place: str = "") -> App:
        """The app of the current folder, or of the folder or URL that a person named."""
        ...

    def in_folder(self, folder: Path) -> App: ...

    def in_clone(self, url: str) -> App:
        """The app of the managed clone of this URL. Makes the clone, or updates it."""
        ...
