"""Slots, merges and looks in a repository of 20,000 files, beside a fresh worktree and beside a small repository."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle
from pathlib import Path

from benchmarks.clock import best_in_turns, seconds
from benchmarks.figures import Figure
from windlass.git import user_repo
from windlass.git.engine_repo import EngineRepo
from windlass.git.keep import Attempt
from windlass.git.merge import Landing, make_candidate
from windlass.git.slots import Slots
from windlass.git.trees import commit_artifacts, commit_tree, edited_tree, status
from windlass.git.user_repo import user_signature

FILES, FEW, IN_A_FOLDER = 20_000, 200, 50
SLOTS = 16
FILE = "d0/e0/f1.py"
RUN, DATE = "bench", 1.7e9


def figures(rounds: int) -> Iterator[Figure]:
    with tempfile.TemporaryDirectory(prefix="windlass-bench-") as folder:
        large, small = _engine(Path(folder) / "large", FILES), _engine(Path(folder) / "small", FEW)
        yield _second_use(large, rounds)
        yield _merge(large, small, rounds)
        yield _looks(large, rounds)


def _engine(folder: Path, files: int) -> EngineRepo:
    root = folder / "user"
    for n in range(files):
        place = root / f"d{n // IN_A_FOLDER // 20}" / f"e{n // IN_A_FOLDER}"
        if n % IN_A_FOLDER == 0:
            place.mkdir(parents=True)
        (place / f"f{n}.py").write_text(f"x = {n}\n" * 20)
    who = ["-c", "user.name=bench", "-c", "user.email=bench@localhost"]
    for args in (["init", "-q", "-b", "main"], ["add", "-A"], [*who, "commit", "-q", "-m", "start"]):
        subprocess.run(["git", *args], cwd=root, check=True, capture_output=True)
    engine = EngineRepo.open(user_repo.discover(root), folder / "state")
    engine.user_refs.pin_base(RUN, engine.user.head)
    engine.refs.set_tip(RUN, engine.user.head, "")
    return engine


# -- slots


def _second_use(engine: EngineRepo, rounds: int) -> Figure:
    """First: a slot is made. Second: it is a clean checkout of the next task's base, as between two tasks of a run;
    beside it what that takes when an agent left work uncommitted, which is kept first."""
    slots, base = Slots(engine), engine.user.head
    other = commit_tree(engine, edited_tree(engine, base, {"d0/e0/f1.py": "landed\n"}), [base], "landed\n", DATE)
    used, whose, places = slots.take(RUN, "t", base), Attempt(RUN, "t", 1), cycle([other, base])
    slots.place(used, base, whose, DATE)

    def again() -> float:
        seen = status(engine, used)
        return seconds(lambda: slots.place(used, next(places), whose, DATE, seen))

    def dirty() -> float:
        (used.path / "half.txt").write_text(os.urandom(8).hex())
        return seconds(lambda: slots.place(used, next(places), whose, DATE))

    works = {"first": lambda: seconds(lambda: slots.take(RUN, "t", base)), "again": again, "dirty": dirty}
    best = best_in_turns(works, rounds)
    told = [f"{best[name] * 1000:.0f} ms" for name in ("again", "dirty")]
    detail = f"{best['first']:.2f} s to make one; {told[0]} to use it again, {told[1]} when work is kept first"
    return Figure("20,000 files: first use of a slot / second", best["first"] / best["again"], "x", 10.0, True, detail)


# -- merging


def _merge(large: EngineRepo, small: EngineRepo, rounds: int) -> Figure:
    works = {"large": _merger(large), "small": _merger(small)}
    best = best_in_turns(works, rounds * 5)
    detail = f"{best['large'] * 1000:.0f} ms; 200 files: {best['small'] * 1000:.0f} ms"
    return Figure("merging in 20,000 files / in 200", best["large"] / best["small"], "x", 3.0, detail=detail)


def _merger(engine: EngineRepo) -> Callable[[], float]:
    """A task's head beside a tip that has moved on, both in one file: a true merge, without a checkout."""
    base = engine.user.head
    lines = ["x = 1\n"] * 20
    tip = commit_artifacts(engine, base, {FILE: "".join(["landed\n", *lines[1:]])}, "landed\n", DATE)
    head = commit_tree(
        engine, edited_tree(engine, base, {FILE: "".join([*lines[:-1], "head\n"])}), [base], "head\n", DATE
    )

    def merge() -> None:
        if make_candidate(engine, tip, "t1", "One", head, DATE).kind is not Landing.MERGED:
            raise SystemExit("the merge of two places in a file failed")

    return lambda: seconds(merge)


# -- looking


def _looks(engine: EngineRepo, rounds: int) -> Figure:
    """Dispatches that end at the same time all ask what became of the user's checkout."""
    with ThreadPoolExecutor(SLOTS) as pool:

        def together() -> float:
            return seconds(lambda: list(pool.map(lambda _: engine.watch.now(()), range(SLOTS))))

        works = {"one": lambda: seconds(lambda: user_signature(engine.user)), "all": together}
        best = best_in_turns(works, rounds * 2)
    detail = f"{best['one'] * 1000:.0f} ms for one"
    name = f"{SLOTS} looks at a checkout of 20,000 files / one"
    return Figure(name, best["all"] / best["one"], "x", 4.0, detail=detail)
