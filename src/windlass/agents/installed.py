"""Free facts about a CLI: whether it is installed, its version, whether it seems logged in."""

from __future__ import annotations

import re
import shutil
import subprocess  # noqa: TID251 - a version is asked for before there is a run that could supervise it
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from msgspec import Struct

from windlass.agents.cli.account import Account
from windlass.agents.registry import CLIS, cli_module

PATIENCE_S = 20.0
_NUMBER = re.compile(r"\d+\.\d+\.\d+[\w.+-]*")


class Login(Struct, frozen=True):
    found: bool
    how: str
    """The variable or the file that was found; otherwise the places that were searched."""


def known_version(name: str) -> str:
    """The version that Windlass was tested with; '' for another agent."""
    return str(cli_module(name).TESTED) if name in CLIS else ""


def install_command(name: str) -> str:
    """How to install the CLI; '' for another agent."""
    return str(cli_module(name).INSTALL) if name in CLIS else ""


def find(name: str, environ: Mapping[str, str], binary: str = "") -> str:
    """The path of the CLI; '' when it is not installed."""
    return shutil.which(binary or name, path=environ.get("PATH", "")) or ""


def first(environ: Mapping[str, str], binary: Callable[[str], str] = lambda name: "") -> str:
    """The default agent when the config names none; '' when no CLI is installed."""
    return next((name for name in CLIS if find(name, environ, binary(name))), "")


def version(binary: str, environ: Mapping[str, str], node: str = "") -> str:
    """'' when it does not start or prints no version."""
    command = [*([node] if node else []), binary, "--version"]
    # Some CLIs write into the home folder as soon as they start.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home:
        try:
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                errors="replace",
                stdin=subprocess.DEVNULL,
                timeout=PATIENCE_S,
                env={**environ, "HOME": home},
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            return ""
    found = _NUMBER.search(done.stdout)
    return found[0] if found and done.returncode == 0 else ""


def version_warning(name: str, version: str) -> str:
    """A warning, or ''."""
    known = known_version(name)
    if not version or not known or version == known:
        return ""
    return f"{name} {version} was not tested with Windlass; {known} was"


def login_state(name: str, environ: Mapping[str, str], home: Path) -> Login:
    """Best effort: a variable or a file shows that a login exists, not that it is still valid."""
    if name not in CLIS:
        return Login(False, "")
    account: Account = cli_module(name).ACCOUNT
    # A region or an address is not a login.
    variables = [one for one in account.variables if re.search(r"KEY|TOKEN|CREDENTIALS|_USE_", one)]
    files = [Path(account.place(environ, str(home))) / file for file in account.files]
    for variable in variables:
        if environ.get(variable):
            return Login(True, variable)
    for path in files:
        if path.is_file() and path.stat().st_size > 2:
            return Login(True, str(path))
    return Login(False, ", ".join(str(path) for path in files))
