"""Removes lock files (`*.lock`) that a killed git left.

A lock is dead when no process that could have made it is alive. In the engine's repository the processes at work there
decide. In the user's repository only locks with an intent of Windlass count: the user's own locks stay.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

from windlass.errors import GitLockError, GitUnansweredError
from windlass.private_files import make_private, sync

YOUNG_S = 1.0
"""The maker of a lock this young may not have called `flock` yet."""
START_SLACK_S = 1.0
"""The start time of a process is no more exact than this."""
PACKED = "packed-refs"
_numbers = count(1)


def locks_in(git_dir: Path) -> list[Path]:
    """The lock files of a repository: of its own files and of its refs."""
    return [*sorted(git_dir.glob("*.lock")), *sorted((git_dir / "refs").rglob("*.lock"))]


def remove_dead(locks: Sequence[Path], place: Path, checkout: Path | None = None) -> list[Path]:
    """Remove the locks that no process holds. Returns the others.

    `place`: any process that works in this folder could hold one. `checkout`: a git that works there could, too.
    """
    held = []
    for lock in locks:
        with suppress(FileNotFoundError):
            made = lock.stat().st_mtime
            if (age := time.time_ns() / 1e9 - made) < YOUNG_S:
                time.sleep(min(YOUNG_S - age, YOUNG_S))
            if _is_free(lock) and not _may_be_held(made, place, checkout or place):
                lock.unlink()
            else:
                held.append(lock)
    return held


def _is_free(lock: Path) -> bool:
    """Whether no Windlass process holds it: Windlass keeps its locks locked with `flock`."""
    handle = os.open(lock, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(handle)
    return True


def _may_be_held(made: float, place: Path, checkout: Path) -> bool:
    """Whether a process works there that was alive when the lock was made."""
    import psutil  # only when there is a lock: the import takes as long as the rest of a start

    for process in psutil.process_iter(["name", "create_time"]):
        if process.info["create_time"] > made + START_SLACK_S or process.pid == os.getpid():
            continue
        with suppress(psutil.Error):
            if process.status() == psutil.STATUS_ZOMBIE:
                continue
            folder = Path(process.cwd())
            if folder.is_relative_to(place):
                return True
            name = process.info["name"]
            if (name == "git" or name.startswith("git-")) and (
                folder.is_relative_to(checkout) or str(place) in " ".join(process.cmdline())
            ):
                return True
    return False


# -- intents


@contextmanager
def intent(folder: Path, refs: Sequence[str]) -> Iterator[None]:
    """Around a git that moves Windlass's refs in the user's repository: locks on these refs are Windlass's."""
    make_private(folder)
    pid = os.getpid()
    file = folder / f"{pid}.{_start_of(pid):.0f}.{next(_numbers)}.json"
    facts = {"host": socket.gethostname(), "pid": pid, "start": _start_of(pid), "refs": list(refs)}
    file.write_text(json.dumps(facts))
    # Git syncs its locks, so the intent must be on the disk before them.
    sync(file)
    left = False
    try:
        yield
    except GitUnansweredError as error:
        # A git that was ended may have left its locks: the intent stays, to identify them. A lock that git met belongs
        # to another program.
        left = not isinstance(error, GitLockError)
        raise
    finally:
        if not left:
            file.unlink(missing_ok=True)


def remove_covered(folder: Path, git_dir: Path, checkout: Path) -> list[Path]:
    """Remove locks that dead processes of Windlass left in `git_dir`. Returns those that may still be held."""
    held: list[Path] = []
    for file in sorted(folder.glob("*.json")):
        refs = _refs_of_the_dead(file)
        if refs is None:
            continue
        covered = [git_dir / f"{ref}.lock" for ref in (*refs, PACKED)]
        held += remove_dead([lock for lock in covered if lock.exists()], git_dir, checkout)
        file.unlink(missing_ok=True)
    return held


def _refs_of_the_dead(file: Path) -> list[str] | None:
    """None: its writer is alive, or that is unknown."""
    try:
        facts = json.loads(file.read_text())
        host, pid, start, refs = facts["host"], int(facts["pid"]), float(facts["start"]), list(facts["refs"])
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError):
        return []  # a power cut came before it was on the disk, so before any lock
    if host != socket.gethostname() or (start and abs(_start_of(pid) - start) < 1):
        return None
    return [str(ref) for ref in refs]


def _start_of(pid: int) -> float:
    """The start of a process in seconds since 1970; 0 when there is none."""
    try:
        ticks = int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[19])
        # A process of an earlier boot has another start, whatever its number.
        boots = [line for line in Path("/proc/stat").read_text().splitlines() if line.startswith("btime ")]
        boot = float(boots[0].split()[1]) if boots else 0.0
        return boot + ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, IndexError, ValueError):
        import psutil

        try:
            return float(psutil.Process(pid).create_time())
        except psutil.Error:
            return 0.0
