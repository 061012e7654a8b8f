"""Every test starts in a clean room: no home folder, no git configuration, no network, no real agent CLI."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import socket
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import HealthCheck, Phase, settings

# Derandomised: whether the suite passes depends on the code alone. `make long` uses `ci`; `explore` is for hunting.
_COMMON: dict[str, Any] = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow], "print_blob": True}
settings.register_profile("fast", max_examples=25, derandomize=True, **_COMMON)
settings.register_profile("ci", max_examples=40, derandomize=True, **_COMMON)
settings.register_profile("explore", max_examples=5000, **_COMMON)
#: a failure is enough: to look for the smallest one takes minutes
settings.register_profile(
    "mutants",
    settings.get_profile("ci"),
    max_examples=60,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fast"))

AGENT_CLIS = ("claude", "codex", "pi", "gemini", "opencode", "copilot", "goose", "qwen", "gh")
KEPT = ("PATH", "LANG", "LC_ALL", "TMPDIR", "TZ", "PYTHONDONTWRITEBYTECODE", "HYPOTHESIS_PROFILE", "SYSTEMROOT")
KEPT_PREFIXES = ("PYTEST_", "COV_")
IDENTITY = {"NAME": "Test Person", "EMAIL": "person@example.invalid", "DATE": "2026-01-02T03:04:05+00:00"}
REFUSAL = """#!/bin/sh
echo "a test started the real agent CLI '$(basename "$0")'; mark it with real_agent if it must" >&2
exit 97
"""


MEMORY = Path("/dev/shm")
ENOUGH = 6 << 30
"""Bytes. The suite holds well under one GiB at a time."""


def pytest_configure(config: pytest.Config) -> None:
    """Do not ignore Ctrl-C, and put temporary folders into memory where there is enough of it.

    A shell starts its background jobs with SIGINT ignored, and processes inherit that: the tests of Ctrl-C would send
    it to processes that ignore it, as Windlass does on purpose.

    The journal and git wait for the disk often. The live suite needs it: the sandbox of a real CLI has a /dev of its
    own, without these folders.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    live = any("live" in Path(str(argument).partition("::")[0]).parts for argument in config.args)
    if live or not os.access(MEMORY, os.W_OK):
        return
    if min(shutil.disk_usage(MEMORY).free, psutil.virtual_memory().available) > ENOUGH:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the variants of a sweep that `make test` leaves to `make long`."""
    variants: Counter[str] = Counter()
    for item in items:
        sweep = item.get_closest_marker("sweep")
        if sweep is not None:
            name = item.nodeid.partition("[")[0]
            if variants[name] % sweep.args[0]:
                item.add_marker(pytest.mark.long)
            variants[name] += 1


@pytest.fixture(scope="session")
def refusing_clis(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("clis")
    for name in AGENT_CLIS:
        (folder / name).write_text(REFUSAL)
        (folder / name).chmod(0o755)
    return folder


@pytest.fixture(scope="session")
def _homes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("homes")
    return (folder / str(n) for n in itertools.count())


@pytest.fixture(autouse=True)
def clean_room(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, refusing_clis: Path, _homes: Iterator[Path]
) -> Path:
    """The test's own home folder, and nothing else of the person who runs the suite. Gives that folder."""
    home = next(_homes)
    real = request.node.get_closest_marker("real_agent") is not None
    for name in list(os.environ):
        if name not in KEPT and not name.startswith(KEPT_PREFIXES):
            monkeypatch.delenv(name)
    for name, value in _environment(home).items():
        monkeypatch.setenv(name, value)
    if not real:
        monkeypatch.setenv("PATH", f"{refusing_clis}{os.pathsep}{os.environ['PATH']}")
        monkeypatch.setattr(socket.socket, "connect", _loopback_only(socket.socket.connect))
        monkeypatch.setattr(socket.socket, "connect_ex", _loopback_only(socket.socket.connect_ex))
    return home


def _environment(home: Path) -> dict[str, str]:
    folders = {"HOME": home}
    for name in ("CONFIG", "STATE", "DATA", "CACHE"):
        folders[f"XDG_{name}_HOME"] = home / name.lower()
    for folder in folders.values():
        folder.mkdir(parents=True)
    git = {f"GIT_{who}_{what}": value for who in ("AUTHOR", "COMMITTER") for what, value in IDENTITY.items()}
    return {
        **{name: str(folder) for name, folder in folders.items()},
        **git,
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "TERM": "dumb",
        "COLUMNS": "80",
    }


def _loopback_only(connect: Any) -> Any:
    def guarded(self: socket.socket, address: Any) -> Any:
        if self.family != getattr(socket, "AF_UNIX", None) and address[0] not in ("127.0.0.1", "::1", "localhost"):
            raise RuntimeError(f"a test reached for the network: {address[0]}")
        return connect(self, address)

    return guarded
