"""Moves the user's checkout from one commit to another: completely, or not at all, even when killed.

The order of effects is: intent on disk, index lock, files, index, branch, unlock, record, intent gone. The branch moves
after everything else, so it alone decides the end of an interrupted move: with the branch at the new commit the move is
finished; with the branch at the old one the files are restored, one by one.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct, field, to_builtins

from windlass.errors import GitError, UserError
from windlass.git import run as git
from windlass.git import user_repo
from windlass.git.user_repo import UserRepo
from windlass.locks import try_lock
from windlass.private_files import replace_file
from windlass.text import plain

LAND, FOLLOW = "land", "follow"
LOCK_WAIT_S = 30.0
LOCK_LOOK_S = 0.05
MANY = 5
ABSENT = ("0", "")
SCRATCH = (".part", ".lock-text", ".index", ".index.lock")
"""Files that a killed command may leave next to the intent; they are not needed."""
GITLINK, SYMLINK = "160000", "120000"


class PathChange(Struct, frozen=True):
    """A path with its mode and blob on both sides; ABSENT where it does not exist."""

    path: str
    before: tuple[str, str]
    after: tuple[str, str]


class CheckoutMove(Struct, frozen=True):
    """The intent: stored before the first effect, removed after the last one."""

    kind: str
    """land | follow"""
    run: str
    branch: str
    before: str
    after: str
    facts: Mapping[str, str] = field(default_factory=dict)
    """Facts that `record` needs, also when another command finishes the move."""
    token: str = ""
    """The content of Windlass's index lock; a lock with another content belongs to another program."""
    changes: tuple[PathChange, ...] = ()


class Settled(Struct, frozen=True):
    """The end of an interrupted move."""

    move: CheckoutMove
    how: str
    """finished | taken back | left"""
    untouched: tuple[str, ...] = ()
    """Files that match neither the state before the move nor the state after it."""

    @property
    def text(self) -> str:
        what = "A landing" if self.move.kind == LAND else "A step of the checkout"
        text = f"{what} of run {self.move.run} on '{self.move.branch}' was interrupted; it is {self.how} now"
        if self.how == "left":
            text += ", because the branch has moved since: look at `git status`"
        if not self.untouched:
            return text
        more = f" and {len(self.untouched) - MANY} more" if len(self.untouched) > MANY else ""
        return f"{text}. Changed meanwhile, so left as it is: {', '.join(self.untouched[:MANY])}{more}"


Record = Callable[[CheckoutMove], None]


def no_record(move: CheckoutMove) -> None:
    """For moves that are not recorded."""


def advance(user: UserRepo, move: CheckoutMove, record: Record = no_record) -> None:
    """Move the checked-out branch, its index and its files from `move.before` to `move.after`.

    Contract: `settle` was called, both commits are in the user's repository, and no tracked file is uncommitted. When
    it raises, nothing has changed. `record` runs after the move, before the intent is removed; it may run twice.
    """
    with _exclusive(user) as folder:
        intent = _intent(folder, user)
        if intent.exists():
            raise UserError("another move of this checkout was interrupted", hint="run the same command again")
        move = _plan(user, move)
        replace_file(intent, json.dumps(to_builtins(move)), sync_to="name", scratch=intent.with_suffix(".part"))
        try:
            _lock_index(user, move, folder)
        except UserError:
            intent.unlink()
            raise
        try:
            _perform(user, move, folder)
        except BaseException:
            _settle(user, move, folder, record)
            raise
        record(move)
        intent.unlink()


def settle(user: UserRepo, record: Record = no_record) -> Settled | None:
    """Finish or undo an interrupted move of this checkout. None: there is none. Costs one `stat`."""
    if not _intent(_folder(user), user).exists():
        return None
    with _exclusive(user) as folder:
        intent = _intent(folder, user)
        if not intent.exists():
            return None
        try:
            data = json.loads(intent.read_text(encoding="ascii"))
            changes = tuple(PathChange(c["path"], tuple(c["before"]), tuple(c["after"])) for c in data.pop("changes"))
            move = CheckoutMove(**data, changes=changes)
        except (ValueError, TypeError, KeyError):
            raise GitError(
                f"'{intent}' cannot be read: it says what an interrupted move of your checkout was to change",
                hint="look at `git status`, then delete that file",
            ) from None
        return _settle(user_repo.discover(user.root), move, folder, record)


# -- forward


def _plan(user: UserRepo, move: CheckoutMove) -> CheckoutMove:
    command = ["diff-tree", "-r", "-z", "--no-renames", "--no-ext-diff", move.before, move.after]
    fields = git.run(command, user.root).fields
    changes = []
    for entry, path in zip(fields[0::2], fields[1::2], strict=True):
        old_mode, new_mode, old, new, _ = entry.removeprefix(":").split(" ")
        changes.append(PathChange(path, _side(old_mode, old), _side(new_mode, new)))
    token = f"windlass {move.kind} {move.run} {move.before} {move.after}\n"
    return CheckoutMove(move.kind, move.run, move.branch, move.before, move.after, move.facts, token, tuple(changes))


def _side(mode: str, sha: str) -> tuple[str, str]:
    return (mode, sha) if sha.strip("0") else ABSENT


def _perform(user: UserRepo, move: CheckoutMove, folder: Path) -> None:
    _require_unchanged(user, move)
    _require_free(user, move)
    index = _copy_index(user, folder)
    env = {"GIT_INDEX_FILE": str(index)}
    done = git.run(["read-tree", "-m", "-u", move.before, move.after], user.root, env=env, check=False)
    if done.code != 0:
        raise UserError(
            f"cannot bring '{move.branch}' forward: {plain(done.err).strip()[-400:]}",
            hint="nothing was changed; move what is in the way, then try again",
        )
    index.replace(user.git_dir / "index")
    ref, reason = f"refs/heads/{move.branch}", f"windlass: {move.run} ({move.kind})"
    git.run(["update-ref", "-m", reason, ref, move.after, move.before], user.root)
    _index_lock(user).unlink()


def _lock_index(user: UserRepo, move: CheckoutMove, folder: Path) -> None:
    """Lock the index as git does, so that no git of the user changes it meanwhile. The content identifies Windlass's
    lock."""
    part = folder / f"{_name(user)}.lock-text"
    part.write_text(move.token, encoding="utf-8")
    lock = _index_lock(user)
    try:
        os.link(part, lock)
    except FileExistsError:
        raise UserError(
            f"another git is at work in this checkout, or was killed: '{lock}' exists",
            hint="nothing was changed; wait for it, or delete that file if no git is at work",
        ) from None
    finally:
        part.unlink()


def _require_unchanged(user: UserRepo, move: CheckoutMove) -> None:
    """Check again under the lock: the user may have worked since the command began."""
    here = user_repo.discover(user.root)
    if (here.branch, here.head) != (move.branch, move.before):
        raise UserError(f"'{move.branch}' was moved a moment ago", hint="nothing was changed; try again")
    require_clean(here, f"bring '{move.branch}' forward")


def _require_free(user: UserRepo, move: CheckoutMove) -> None:
    """Refuse when an untracked file of the user, ignored ones included, is at the path of a new file."""
    # On file systems that ignore case, the old name of a renamed file is such a path.
    leaving = {change.path.casefold() for change in move.changes if change.after == ABSENT}
    added = [c.path for c in move.changes if c.before == ABSENT and c.path.casefold() not in leaving]
    taken: list[str] = []
    for path in added:
        place = user.root / path
        found = [path] if os.path.lexists(place) else []
        if place.is_dir() and not place.is_symlink():
            below = [one for one in place.rglob("*") if one.is_symlink() or not one.is_dir()]
            found = [str(one.relative_to(user.root)) for one in below]
        taken += [name for name in found if name.casefold() not in leaving]
    if taken:
        names = ", ".join(f"'{plain(path)}'" for path in taken[:MANY])
        raise UserError(
            f"cannot bring '{move.branch}' forward: untracked files would be overwritten: {names}",
            hint="nothing was changed; move them away, then try again",
        )


def require_clean(user: UserRepo, what: str) -> None:
    if user_repo.is_dirty(user, untracked=False):
        raise UserError(f"cannot {what}: there are uncommitted changes", hint="commit or `git stash` them first")


def _copy_index(user: UserRepo, folder: Path) -> Path:
    index = folder / f"{_name(user)}.index"
    # A killed git of Windlass left it; no other process works on this checkout now.
    index.with_name(f"{index.name}.lock").unlink(missing_ok=True)
    shutil.copy2(user.git_dir / "index", index)
    return index


# -- after an interruption


def _settle(user: UserRepo, move: CheckoutMove, folder: Path, record: Record) -> Settled:
    ref = f"refs/heads/{move.branch}"
    at = git.read_refs(user.root, ref).get(ref, "")
    untouched: tuple[str, ...] = ()
    if at == move.after or (at != move.before and at and git.is_ancestor(user.root, move.after, at)):
        how = "finished"
    elif at == move.before and user_repo.discover(user.root).branch == move.branch:
        how, untouched = "taken back", _take_back(user, move, folder)
    else:
        how = "left"
    if _is_ours(user, move):
        _index_lock(user).unlink()
    if how == "finished":
        record(move)
    _intent(folder, user).unlink()
    return Settled(move, how, untouched)


def _take_back(user: UserRepo, move: CheckoutMove, folder: Path) -> tuple[str, ...]:
    """Restore every path to its state before the move. Returns those that another program has changed since."""
    if not _is_ours(user, move):
        # Killed before the index was locked, so nothing was changed. The lock is removed last, after the branch has
        # moved. Without a lock, files are half moved only if a person removed the lock.
        if not _index_lock(user).exists() and not user_repo.is_dirty(user, untracked=True):
            return ()
        _lock_index(user, move, folder)
    index = _copy_index(user, folder)
    env = {"GIT_INDEX_FILE": str(index)}
    hidden = _restore_index(user, move, env)
    changes = [change for change in move.changes if change.path not in hidden]
    untouched = _restore_files(user, changes, env)
    index.replace(user.git_dir / "index")
    return untouched


def _restore_index(user: UserRepo, move: CheckoutMove, env: Mapping[str, str]) -> set[str]:
    """Restore the index entries that the move has set. Returns the paths that are not checked out (sparse)."""
    listed = git.run(["ls-files", "-z", "-t", "-s"], user.root, env=env).fields
    entries, hidden = dict[str, tuple[str, str]](), set[str]()
    for line in listed:
        words, _, path = line.partition("\t")
        tag, mode, sha, stage = words.split(" ")
        if stage == "0":
            entries[path] = (mode, sha)
        if tag == "S":
            hidden.add(path)
    set_by_us = [c for c in move.changes if entries.get(c.path, ABSENT) == c.after]
    if set_by_us:
        zero = "0" * len(move.before)
        # Removals first: a file may replace a folder.
        ordered = sorted(set_by_us, key=lambda change: change.before != ABSENT)
        lines = "".join(f"{c.before[0]} {c.before[1] or zero}\t{c.path}\0" for c in ordered)
        git.run(["update-index", "-z", "--index-info"], user.root, env=env, input=lines)
        again = "".join(f"{c.path}\0" for c in ordered if c.path in hidden and c.before != ABSENT)
        if again:
            git.run(["update-index", "--skip-worktree", "-z", "--stdin"], user.root, env=env, input=again)
    return hidden


def _restore_files(user: UserRepo, changes: Sequence[PathChange], env: Mapping[str, str]) -> tuple[str, ...]:
    files = [change for change in changes if GITLINK not in (change.before[0], change.after[0])]
    found = _work_files(user, [change.path for change in files])
    ours = [change for change in files if _may_restore(user, change, found[change.path])]
    for change in ours:
        if change.before == ABSENT:
            _remove(user.root, change.path)
    wanted, blocked = list[str](), list[str]()
    for change in ours:
        if change.before != ABSENT:
            (blocked if _is_blocked(user.root, change.path) else wanted).append(change.path)
    if wanted:
        paths = "".join(f"{path}\0" for path in wanted)
        git.run(["checkout-index", "-f", "-u", "-q", "-z", "--stdin"], user.root, env=env, input=paths)
    others = [c.path for c in files if c not in ours and not _matches(found[c.path], c.before)]
    return tuple(plain(path) for path in sorted([*others, *blocked]))


def _may_restore(user: UserRepo, change: PathChange, found: tuple[str, str]) -> bool:
    if _matches(found, change.before) and change.before[1] != change.after[1]:
        return False
    # Git removes a file before it writes the new one: restoring a missing file overwrites nothing.
    if _matches(found, change.after) or (found == ABSENT and change.before != ABSENT):
        return True
    if ABSENT in (found, change.after) or SYMLINK in (found[0], change.after[0]):
        return False
    # A killed git leaves the beginning of a file; the commit has all of it.
    whole = git.run_raw(["cat-file", "--filters", f"--path={change.path}", change.after[1]], user.root).stdout
    return whole.startswith((user.root / change.path).read_bytes())


def _matches(found: tuple[str, str], side: tuple[str, str]) -> bool:
    """Compares content and type; not every file system knows whether a file is executable."""
    if ABSENT in (found, side):
        return found == side
    return found[1] == side[1] and (found[0] == SYMLINK) == (side[0] == SYMLINK)


def _work_files(user: UserRepo, paths: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Mode and blob of each path in the checkout; ABSENT also for a folder."""
    found, plain = dict.fromkeys(paths, ABSENT), dict[str, str]()
    for path in paths:
        try:
            seen = os.lstat(user.root / path)
        except OSError:
            continue
        if stat.S_ISLNK(seen.st_mode):
            target = os.fsencode(os.readlink(user.root / path))
            found[path] = (SYMLINK, hashlib.new(user.object_format, b"blob %d\0" % len(target) + target).hexdigest())
        elif stat.S_ISREG(seen.st_mode):
            plain[path] = "100755" if seen.st_mode & stat.S_IXUSR else "100644"
    # As `git add` would store them; git reads a name with a line break or a quote only as an argument.
    simple = [path for path in plain if "\n" not in path and not path.startswith('"')]
    lines = "".join(f"{path}\n" for path in simple)
    hashed = git.run(["hash-object", "--stdin-paths"], user.root, input=lines).out.split() if simple else []
    shas = dict(zip(simple, hashed, strict=True))
    shas |= {path: git.run(["hash-object", "--", path], user.root).line for path in plain if path not in shas}
    return found | {path: (plain[path], sha) for path, sha in shas.items()}


def _remove(root: Path, path: str) -> None:
    place = root / path
    if place.is_symlink() or place.is_file():
        place.unlink()
    for folder in place.parents:
        if folder == root:
            return
        try:
            folder.rmdir()
        except OSError:
            return


def _is_blocked(root: Path, path: str) -> bool:
    """A file of the user is at the path of the file or of one of its folders: git would remove it."""
    place = root / path
    above = [folder for folder in place.parents if folder != root and folder.is_relative_to(root)]
    in_the_way = any(os.path.lexists(folder) and (folder.is_symlink() or not folder.is_dir()) for folder in above)
    return in_the_way or (place.is_dir() and not place.is_symlink() and not _removed_if_empty(place))


def _removed_if_empty(folder: Path) -> bool:
    """A killed git may have made the folder of a file, but not the file."""
    below = sorted((path for path in folder.rglob("*")), reverse=True)
    if any(path.is_symlink() or not path.is_dir() for path in below):
        return False
    for path in (*below, folder):
        path.rmdir()
    return True


# -- paths and locks


def _name(user: UserRepo) -> str:
    return "main" if user.git_dir == user.common_dir else f"worktree-{user.git_dir.name}"


def _folder(user: UserRepo) -> Path:
    return user.state / "checkout"


def _intent(folder: Path, user: UserRepo) -> Path:
    return folder / f"{_name(user)}.json"


def _index_lock(user: UserRepo) -> Path:
    return user.git_dir / "index.lock"


def _is_ours(user: UserRepo, move: CheckoutMove) -> bool:
    try:
        return _index_lock(user).read_bytes() == move.token.encode()
    except OSError:
        return False


@contextmanager
def _exclusive(user: UserRepo) -> Iterator[Path]:
    """One command at a time moves a checkout. Windlass's gits inherit the lock: one that outlives this process still
    holds it."""
    folder = _folder(user)
    folder.mkdir(parents=True, exist_ok=True)
    handle = os.open(folder / f"{_name(user)}.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        end = time.monotonic() + LOCK_WAIT_S
        while not try_lock(handle):
            if time.monotonic() > end:
                raise UserError(
                    "another windlass command is at work on this checkout", hint="wait until it is done, then try again"
                )
            time.sleep(LOCK_LOOK_S)
        os.set_inheritable(handle, True)
        for suffix in SCRATCH:
            (folder / f"{_name(user)}{suffix}").unlink(missing_ok=True)
        yield folder
    finally:
        os.close(handle)
