"""Objects on their way from a slot into the engine's repository: all that is sound arrives, nothing else does."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gitrepo import DATE, commit, make_engine, sh, write
from windlass.git import intake as intake_module
from windlass.git import run as git
from windlass.git.engine_repo import EngineRepo
from windlass.git.intake import RefusedObjectsError, take_in
from windlass.git.keep import Attempt
from windlass.git.slot import Slot
from windlass.git.slots import Slots
from windlass.git.trees import harvest, status, work_tree

ONE = Attempt("r1", "execute/t1/implement", 1)


@pytest.fixture
def engine(tmp_path: Path) -> EngineRepo:
    return make_engine(tmp_path, {"a.txt": "1\n", "d/b.txt": "2\n"})


@pytest.fixture
def slot(engine: EngineRepo) -> Slot:
    return Slots(engine).take("r1", "t1", engine.user.head)


def whole(engine: EngineRepo, sha: str) -> str:
    """What git finds wrong with the commit and all that it leads to, in the engine's repository alone."""
    done = git.run([f"--git-dir={engine.path}", "rev-list", "--objects", "--quiet", sha], engine.home, check=False)
    return done.err + git.run([f"--git-dir={engine.path}", "fsck", "--strict", sha], engine.home, check=False).err


def no_git(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake_module, "_take_pack", lambda *args: pytest.fail("git was needed"))


def test_commits_trees_links_and_executables_arrive_without_a_git(
    engine: EngineRepo, slot: Slot, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_git(monkeypatch)
    write(slot.path, {"x/y/z.txt": "deep", "tool": "#!/bin/sh\n"})
    (slot.path / "tool").chmod(0o755)
    (slot.path / "link").symlink_to("d/b.txt")
    commit(slot.path, {})
    sh(slot.path, "mv", "d", "e")
    sh(slot.path, "checkout", "-q", "-b", "side", "HEAD~1")
    commit(slot.path, {"s": "1"})
    sh(slot.path, "checkout", "-q", "--detach", "HEAD@{1}")
    sh(slot.path, "merge", "-q", "--no-edit", "side")
    head = sh(slot.path, "rev-parse", "HEAD")
    assert status(engine, slot).head == head
    assert whole(engine, head) == ""


def test_an_object_is_moved_once_and_the_slot_still_reads_it(engine: EngineRepo, slot: Slot) -> None:
    head = commit(slot.path, {"b.txt": "1"})
    status(engine, slot)
    assert not (slot.git_dir / "objects" / head[:2] / head[2:]).exists()
    assert sh(slot.path, "show", "HEAD:b.txt") == "1"
    take_in(engine, slot, [head])


def test_packs_arrive_through_git(engine: EngineRepo, slot: Slot) -> None:
    head = commit(slot.path, {"b.txt": "1", "c/d.txt": "2"})
    sh(slot.path, "gc", "-q", "--prune=now")
    assert list((slot.git_dir / "objects" / "pack").glob("*.pack"))
    assert status(engine, slot).head == head
    assert whole(engine, head) == ""


def test_staged_blobs_that_no_commit_has_arrive_with_the_work(engine: EngineRepo, slot: Slot) -> None:
    write(slot.path, {"staged.txt": "staged", "later.txt": "later"})
    sh(slot.path, "add", "staged.txt")
    tree = work_tree(engine, slot)
    assert git.run([f"--git-dir={engine.path}", "ls-tree", "--name-only", tree], engine.home).out.split() == [
        *("a.txt", "d", "later.txt", "staged.txt")
    ]
    head = harvest(engine, slot, "work", DATE)
    assert whole(engine, head) == ""


@pytest.mark.long
def test_a_thousand_commits_arrive(engine: EngineRepo, slot: Slot, monkeypatch: pytest.MonkeyPatch) -> None:
    no_git(monkeypatch)
    stream = "".join(
        f"commit refs/heads/x\ncommitter A <a@b> {n} +0000\ndata 1\nx\n"
        + (f"from {engine.user.head}\n" if n == 1 else "")
        + f"M 644 inline f{n % 7}\ndata 4\n{n:04}\n"
        for n in range(1, 1200)
    )
    git.run(["-c", "fastimport.unpackLimit=100000", "fast-import", "--quiet"], slot.path, input=stream)
    sh(slot.path, "checkout", "-q", "--detach", "x")
    assert whole(engine, status(engine, slot).head) == ""


# -- what must not arrive


def raw(slot: Slot, kind: str, body: bytes) -> str:
    """An object as git itself would refuse to write it."""
    done = git.run(["hash-object", "-w", "-t", kind, "--literally", "--stdin"], slot.path, input=body)
    return done.line


def tree_of(slot: Slot, *entries: tuple[str, str, str]) -> str:
    body = b"".join(f"{mode} {name}".encode() + b"\0" + bytes.fromhex(sha) for mode, name, sha in entries)
    return raw(slot, "tree", body)


def commit_of(slot: Slot, tree: str) -> str:
    who = "A <a@b> 1 +0000"
    base = sh(slot.path, "rev-parse", "HEAD")
    return raw(slot, "commit", f"tree {tree}\nparent {base}\nauthor {who}\ncommitter {who}\n\nx\n".encode())


def _dot_git(slot: Slot, blob: str) -> str:
    return commit_of(slot, tree_of(slot, ("100644", ".git", blob)))


def _dot_git_of_another_file_system(slot: Slot, blob: str) -> str:
    return commit_of(slot, tree_of(slot, ("40000", ".g\u200cit", tree_of(slot, ("100644", "config", blob)))))


def _short_name(slot: Slot, blob: str) -> str:
    return commit_of(slot, tree_of(slot, ("100644", "GIT~1", blob)))


def _parent_folder(slot: Slot, blob: str) -> str:
    return commit_of(slot, tree_of(slot, ("40000", "..", tree_of(slot, ("100644", "x", blob)))))


def _slash(slot: Slot, blob: str) -> str:
    return commit_of(slot, tree_of(slot, ("100644", "a/b", blob)))


def _twice(slot: Slot, blob: str) -> str:
    return commit_of(slot, tree_of(slot, ("100644", "a", blob), ("100644", "a", blob)))


def _missing_blob(slot: Slot, blob: str) -> str:
    return commit_of(slot, tree_of(slot, ("100644", "a", "1" * 40)))


def _missing_parent(slot: Slot, blob: str) -> str:
    tree, who = tree_of(slot, ("100644", "a", blob)), "A <a@b> 1 +0000"
    text = f"tree {tree}\nparent {'1' * 40}\nauthor {who}\ncommitter {who}\n\nx\n"
    return raw(slot, "commit", text.encode())


def _damaged_blob(slot: Slot, blob: str) -> str:
    head = commit_of(slot, tree_of(slot, ("100644", "a", blob)))
    file = slot.git_dir / "objects" / blob[:2] / blob[2:]
    file.chmod(0o644)
    file.write_bytes(zlib.compress(b"blob 5\0wrong"))
    return head


def _blob_behind_a_link(slot: Slot, blob: str) -> str:
    head = commit_of(slot, tree_of(slot, ("100644", "a", blob)))
    file = slot.git_dir / "objects" / blob[:2] / blob[2:]
    file.unlink()
    file.symlink_to("/etc/passwd")
    return head


def _pipe(slot: Slot, blob: str) -> str:
    head = commit_of(slot, tree_of(slot, ("100644", "a", blob)))
    file = slot.git_dir / "objects" / blob[:2] / blob[2:]
    file.unlink()
    os.mkfifo(file)
    return head


BAD: list[Callable[[Slot, str], str]] = [
    _dot_git,
    _dot_git_of_another_file_system,
    _short_name,
    _parent_folder,
    _slash,
    _twice,
    _missing_blob,
    _missing_parent,
    _damaged_blob,
    _blob_behind_a_link,
    _pipe,
]


@pytest.mark.parametrize("bad", BAD)
def test_harmful_or_broken_objects_are_refused_and_the_files_are_taken_as_uncommitted(
    engine: EngineRepo, slot: Slot, bad: Callable[[Slot, str], str]
) -> None:
    base = engine.user.head
    write(slot.path, {"work.txt": "honest work\n"})
    blob = raw(slot, "blob", b"content of the blob")
    head = bad(slot, blob)
    (slot.git_dir / "HEAD").write_text(f"{head}\n")
    with pytest.raises(RefusedObjectsError, match="slot 1"):
        take_in(engine, slot, [head])
    seen = status(engine, slot)
    assert (seen.head, "slot 1" in seen.refused, "work.txt" in seen.dirty) == (base, True, True)
    assert not engine.objects.has(head)
    landed = harvest(engine, slot, "work", DATE)
    assert whole(engine, landed) == ""
    refs = Slots(engine).place(slot, base, ONE, DATE)
    assert [sh(engine.user.root, "show", f"{ref}:work.txt") for ref in refs] == ["honest work"]


@pytest.mark.long
def test_a_small_object_that_unpacks_to_a_large_one_takes_little_memory(engine: EngineRepo, slot: Slot) -> None:
    """The header says how much there is; what goes beyond is not read."""
    folder = slot.git_dir / "objects" / "11"
    folder.mkdir()
    (folder / ("1" * 38)).write_bytes(zlib.compress(b"blob 5\0" + b"\0" * (200 << 20), 9))
    walk = intake_module._ObjectWalk(engine.objects, slot.git_dir / "objects", "sha1")
    with pytest.raises(intake_module._UnusualError):
        walk._read("1" * 40)


NAMES = st.sampled_from(["a", "b", "c.txt", "d", "e f", "ü", "-x"])
PATHS = st.lists(NAMES, min_size=1, max_size=3).map("/".join)
STEPS = st.lists(st.tuples(PATHS, st.sampled_from(["write", "remove", "link", "mode"])), min_size=1, max_size=6)


@settings(max_examples=25, deadline=None)
@given(commits=st.lists(STEPS, min_size=1, max_size=3))
def test_any_commits_of_an_agent_arrive_whole_without_a_git(
    tmp_path_factory: pytest.TempPathFactory, commits: list[list[tuple[str, str]]]
) -> None:
    engine = make_engine(tmp_path_factory.mktemp("intake"), {"a": "1\n", "d": "2\n"})
    slot = Slots(engine).take("r1", "t1", engine.user.head)
    with pytest.MonkeyPatch.context() as monkeypatch:
        no_git(monkeypatch)
        for number, steps in enumerate(commits):
            for path, what in steps:
                _step(slot.path, path, what, number)
            sh(slot.path, "add", "-A")
            sh(slot.path, "commit", "-q", "--allow-empty", "-m", "x")
        head = status(engine, slot).head
    assert head == sh(slot.path, "rev-parse", "HEAD")
    assert whole(engine, head) == ""


def _step(root: Path, path: str, what: str, number: int) -> None:
    place = root / path
    if any(parent.is_file() or parent.is_symlink() for parent in place.parents if parent != root):
        return
    if what == "remove":
        sh(root, "rm", "-rqf", "--ignore-unmatch", "--", path)
        return
    if place.is_dir():
        return
    place.parent.mkdir(parents=True, exist_ok=True)
    place.unlink(missing_ok=True)
    if what == "link":
        place.symlink_to("a")
    else:
        place.write_text(f"{number}\n")
        place.chmod(0o755 if what == "mode" else 0o644)
