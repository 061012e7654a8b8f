"""Runs the checks on a known tree, and makes the canary tree, which shows that they read that tree."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from windlass.checks.test_files import TEST_GLOBS, is_code, matches
from windlass.git.engine_repo import EngineRepo
from windlass.git.trees import restaged_tree
from windlass.model import Json, is_inner_path
from windlass.text import plain

TAIL_CHARS = 4000
READ_BYTES = 4 * 1024 * 1024
CANARY = b")]} windlass canary: no language accepts this line {[( \"\"\" ''' `\n"
# How the test runners name a test that did not pass.
FAILING = tuple(
    re.compile(pattern, re.MULTILINE)
    for pattern in (
        r"^(?:FAILED|ERROR) (\S+?\[.*?\](?= - |$)|\S+)(?: - .*)?$",  # pytest -rfE
        r"^(?:FAIL|ERROR): (\S+ \(\S+\))",  # unittest
        r"^\s*--- FAIL: (\S+)",  # go test
        r"^test (\S+) \.\.\. FAILED$",  # cargo test
        r"^not ok \d+ -? ?(.+?)(?: #.*)?$",  # TAP
        r"^\s*● (.+ › .+)$",  # jest
        r"^ *(?:FAIL|×|✗)  ?(\S+ > .+?)(?: \d+ms)?$",  # vitest
    )
)
FILE_NAME = re.compile(r"(?<![\w.-])[\w./@+-]*[\w+-]\.[A-Za-z][A-Za-z0-9]{0,5}(?![\w])")
JUNIT_CASE = re.compile(r"<testcase\b([^>]*[^/])>(.*?)</testcase>", re.DOTALL)
JUNIT_NAME = re.compile(r'\b(classname|name)="([^"]*)"')


class Check(Struct, frozen=True):
    argv: tuple[str, ...]
    timeout: float = 1800.0

    @property
    def command(self) -> str:
        return " ".join(self.argv)


class RunOutput(Struct, frozen=True):
    code: int | None
    """None if a signal or the time limit ended it."""
    out_path: Path
    """Standard output and standard error."""
    seconds: float
    timed_out: bool = False


class Runner(Protocol):
    """Contract: runs argv without a shell, ends the whole process tree at the timeout, never raises for a failure."""

    async def __call__(
        self, argv: Sequence[str], cwd: Path, env: Mapping[str, str], timeout: float, folder: Path
    ) -> RunOutput: ...


class CheckResult(Struct, frozen=True):
    command: str
    ok: bool
    code: int | None
    seconds: float
    tail: str
    failing: tuple[str, ...] = ()
    """Ids of the tests that did not pass, if the output names them."""
    timed_out: bool = False
    file: str = ""
    """The first file of the project that the output of a failure names."""

    def to_json(self) -> dict[str, Json]:
        return {
            "command": self.command,
            "ok": self.ok,
            "code": self.code,
            "seconds": round(self.seconds, 3),
            "tail": self.tail,
            "failing": list(self.failing),
            "timed_out": self.timed_out,
            **({"file": self.file} if self.file else {}),
        }


async def run_check(check: Check, cwd: Path, env: Mapping[str, str], folder: Path, runner: Runner) -> CheckResult:
    output = await runner(check.argv, cwd, env, check.timeout, folder)
    text = plain(read_end(output.out_path))
    ok = output.code == 0 and not output.timed_out
    failing = () if ok else failing_tests(text)
    file = "" if ok else first_file(text, cwd)
    return CheckResult(check.command, ok, output.code, output.seconds, tail_of(text), failing, output.timed_out, file)


def read_end(path: Path) -> str:
    try:
        with path.open("rb") as handle:
            handle.seek(max(0, path.stat().st_size - READ_BYTES))
            return handle.read().decode("utf-8", "replace")
    except FileNotFoundError:
        return ""


def first_file(text: str, root: Path) -> str:
    """The first code file below `root` that the text names; '' for none."""
    folder = f"{root}/"
    for match in FILE_NAME.finditer(text):
        name = match[0].removeprefix(folder).removeprefix("./")
        if is_inner_path(name) and is_code(name) and (root / name).is_file():
            return name
    return ""


def tail_of(text: str) -> str:
    cut = text.rstrip()[-TAIL_CHARS:]
    return cut.split("\n", 1)[-1] if len(cut) == TAIL_CHARS and "\n" in cut else cut


def failing_tests(text: str) -> tuple[str, ...]:
    named = {match[1].strip() for pattern in FAILING for match in pattern.finditer(text)}
    for head, body in JUNIT_CASE.findall(text):
        if "<failure" in body or "<error" in body:
            names = dict(JUNIT_NAME.findall(head))
            named.add("::".join(names[part] for part in ("classname", "name") if names.get(part)))
    return tuple(sorted(named))


def acceptable(result: CheckResult, known: Collection[str]) -> bool:
    """Green, or red only because of tests that a person accepted. A timeout or an unnamed failure is not acceptable."""
    return result.ok or (not result.timed_out and bool(result.failing) and set(result.failing) <= set(known))


def canary_tree(engine: EngineRepo, base: str, test_globs: Sequence[str] = TEST_GLOBS) -> str:
    """`base` with all code broken, except the tests. Checks that pass on it test another folder.

    It equals the tree of `base` if there is no such code.
    """
    fields = engine.git("ls-tree", "-r", "-z", "--full-tree", base).fields
    modes = {path: meta.split(" ")[0] for meta, _, path in (field.partition("\t") for field in fields)}
    code = [path for path, mode in modes.items() if mode.startswith("100") and is_code(path)]
    blob = engine.git("hash-object", "-w", "--stdin", input=CANARY).line
    return restaged_tree(engine, base, {p: f"{modes[p]} {blob}" for p in code if not matches(p, test_globs)})
