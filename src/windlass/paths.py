"""Where files and folders are. Found without starting a process, because `status` must answer at once."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from windlass.errors import UserError, require_text


class ProjectPaths(Struct, frozen=True):
    """A repository as seen from a folder inside it."""

    root: Path
    """The checkout."""
    common: Path
    """Its git folder, shared by all its worktrees."""

    @property
    def home(self) -> Path:
        """`git clean -fdx` must not reach it."""
        return self.common / "windlass"

    @property
    def database(self) -> Path:
        return self.home / "windlass.db"

    def run_folder(self, run: str) -> Path:
        return self.home / "runs" / run

    def branch_commit(self, branch: str) -> str | None:
        """The commit of a branch; '' when there is none. None: the refs are not in files, only git can read them."""
        if not (self.common / "refs" / "heads").is_dir():
            return None
        ref = f"refs/heads/{branch}"
        try:
            return (self.common / ref).read_text(encoding="utf-8").strip()
        except OSError:
            pass
        try:
            packed = (self.common / "packed-refs").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""
        lines = (line.split(" ", 1) for line in packed.splitlines())
        return next((words[0] for words in lines if len(words) == 2 and words[1] == ref), "")

    def lock(self, run: str) -> Path:
        return self.home / "locks" / f"{run}.lock"


def find(start: Path) -> ProjectPaths:
    # Prompts, records and refs contain the folder's name, so it must be text.
    require_text(str(start), "the name of this folder")
    for folder in (start, *start.parents):
        git = folder / ".git"
        if git.is_dir():
            return ProjectPaths(folder, git)
        if git.is_file():
            return ProjectPaths(folder, _common(folder, git.read_text(encoding="utf-8", errors="surrogateescape")))
        if folder.name != ".git" and (folder / "objects").is_dir() and (folder / "HEAD").is_file():
            raise UserError(f"'{folder}' is a bare repository", hint="go to a checkout of it")
    raise UserError(f"'{start}' is not in a git repository", hint="cd into one, or begin with: git init")


def _common(folder: Path, text: str) -> Path:
    """A linked worktree's `.git` is a file that names its own git folder, which names the common one."""
    own = (folder / text.removeprefix("gitdir:").strip()).resolve()
    named = own / "commondir"
    return (own / named.read_text().strip()).resolve() if named.is_file() else own


def state_dir(environ: Mapping[str, str]) -> Path:
    return _xdg(environ, "XDG_STATE_HOME", ".local/state")


def config_dir(environ: Mapping[str, str]) -> Path:
    return _xdg(environ, "XDG_CONFIG_HOME", ".config") / "windlass"


def _xdg(environ: Mapping[str, str], name: str, default: str) -> Path:
    given = environ.get(name, "")
    if given.startswith("/"):
        return Path(require_text(given, name))
    home = require_text(environ.get("HOME", ""), "HOME")
    if not home:
        raise UserError(f"neither {name} nor HOME is set", hint=f"set {name} to a folder that may be written")
    return Path(home) / default
