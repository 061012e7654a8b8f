"""Compares merges made without git with those of `git merge-tree`, on random histories.

    python tools/merge_fuzz.py --merges 100000 --seed 1

Each merge has one of four results: the same clean tree as git's, left to git by `merge_trees`, left to git because the
histories have no plain meeting point, or different from git's. A difference is printed with its seed; any difference
makes the exit code 1.
"""

from __future__ import annotations

import argparse
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from windlass.git.plumbing.compare import merge_base, merge_trees
from windlass.git.plumbing.objects import FOLDER, Entry, Objects

Files = dict[str, tuple[str, str]]
"""Path -> mode and content."""
TOP = ["a", "b", "c", "d", "e"]
BELOW = ["x", "y", "z", "w"]
BATCH = 2_000
"""Merges in one repository: git slows down with the number of loose objects."""


@dataclass(frozen=True)
class History:
    base: str
    """The one merge base by construction; '' for a criss-cross history, which has two."""
    ours: str
    theirs: str


class FuzzRepo:
    """A repository for one batch, with objects written by Windlass's own writer."""

    def __init__(self, folder: Path) -> None:
        subprocess.run(["git", "init", "-q", "--bare", str(folder)], check=True)
        self.folder = folder
        self.objects = Objects(folder, "sha1")
        self._n = 0

    def tree(self, files: Files) -> str:
        entries: dict[bytes, Entry] = {}
        for name in {path.partition("/")[0] for path in files}:
            if name in files:
                mode, content = files[name]
                sha = self._gitlink(content) if mode == "160000" else self.objects.loose.write("blob", content.encode())
                entries[name.encode()] = Entry(mode, sha)
            else:
                below = {
                    path.removeprefix(f"{name}/"): one for path, one in files.items() if path.startswith(f"{name}/")
                }
                entries[name.encode()] = Entry(FOLDER, self.tree(below))
        return self.objects.write_tree(entries)

    def _gitlink(self, content: str) -> str:
        """A commit that this repository does not have."""
        return self.objects.loose.name(content.encode())

    def commit(self, files: Files, *parents: str) -> str:
        self._n += 1
        return self.objects.write_commit(self.tree(files), parents, f"A <a@b> {self._n} +0000", "x\n")


def files_without_clashes(files: Files) -> Files:
    return {path: one for path, one in files.items() if not any(other.startswith(f"{path}/") for other in files)}


class Fuzz:
    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)  # noqa: S311

    def path(self) -> str:
        depth = self.chance.choice([1, 1, 2, 2, 2, 3])
        return "/".join([self.chance.choice(TOP), *(self.chance.choice(BELOW) for _ in range(depth - 1))])

    def content(self) -> str:
        kind = self.chance.randrange(6)
        lines = [f"line {kind} {n}\n" for n in range(12)]
        if self.chance.random() < 0.4:
            lines[self.chance.randrange(12)] = f"changed {self.chance.randrange(3)}\n"
        return "".join(lines)

    def one(self) -> tuple[str, str]:
        chance = self.chance.random()
        if chance < 0.08:
            return "120000", self.chance.choice(["a", "b/x", "c"])
        if chance < 0.11:
            return "160000", self.chance.choice(["one", "two", "three"])
        return self.chance.choice(["100644", "100644", "100644", "100755"]), self.content()

    def base(self) -> Files:
        files = {self.path(): self.one() for _ in range(self.chance.randint(1, 10))}
        return files_without_clashes(files)

    def edited(self, files: Files) -> Files:
        found = dict(files)
        for _ in range(self.chance.choice([0, 1, 1, 2, 2, 3, 4])):
            found = files_without_clashes(self.edit(found)) or found
        return found

    def edit(self, files: Files) -> Files:
        found, chance = dict(files), self.chance
        have = sorted(found)
        path = chance.choice(have)
        folders = sorted({"/".join(one.split("/")[:n]) for one in have for n in range(1, one.count("/") + 1)})
        match chance.choice(["add", "delete", "edit", "rename", "mode", "link", "move", "drop", "file", "folder"]):
            case "add":
                self._put(found, self.path(), self.one())
            case "delete":
                del found[path]
            case "edit":
                found[path] = (found[path][0], self.content()) if found[path][0].startswith("100") else self.one()
            case "rename":
                mode, content = found.pop(path)
                if mode.startswith("100") and chance.random() < 0.4:
                    content = content.replace("line", "LINE", 2)
                self._put(found, self.path(), (mode, content))
            case "mode" if found[path][0].startswith("100"):
                found[path] = ("100755" if found[path][0] == "100644" else "100644", found[path][1])
            case "link":
                found[path] = ("120000", chance.choice(["a", "b/x", "c"]))
            case "move" if folders:
                self._move(found, chance.choice(folders), self.path())
            case "drop" if folders:
                folder = chance.choice(folders)
                found = {one: content for one, content in found.items() if not one.startswith(f"{folder}/")}
            case "file" if folders:
                # A folder becomes a file; what was in it goes elsewhere, or nowhere.
                folder = chance.choice(folders)
                self._move(found, folder, self.path() if chance.random() < 0.8 else "gone/for/good")
                found = {one: content for one, content in found.items() if not one.startswith(f"{folder}/")}
                found[folder] = chance.choice([self.one(), ("100644", "the same on both sides\n")])
            case "folder":
                one = found.pop(path)
                found[f"{path}/{chance.choice(BELOW)}"] = one if chance.random() < 0.5 else self.one()
            case _:
                pass
        return found

    def _put(self, files: Files, path: str, one: tuple[str, str]) -> None:
        parts = path.split("/")
        for n in range(1, len(parts)):
            files.pop("/".join(parts[:n]), None)
        for below in [other for other in files if other.startswith(f"{path}/")]:
            del files[below]
        files[path] = one

    def _move(self, files: Files, folder: str, to: str) -> None:
        moved = {path: files.pop(path) for path in list(files) if path.startswith(f"{folder}/")}
        for path, one in moved.items():
            self._put(files, f"{to}/{path.removeprefix(f'{folder}/')}", one)

    def history(self, repo: FuzzRepo) -> History:
        base = self.base()
        root = repo.commit(base)
        if self.chance.random() < 0.25:
            # Both sides begin with the same change: what `ours == theirs` must not be taken for.
            shared = self.edited(base)
            ours, theirs = self.edited(shared), self.edited(shared)
        else:
            ours, theirs = self.edited(base), self.edited(base)
        one, two = repo.commit(ours, root), repo.commit(theirs, root)
        kind = self.chance.random()
        if kind < 0.8:
            return History(root, one, two)
        if kind < 0.9:
            # A task that was joined with the tip and went on, while the tip went on as well.
            joined = repo.commit(self.edited({**ours, **theirs}), two, one)
            return History(one, repo.commit(self.edited(ours), one), joined)
        left, right = repo.commit(self.edited(ours), one, two), repo.commit(self.edited(theirs), two, one)
        return History("", left, right)


def git_merges(folder: Path, histories: list[History]) -> Iterator[tuple[bool, str]]:
    """Clean or not, and the tree, as one `merge-tree` says for all of them. No tree: git itself died of it."""
    lines = "".join(f"{one.ours} {one.theirs}\n" for one in histories)
    options = ["--write-tree", "--stdin", "--no-messages", "--name-only"]
    command = ["git", f"--git-dir={folder}", "merge-tree", *options]
    done = subprocess.run(command, input=lines.encode(), capture_output=True, check=False)
    if done.returncode < 0:
        # What it had said before it died is lost with its buffer.
        half = len(histories) // 2
        yield from ((False, ""),) if not half else git_merges(folder, histories[:half])
        yield from git_merges(folder, histories[half:]) if half else ()
        return
    records = done.stdout.split(b"\0\0")[:-1]
    assert len(records) == len(histories), f"{len(records)} answers to {len(histories)} merges: {done.stderr!r}"
    for record in records:
        status, tree, *_ = record.split(b"\0")
        yield status == b"1", tree.decode()


def run_batch(folder: Path, first: int, count: int, found: Counter[str]) -> list[str]:
    repo = FuzzRepo(folder)
    histories = [Fuzz(seed).history(repo) for seed in range(first, first + count)]
    problems = []
    for n, (history, (clean, tree)) in enumerate(zip(histories, git_merges(folder, histories), strict=True)):
        base = merge_base(repo.objects, history.ours, history.theirs)
        if base and history.base and base != history.base:
            problems.append(f"seed {first + n}: they meet at {base[:12]}, not at {history.base[:12]}")
        if not base and not history.base:
            found["two merge bases: left to git"] += 1
            continue
        if not history.base:
            problems.append(f"seed {first + n}: a criss-cross history has no one base, not {str(base)[:12]}")
            continue
        trees = [repo.objects.commit(sha).tree for sha in (history.base, history.ours, history.theirs)]
        joined = merge_trees(repo.objects, *trees)
        if not tree:
            found["git died of it" if joined is None else "git died of it, joined here"] += 1
        elif joined is None:
            found["clean for git: left to git" if clean else "conflict for git: left to git"] += 1
        elif clean and (joined or repo.objects.write_tree({})) == tree:
            found["the same clean tree"] += 1
        else:
            said = f"clean {tree[:12]}" if clean else "a conflict"
            problems.append(f"seed {first + n}: merged to {joined[:12] or 'the empty tree'}, git says {said}")
    found["different"] += len(problems)
    return problems


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--merges", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0, help="the first seed; each merge has one of its own")
    parser.add_argument("--folder", type=Path, default=None, help="where repositories are made; best in memory")
    given = parser.parse_args()
    found: Counter[str] = Counter()
    started = time.perf_counter()
    for first in range(given.seed, given.seed + given.merges, BATCH):
        count = min(BATCH, given.seed + given.merges - first)
        folder = Path(tempfile.mkdtemp(prefix="merge-fuzz-", dir=given.folder))
        try:
            for problem in run_batch(folder / "repo.git", first, count, found):
                print(problem, flush=True)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    print(f"{given.merges:,} merges in {time.perf_counter() - started:.0f} s")
    for what, count in sorted(found.items()):
        print(f"  {count:>9,}  {what}")
    return 1 if found["different"] else 0


if __name__ == "__main__":
    sys.exit(main())
