"""The content of a slot or a commit, and commits made without a checkout."""

from __future__ import annotations

import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from windlass.errors import GitError
from windlass.git import run as git
from windlass.git.engine_repo import EngineRepo
from windlass.git.intake import RefusedObjectsError, take_in
from windlass.git.plumbing.stale_locks import locks_in
from windlass.git.slot import Slot, check_path

HUNK = re.compile(r"@@ -\d+(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")

GITLINK = "160000"
FIELDS = {"1": 9, "u": 11, "?": 2}
"""How many fields an entry of `status --porcelain=v2` has, by its first sign: changed, unmerged, untracked. The path is
the last one, and may contain spaces."""


class SlotStatus(Struct, frozen=True):
    head: str
    tree: str
    """The tree of `head`, without uncommitted changes."""
    dirty: tuple[str, ...]
    """Changed or untracked, not ignored. A nested repository ends with '/'."""
    detached: bool = True
    refused: str = ""
    """Why commits of the slot cannot be taken; their files count as uncommitted then."""
    partial: bool = False
    """Some files of the index are not checked out (skip-worktree); they count as unchanged."""


class ChangeKind(StrEnum):
    ADDED = "added"
    MODIFIED = "modified"
    DELETED = "deleted"


class Change(Struct, frozen=True):
    path: str
    kind: ChangeKind
    nested: bool = False
    """A nested repository: only the name of a commit is stored, none of its files."""


def status(engine: EngineRepo, slot: Slot) -> SlotStatus:
    """Read the status of a slot, and take its head into the engine's repository. Does not enter a repository inside the
    slot: its configuration names programs that git would run."""
    options = ["--porcelain=v2", "--branch", "-z", "--untracked-files=all", "--no-renames", "--ignore-submodules=dirty"]
    # Two gits side by side take the time of one. Flags are rare, and only with them status has to look again.
    with ThreadPoolExecutor(1) as pool:
        looking = pool.submit(slot.clear_index_flags, absent=False)
        fields = slot.git("status", *options).fields
        flags = looking.result()
    if flags.cleared:
        fields = slot.git("status", *options).fields
    heads = [field.removeprefix("# branch.oid ") for field in fields if field.startswith("# branch.oid ")]
    if not heads or heads[0] == "(initial)":
        raise GitError(f"slot {slot.n} has no commit", hint="`windlass doctor`")
    try:
        take_in(engine, slot, heads[:1])
    except RefusedObjectsError as error:
        # HEAD goes back to the commit that the slot was placed at; all files stay.
        placed = slot.placed_at()
        if not placed or not engine.objects.has(placed):
            raise
        slot.git("update-ref", "--no-deref", "HEAD", placed)
        slot.git("read-tree", placed)
        return replace(status(engine, slot), refused=error.message)
    dirty = tuple(field.split(" ", FIELDS[field[0]] - 1)[-1] for field in fields if not field.startswith("#"))
    detached = "# branch.head (detached)" in fields
    return SlotStatus(heads[0], engine.objects.tree_of(heads[0]), dirty, detached, partial=flags.partial)


def harvest(engine: EngineRepo, slot: Slot, message: str, date: float) -> str:
    """Commit everything that is not ignored. Returns the head, which is unchanged when there was nothing to commit."""
    seen = status(engine, slot)
    if not seen.dirty:
        return seen.head
    clear_locks(slot)
    _add_all(engine, slot, seen.dirty, {"GIT_INDEX_FILE": str(slot.git_dir / "index")})
    slot.git(
        "commit",
        "-q",
        "--no-verify",
        "--allow-empty",
        "--cleanup=whitespace",
        "-m",
        message,
        env=git.date_variables(date),
    )
    head = slot.git("rev-parse", "HEAD").line
    take_in(engine, slot, [head])
    return head


def clear_locks(slot: Slot) -> None:
    """Remove the locks of killed gits. Only for a slot in which no process is left."""
    nested = [path for name in ("modules", "worktrees") for path in (slot.git_dir / name).rglob("*.lock")]
    for lock in (*locks_in(slot.git_dir), *nested):
        if not lock.is_dir() or lock.is_symlink():
            lock.unlink(missing_ok=True)


def work_tree(engine: EngineRepo, slot: Slot, seen: SlotStatus | None = None) -> str:
    """The tree of all files in the slot that are not ignored. Changes neither the slot's index nor its files."""
    seen = seen or status(engine, slot)
    if not seen.dirty:
        return seen.tree
    with _temporary_index() as (env, index):
        if (slot.git_dir / "index").exists():
            shutil.copyfile(slot.git_dir / "index", index)
        _add_all(engine, slot, seen.dirty, env)
        tree = slot.git("write-tree", env=env).line
    take_in(engine, slot, [tree], like=seen.tree)
    return tree


def _add_all(engine: EngineRepo, slot: Slot, dirty: Sequence[str], env: Mapping[str, str]) -> None:
    """Add the files that differ; `git add -A` would check every file again. Of a nested repository git would store only
    the name of a commit, so its files are stored."""
    nested = [path.rstrip("/") for path in dirty if path.endswith("/")]
    # The files of a folder replace the file that became this folder: git refuses the name of a folder.
    above = {path[:n] for path in dirty for n, char in enumerate(path) if char == "/"}
    folders = {
        path for path in dirty if path in above and (slot.path / path).is_dir() and not (slot.path / path).is_symlink()
    }
    names = "".join(f"{path}\0" for path in dirty if not path.endswith("/") and path not in folders)
    slot.git("update-index", "--add", "--remove", "--replace", "-z", "--stdin", input=names, env=env)
    for folder in nested:
        stage(engine, _entries_of(engine, slot.path, slot.path / folder), env)


def _entries_of(engine: EngineRepo, top: Path, root: Path) -> dict[str, str]:
    """Store every file and link below `root`. Returns path below `top` -> 'mode sha'."""
    found = {}
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(name for name in folders if name != ".git")
        for name in sorted({*files, *folders} - {".git"}):
            place = Path(folder, name)
            seen = place.lstat()
            path = os.fsencode(place.relative_to(top)).decode("utf-8", "surrogateescape")
            if stat.S_ISLNK(seen.st_mode):
                found[path] = f"120000 {engine.objects.write_blob(os.readlink(os.fsencode(place)))}"
            elif stat.S_ISREG(seen.st_mode):
                mode = "100755" if seen.st_mode & stat.S_IXUSR else "100644"
                found[path] = f"{mode} {engine.objects.write_blob(place.read_bytes())}"
    return found


@contextmanager
def _temporary_index() -> Iterator[tuple[dict[str, str], Path]]:
    with tempfile.TemporaryDirectory(prefix="windlass-index-") as folder:
        index = Path(folder) / "index"
        yield {"GIT_INDEX_FILE": str(index)}, index


def stage(engine: EngineRepo, entries: Mapping[str, str], env: Mapping[str, str]) -> None:
    """`entries`: path -> 'mode sha'."""
    lines = "".join(f"{entry}\t{path}\0" for path, entry in entries.items())
    engine.git("update-index", "-z", "--add", "--replace", "--index-info", input=lines, env=env)


def edited_tree(engine: EngineRepo, base: str, contents: Mapping[str, str]) -> str:
    """The tree of `base` with these files written into it."""
    for path in contents:
        check_path(path)
    with _temporary_index() as (env, _):
        engine.git("read-tree", base, env=env)
        texts = {path: text.encode("utf-8", "surrogateescape") for path, text in contents.items()}
        stage(engine, {path: f"100644 {engine.objects.write_blob(text)}" for path, text in texts.items()}, env)
        return engine.git("write-tree", env=env).line


def restaged_tree(engine: EngineRepo, base: str, entries: Mapping[str, str]) -> str:
    """The tree of `base` with other blobs at these paths; `entries`: path -> 'mode sha'."""
    with _temporary_index() as (env, _):
        engine.git("read-tree", base, env=env)
        stage(engine, entries, env)
        return engine.git("write-tree", env=env).line


def commit_tree(engine: EngineRepo, tree: str, parents: Sequence[str], message: str, date: float) -> str:
    """The same arguments give the same SHA, so a repeated call after a crash changes nothing."""
    text = message if message.endswith("\n") else f"{message}\n"
    return engine.objects.write_commit(tree, parents, f"{engine.committer} {int(date)} +0000", text)


def commit_artifacts(engine: EngineRepo, tip: str, contents: Mapping[str, str], message: str, date: float) -> str:
    """Commit files on a tip without a checkout. No ref leads to the commit yet; it is `tip` itself when nothing
    changes."""
    tree = edited_tree(engine, tip, contents)
    if tree == engine.objects.tree_of(tip):
        return tip
    return commit_tree(engine, tree, [tip], message, date)


def changes(engine: EngineRepo, base: str, head: str) -> tuple[Change, ...]:
    """The changes between two commits or trees. For a slot with uncommitted work, `head` is its `work_tree`."""
    fields, kinds = engine.diffs.between(base, head), {"A": ChangeKind.ADDED, "D": ChangeKind.DELETED}
    found = []
    for entry, path in zip(fields[0::2], fields[1::2], strict=True):
        _, mode, _, _, letter = entry.split(" ")
        found.append(Change(path, kinds.get(letter, ChangeKind.MODIFIED), nested=mode == GITLINK))
    return tuple(found)


def diff(engine: EngineRepo, base: str, head: str, max_bytes: int) -> str:
    options = ["--no-color", "--no-ext-diff", "--no-textconv", "--no-renames"]
    text, more = git.capped_output([f"--git-dir={engine.path}", "diff", *options, base, head], engine.home, max_bytes)
    return f"{text}\n[diff cut after {max_bytes} bytes]\n" if more else text


def places(engine: EngineRepo, base: str, head: str, most: int = 200) -> str:
    """The places where two commits differ: one file a line, with line numbers of `head`, without any content."""
    options = ["--no-color", "--no-ext-diff", "--no-textconv", "--no-renames", "--no-prefix", "--unified=0"]
    found: dict[str, list[str]] = {}
    path, kind, skip = "", "", 0
    for line in engine.git("-c", "core.quotePath=false", "diff", *options, base, head).out.splitlines():
        if skip:
            # a line of the file, whatever it contains
            skip -= not line.startswith("\\")
        elif line.startswith("diff --git "):
            # Without prefixes and renames both names are equal; a binary file has no other line with its name.
            names = line.removeprefix("diff --git ")
            path, kind = names[: len(names) // 2], ""
        elif line.startswith(("new file", "deleted file")):
            kind = "new" if line.startswith("new") else "deleted"
        elif line.startswith(("--- ", "+++ ")) and line[4:] != "/dev/null":
            path = line[4:].rstrip("\t")
            found[path] = [kind] if kind else []
        elif hunk := HUNK.match(line):
            old, start, new = int(hunk[1] or 1), int(hunk[2]), int(hunk[3] or 1)
            skip = old + new
            found[path] += [] if kind else [_range(start, new, old)]
        elif line.startswith("Binary files "):
            found[path] = [kind or "changed, not text"]
    lines = [f"- {name}: {', '.join(ranges) or 'changed'}" for name, ranges in found.items()]
    more = len(lines) - most
    return "\n".join([*lines[:most], f"- and {more} more files"] if more > 0 else lines)


def _range(start: int, new: int, old: int) -> str:
    if not new:
        return f"{old} line{'s' if old > 1 else ''} removed after line {start}"
    return f"line {start}" if new == 1 else f"lines {start}-{start + new - 1}"


def read_at(engine: EngineRepo, commit: str, path: str, max_bytes: int) -> tuple[str, bool] | None:
    """A file of the commit, and whether it was cut. Follows links inside the commit, never out of it."""
    asked = f"{commit}:{check_path(path)}\n"
    answer = engine.git("cat-file", "--batch-check", "--follow-symlinks", input=asked).out
    match answer.split("\n", 1)[0].split(" "):
        case [sha, "blob", _]:
            return git.capped_output([f"--git-dir={engine.path}", "cat-file", "blob", sha], engine.home, max_bytes)
        case _:
            return None


def patch_id(engine: EngineRepo, base: str, head: str) -> str:
    """Equal for the same change on another base: it shows whether a conflict's resolution changed reviewed work."""
    command = [f"--git-dir={engine.path}", "diff-tree", "-p", "--full-index", "--no-ext-diff", base, head]
    patch = git.run_raw(command, engine.home).stdout
    return engine.git("patch-id", "--stable", input=patch).line.partition(" ")[0]
