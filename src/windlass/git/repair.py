"""Repairs both repositories from the journal, after a power cut or the loss of the state folder.

It does not guess. It restores a ref to its recorded value, and removes one that leads nowhere.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import Struct, field

from windlass.errors import GitError
from windlass.git import run as git
from windlass.git.disk import Barrier, read_or_empty
from windlass.git.engine_repo import EngineRepo
from windlass.git.plumbing.objects import LooseObjects
from windlass.git.plumbing.refs import HELD, move, remove_file, torn_refs
from windlass.git.run_refs import base_ref, tip_ref
from windlass.git.slot import Slot
from windlass.private_files import replace_file

COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
INDEX = b"DIRC"
ALL = 0.0


class RunRecord(Struct, frozen=True):
    """The journal's record of one run."""

    run: str
    base: str
    branch: str
    """Its branch in the user's repository, as last published."""
    published: str
    """The commit of that branch; '' before the first publish."""
    tips: Sequence[str]
    """Every commit that was recorded as its tip, the last one first; the base at the end."""
    heads: frozenset[str] = frozenset()
    """Every other commit that a recorded step names."""


class Repairs(Struct):
    notes: list[str] = field(default_factory=list)
    """The repairs, for a person."""
    lost: set[str] = field(default_factory=set)
    """Commits that the journal names and that no repository has."""


def repair(engine: EngineRepo, records: Sequence[RunRecord], *, since: float = ALL) -> Repairs:
    """Repair both repositories for these runs, while no driver is at work. `since`: see `LooseObjects.remove_torn`."""
    done = Repairs()
    torn_objects = engine.objects.loose.remove_torn(since)
    if torn_objects:
        done.notes.append(f"{len(torn_objects)} objects that never reached the disk were removed")
    _repair_engine_refs(engine, done)
    _repair_user_refs(engine, records, done)
    for record in records:
        done.lost |= _lost(engine, record)
        found = engine.refs.tip(record.run)
        right = next((tip for tip in record.tips if tip not in done.lost), "")
        # Another tip that is not lost stays: the driver sets it from the journal and reports the difference.
        if right and found != right and (not found or found in done.lost):
            move(engine.path, tip_ref(record.run), right, None, engine.barrier)
            engine.refs.forget()
            done.notes.append(f"the tip of the run was {found[:12] or 'missing'}; the journal says {right[:12]}")
    engine.barrier.settle()
    return done


def find_damage(engine: EngineRepo, records: Sequence[RunRecord]) -> list[str]:
    """Faults of the engine's repository, for a person; changes nothing."""
    if not (engine.path / "HEAD").is_file():
        return ["there is none, though runs need it"] if records else []
    unsealed = [name for name, text in engine.sealed.items() if read_or_empty(engine.path / name) != text]
    if unsealed:
        return [f"'{name}' is not as Windlass wrote it" for name in unsealed]
    found = [f"'{name}' is empty or torn" for name in torn_refs(engine.path)]
    for record in records:
        lost = _lost(engine, record)
        found += [f"run {record.run} lacks commit {sha[:12]}" for sha in sorted(lost)]
        if not lost and record.tips and not engine.refs.tip(record.run):
            found.append(f"run {record.run} has no tip")
    return found


def replace_engine(engine: EngineRepo, records: Sequence[RunRecord]) -> Path:
    """Make a new repository with everything readable of the old one. Returns the old one's new path."""
    aside = engine.home / "aside" / f"repo.git-{engine.path.stat().st_mtime_ns}"
    aside.parent.mkdir(exist_ok=True)
    engine.path.rename(aside)
    engine.create()
    # Commits are copied one by one, so that damaged ones do not prevent intact ones.
    for sha, base in [(sha, one.base) for one in records for sha in (*one.tips, *sorted(one.heads))]:
        if not missing_commits(engine.path, [sha]):
            continue
        known = [] if missing_commits(engine.path, [base]) else [f"^{base}\n"]
        with suppress(GitError):
            command = [f"--git-dir={aside}", "pack-objects", "--revs", "--thin", "--stdout", "-q"]
            pack = git.run_raw(command, engine.home, input="".join([f"{sha}\n", *known]))
            git.run_raw([f"--git-dir={engine.path}", "unpack-objects", "-q"], engine.home, input=pack.stdout)
    engine.barrier.settle()
    return aside


# -- the engine's repository


def _repair_engine_refs(engine: EngineRepo, done: Repairs) -> None:
    for name in torn_refs(engine.path):
        held = HELD.fullmatch(name)
        remove_file(engine.path, name)
        if held and not missing_commits(engine.path, [held[1]]):
            move(engine.path, name, held[1], "", engine.barrier)
    refs = engine.refs.all()
    gone = missing_commits(engine.path, refs.values())
    for name in [name for name, sha in refs.items() if sha in gone]:
        remove_file(engine.path, name)
        done.notes.append(f"'{name}' led to a commit that is lost, and was removed")
    engine.refs.forget()


def _lost(engine: EngineRepo, record: RunRecord) -> set[str]:
    """Recorded commits that are missing or incomplete. The history of the base belongs to the user."""
    named = sorted({*record.tips, *record.heads} - {record.base})
    base = [] if missing_commits(engine.path, [record.base]) else [f"^{record.base}"]
    if _is_complete(engine, named, base):
        return set()
    gone = missing_commits(engine.path, named)
    return gone | {sha for sha in named if sha not in gone and not _is_complete(engine, [sha], base)}


def _is_complete(engine: EngineRepo, shas: Sequence[str], base: Sequence[str]) -> bool:
    if not shas:
        return True
    wanted = "".join(f"{sha}\n" for sha in (*shas, *base))
    return engine.git("rev-list", "--objects", "--quiet", "--stdin", input=wanted, check=False).code == 0


def missing_commits(git_dir: Path, shas: Iterable[str]) -> set[str]:
    wanted = sorted(set(shas))
    if not wanted:
        return set()
    lines = "".join(f"{sha}\n" for sha in wanted)
    command = [f"--git-dir={git_dir}", "cat-file", "--batch-check=%(objecttype)"]
    answers = git.run(command, git_dir, input=lines).out.splitlines()
    return {sha for sha, answer in zip(wanted, answers, strict=True) if answer.endswith("missing")}


# -- the user's repository


def _repair_user_refs(engine: EngineRepo, records: Sequence[RunRecord], done: Repairs) -> None:
    """Repair Windlass's refs there: `refs/windlass/*` and the branches of the runs."""
    common = engine.user.common_dir
    right = {base_ref(record.run): record.base for record in records}
    right |= {f"refs/heads/{record.branch}": record.published for record in records if record.branch}
    ours: Callable[[str], bool] = lambda name: name.startswith("refs/windlass/") or name in right  # noqa: E731
    for name in [name for name in torn_refs(common) if ours(name)]:
        remove_file(common, name)
        done.notes.append(f"'{name}' in your repository was empty, and was removed")
    refs = {name: sha for name, sha in git.read_refs(engine.user.root).items() if name.startswith("refs/windlass/")}
    gone = missing_commits(common, refs.values())
    for name in [name for name, sha in refs.items() if sha in gone]:
        remove_file(common, name)
        done.notes.append(f"'{name}' in your repository led to a lost commit, and was removed")
    for record in records:
        pin = base_ref(record.run)
        if refs.get(pin, "") != record.base and not missing_commits(common, [record.base]):
            move(common, pin, record.base, None, engine.barrier)
            done.notes.append(f"'{pin}' was made again")


# -- slots


def repair_slot(slot: Slot, base: str, object_format: str) -> None:
    """Repair a slot's repository until git can read it."""
    head = read_or_empty(slot.git_dir / "HEAD").strip()
    if slot.git_dir.is_dir() and not head.startswith("ref: ") and not COMMIT.fullmatch(head):
        replace_file(slot.git_dir / "HEAD", f"{base}\n", sync_to="name")
    index = slot.git_dir / "index"
    if index.exists() and not index.read_bytes().startswith(INDEX):
        index.unlink()
    if (slot.git_dir / "objects").is_dir():
        LooseObjects(slot.git_dir, object_format, Barrier()).remove_torn(ALL)
        for name in torn_refs(slot.git_dir):
            remove_file(slot.git_dir, name)
