"""The composition root: the only place that reads the environment, the clock and chance."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct

from windlass import place
from windlass.service import Service, World

if TYPE_CHECKING:
    from windlass.driving import Beside, Ended
    from windlass.engine.broker import Asker, Policy
    from windlass.events import Recorded
    from windlass.kit import Kit
    from windlass.starting import Start

    Heard: TypeAlias = Callable[[Recorded], None]


class App(Struct, frozen=True, dict=True):
    world: World

    @cached_property
    def service(self) -> Service:
        return Service(self.world)

    @cached_property
    def kit(self) -> Kit:
        from windlass.kit import Kit

        return Kit(self.world)

    def start(self, start: Start) -> str:
        from windlass.starting import start_run

        return start_run(self.kit, start, self.new_id())

    def new_id(self) -> str:
        import uuid

        return uuid.uuid4().hex[:12]

    def drive(
        self,
        run: str,
        *,
        on_event: Callable[[Recorded], None],
        asker: Asker | None = None,
        beside: Beside | None = None,
        policy: Policy | None = None,
        budget: float | None = None,
        agent: str = "",
        roles: Mapping[str, str] | None = None,
        script: str = "",
    ) -> Ended:
        from windlass.driving import Cast, drive

        with self._telling(run, on_event) as heard:
            return drive(
                self.kit,
                run,
                crash=_crash(self.world.environ),
                on_event=heard,
                asker=asker,
                **({"beside": beside} if beside else {}),
                policy=policy,
                budget=budget,
                cast=Cast(agent, roles or {}),
                script=script,
            )

    @contextmanager
    def _telling(self, run: str, on_event: Heard) -> Iterator[Heard]:
        """Events go to the face first; where messages are configured, they go out besides."""
        if not self.kit.config().notify.urls:
            yield on_event
            return
        from windlass.notifying import notices

        def both(recorded: Recorded) -> None:
            on_event(recorded)
            watching.on_event(recorded)

        with notices(self.kit, run, self.service.run(run).request) as watching:
            yield both

    @property
    def _named(self) -> list[str]:
        return ["--repo", self.world.named] if self.world.named else []

    def detach(self, run: str) -> int:
        """A driver of its own, in a session of its own; its process id."""
        import subprocess

        from windlass.private import make_private, open_private

        folder = self.world.place.run_folder(run)
        make_private(folder)
        with open_private(folder / "driver.log") as log:
            process = subprocess.Popen(
                # -P: nothing that lies in the user's repository is imported.
                [sys.executable, "-P", "-m", "windlass", *self._named, "drive", run],
                cwd=self.world.cwd,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        return process.pid


def build(cwd: Path | None = None, environ: Mapping[str, str] | None = None, *, named: str = "") -> App:
    here = Path(cwd or os.getcwd()).resolve()
    return App(World(place.find(here), os.environ if environ is None else environ, time.time, here, named))


def environment() -> Mapping[str, str]:
    return os.environ


def _crash(environ: Mapping[str, str]) -> Callable[[str], None]:
    """Crash points exist for the tests that kill a driver at every recorded step."""
    if "WINDLASS_CRASH" not in environ:
        return lambda point: None
    from windlass.testing import crash_point

    return crash_point(environ["WINDLASS_CRASH"])
