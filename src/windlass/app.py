"""The composition root: the only place that reads the environment, the clock and random numbers."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from windlass import paths
from windlass.runs.app import App
from windlass.runs.service import Host


class Composition(Struct, frozen=True):
    """Implements `runs.app.Apps` on this machine."""

    environ: Mapping[str, str]

    def at(self, place: str = "") -> App:
        if not place:
            return self.in_folder(Path.cwd())
        from windlass.git.clones import address_of, known_clone

        here = Path.cwd()
        return self.in_folder(known_clone(place, here, self.environ), named=address_of(place, here))

    def in_folder(self, folder: Path, *, named: str = "") -> App:
        here = folder.resolve()
        return App(Host(paths.find(here), self.environ, time.time, here, new_id, spawn, named))

    def in_clone(self, url: str) -> App:
        from windlass.git.clones import address_of, clone_of

        here = Path.cwd()
        return self.in_folder(clone_of(url, here, self.environ), named=address_of(url, here))


def compose() -> Composition:
    return Composition(os.environ)


def new_id() -> str:
    import uuid

    return uuid.uuid4().hex[:12]


def spawn(argv: Sequence[str], cwd: Path, log: Path) -> int:
    import subprocess

    from windlass.private_files import open_private

    with open_private(log) as output:
        process = subprocess.Popen(
            argv, cwd=cwd, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
    return process.pid
