"""Breaks the code on purpose, one mutation at a time in a private copy, and runs the tests that must notice.

The mutations stand in tests/mutations.toml: a file, its old text, the new text, the tests, and the requirements the
mutation breaks. What the tests noticed is written with --record to tests/checked_by_breaking.toml, where `make spec`
reads it: a requirement counts only when a test that carries its number was seen failing.
"""

from __future__ import annotations

import argparse
import ast
import concurrent.futures
import os
import queue
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
import tomllib
import venv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
COPIED = ("src", "tests", "tools", "docs", "pyproject.toml", "Makefile", "README.md", "CHANGELOG.md", "CONTRIBUTING.md")
FIELDS = {"id", "file", "old", "new", "tests", "breaks"}
FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+?)(?:\[.*)?(?: - .*)?$", re.MULTILINE)
SECONDS = 300.0
HUNG = -1
HEAD = """# Which test was seen failing, by which mutation of mutations.toml, for which requirement.
# Written by `make mutants ARGS=--record`; do not edit by hand.
"""


class MutationError(Exception):
    """The list does not fit the tree: a mutation that changes nothing would prove nothing."""


@dataclass(frozen=True)
class Mutation:
    id: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    breaks: tuple[str, ...] = ()

    def applied(self, text: str) -> str:
        count = text.count(self.old)
        if count != 1:
            raise MutationError(f"{self.id}: its old text stands {count} times in {self.file}, not once")
        return text.replace(self.old, self.new)


@dataclass(frozen=True)
class Result:
    mutation: Mutation
    state: str
    """killed | survived | hung | invalid"""
    failed: tuple[str, ...]
    """The tests that noticed it, without their parameters."""
    seconds: float
    output: str = ""


# -- the list


def load(path: Path) -> list[Mutation]:
    found = [_mutation(entry) for entry in tomllib.loads(path.read_text(encoding="utf-8")).get("mutation", [])]
    ids = [mutation.id for mutation in found]
    twice = sorted({id for id in ids if ids.count(id) > 1})
    if twice:
        raise MutationError(f"two mutations have the id {', '.join(twice)}")
    return found


def _mutation(entry: Mapping[str, Any]) -> Mutation:
    id = str(entry.get("id", "?"))
    if set(entry) - FIELDS or {"id", "file", "old", "new", "tests"} - set(entry):
        raise MutationError(
            f"{id}: a mutation has {', '.join(sorted(FIELDS))}; this one has {', '.join(sorted(entry))}"
        )
    if not entry["tests"] or entry["old"] == entry["new"]:
        raise MutationError(f"{id}: it needs a test, and a new text that differs from the old one")
    return Mutation(
        id, entry["file"], entry["old"], entry["new"], tuple(entry["tests"]), tuple(entry.get("breaks", ()))
    )


def check(mutations: Iterable[Mutation], root: Path) -> None:
    """Every old text stands once in its file, and every test exists. All faults are named at once."""
    faults = []
    names: dict[str, set[str]] = {}
    for mutation in mutations:
        try:
            mutation.applied((root / mutation.file).read_text(encoding="utf-8"))
        except (MutationError, OSError) as error:
            faults.append(str(error))
        for test in mutation.tests:
            file, _, name = test.partition("::")
            if file not in names:
                names[file] = test_names(root / file)
            if name.partition("[")[0] not in {"", *names[file]} or not names[file]:
                faults.append(f"{mutation.id}: there is no test {test}")
    if faults:
        raise MutationError("\n".join(faults))


def test_names(path: Path) -> set[str]:
    if not path.is_file():
        return set()
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


# -- a private copy


class Copy:
    """The tree in a folder of its own, with an interpreter that imports it and not the installed package."""

    def __init__(self, folder: Path, root: Path, nice: int) -> None:
        self.folder, self.root, self.nice = folder / "tree", root, nice
        ignored = shutil.ignore_patterns("__pycache__", ".*_cache", ".hypothesis")
        for name in COPIED:
            source = root / name
            if source.is_dir():
                shutil.copytree(source, self.folder / name, ignore=ignored, symlinks=True)
            elif source.exists():
                self.folder.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, self.folder / name)
        place = folder / "venv"
        venv.create(place, with_pip=False)
        self.python = place / "bin" / "python"
        packages = next((place / "lib").glob("python*")) / "site-packages"
        # Listed paths are searched, but the .pth files in them are not read: the editable install is passed over.
        (packages / "copy.pth").write_text(f"{self.folder / 'src'}\n{sysconfig.get_paths()['purelib']}\n")
        self.scratch = folder / "scratch"
        self.stamp = time.time()

    def write(self, name: str, text: str) -> None:
        """With a time of its own: byte code that fits the old text must not be taken for the new one's."""
        path = self.folder / name
        path.write_text(text, encoding="utf-8")
        self.stamp += 2
        os.utime(path, (self.stamp, self.stamp))

    def test(self, tests: Sequence[str], *more: str) -> tuple[int, str]:
        """pytest's exit code and what it said; HUNG for a run that was ended."""
        shutil.rmtree(self.scratch, ignore_errors=True)
        command = [
            str(self.python),
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:xdist",
            "--tb=line",
            "-rfE",
        ]
        command += [f"--basetemp={self.scratch}", *more, *tests]
        # PYTHONPATH comes before the paths of copy.pth: the tests would import the unbroken code.
        env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        try:
            done = subprocess.run(
                ["nice", "-n", str(self.nice), *command],
                cwd=self.folder,
                env={**env, "HYPOTHESIS_PROFILE": "mutants"},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=SECONDS * max(1, len(tests) // 8),
                check=False,
            )
        except subprocess.TimeoutExpired:
            return HUNG, "it hung and was ended: a busy machine, or a test without a bound of its own"
        return done.returncode, (done.stdout + done.stderr).decode("utf-8", "replace")

    def run(self, mutation: Mutation) -> Result:
        began = time.monotonic()
        original = (self.root / mutation.file).read_text(encoding="utf-8")
        self.write(mutation.file, mutation.applied(original))
        try:
            # For requirements every test that notices counts, else the first one does.
            code, output = self.test(mutation.tests, *(() if mutation.breaks else ("-x",)))
        finally:
            self.write(mutation.file, original)
        failed = tuple(dict.fromkeys(FAILED.findall(output)))
        state = {0: "survived", 1: "killed", HUNG: "hung"}.get(code, "invalid")
        return Result(mutation, state, failed, time.monotonic() - began, output)


def run(mutations: Sequence[Mutation], root: Path, jobs: int, nice: int, baseline: bool) -> list[Result]:
    memory = Path("/dev/shm")  # noqa: S108 -- the tests sync to disk often; here that costs nothing
    base = memory if memory.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="mutants-", dir=base, ignore_cleanup_errors=True) as folder:
        copies: queue.Queue[Copy] = queue.Queue()
        for n in range(jobs):
            copies.put(Copy(Path(folder) / str(n), root, nice))
        if baseline:
            _check_baseline(copies.queue[0], mutations)

        def work(mutation: Mutation) -> Result:
            copy = copies.get()
            try:
                result = copy.run(mutation)
            finally:
                copies.put(copy)
            print(f"{result.state:<8} {result.seconds:5.1f} s  {mutation.id}", flush=True)
            if result.state == "invalid":
                print(result.output[-2000:], flush=True)
            return result

        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            return list(pool.map(work, mutations))


def _check_baseline(copy: Copy, mutations: Sequence[Mutation]) -> None:
    """A test that fails without any mutation notices nothing."""
    tests = list(dict.fromkeys(test for mutation in mutations for test in mutation.tests))
    code, output = copy.test(tests)
    if code:
        raise MutationError(f"tests fail without a mutation\n{output[-3000:]}")


# -- what was seen


def noticed(results: Iterable[Result], marks: Mapping[str, Sequence[str]]) -> dict[str, dict[str, list[str]]]:
    """requirement -> test that carries its number and failed -> mutations."""
    found: dict[str, dict[str, list[str]]] = {}
    for result in results:
        for number in result.mutation.breaks:
            for test in result.failed:
                if test in marks.get(number, ()):
                    found.setdefault(number, {}).setdefault(test, []).append(result.mutation.id)
    return found


def record(path: Path, found: Mapping[str, Mapping[str, Sequence[str]]], ran: Iterable[str], known: set[str]) -> None:
    """Merges with what stands there; the mutations that ran now, and those that are gone, lose their old lines."""
    before = tomllib.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    kept = known - set(ran)
    merged: dict[str, dict[str, list[str]]] = {}
    for source, wanted in ((before, kept), (found, known)):
        for number, tests in source.items():
            for test, ids in tests.items():
                valid = [id for id in ids if id in wanted]
                if valid:
                    listed = merged.setdefault(number, {}).setdefault(test, [])
                    listed.extend(id for id in valid if id not in listed)
    lines = [HEAD]
    for number in sorted(merged, key=lambda one: (one[:2], int(one[3:]))):
        lines.append(f"[{number}]")
        for test, ids in sorted(merged[number].items()):
            lines.append(f'"{test}" = [{", ".join(chr(34) + id + chr(34) for id in sorted(ids))}]')
        lines.append("")
    path.write_text("\n".join(lines), encoding="utf-8")


def summary(results: Sequence[Result]) -> str:
    states = [result.state for result in results]
    counted = ", ".join(f"{states.count(state)} {state}" for state in ("killed", "survived", "hung", "invalid"))
    lines = [f"{len(results)} mutations: {counted}"]
    lines += [
        f"survived: {result.mutation.id} ({result.mutation.file})" for result in results if result.state == "survived"
    ]
    return "\n".join(lines)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="mutate", description=__doc__)
    parser.add_argument("ids", nargs="*", help="only the mutations whose id begins with one of these")
    parser.add_argument("--list", type=Path, default=ROOT / "tests" / "mutations.toml")
    parser.add_argument("--root", type=Path, default=ROOT)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--nice", type=int, default=15, help="how far the tests stand back behind other programs")
    parser.add_argument("--check", action="store_true", help="only see that every mutation fits the tree")
    parser.add_argument("--no-baseline", action="store_true", help="do not run the tests without a mutation first")
    parser.add_argument("--record", action="store_true", help="write what was noticed to checked_by_breaking.toml")
    given = parser.parse_args(arguments)
    try:
        every = load(given.list)
        check(every, given.root)
        chosen = [one for one in every if not given.ids or any(one.id.startswith(id) for id in given.ids)]
        if given.check:
            print(f"{len(every)} mutations fit the tree")
            return 0
        if not chosen:
            raise MutationError(f"no mutation is called {', '.join(given.ids)}")
        results = run(chosen, given.root, given.jobs, given.nice, not given.no_baseline)
    except MutationError as error:
        print(f"mutate: {error}", file=sys.stderr)
        return 2
    print(summary(results))
    if given.record:
        import spec

        found = noticed(results, spec.collect(given.root / "tests"))
        path = given.list.with_name("checked_by_breaking.toml")
        record(path, found, [one.id for one in chosen], {one.id for one in every})
        missed = [
            f"{r.mutation.id}: {n}"
            for r in results
            for n in r.mutation.breaks
            if r.mutation.id not in str(found.get(n))
        ]
        if missed:
            print("no marked test noticed: " + ", ".join(missed))
    return 0 if all(result.state == "killed" for result in results) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
