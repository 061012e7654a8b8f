"""The TDD guard: code that changed without a test that changed is sent back."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import PurePosixPath

TEST_GLOBS = (
    "tests/**",
    "test/**",
    "**/tests/**",
    "**/test/**",
    "**/__tests__/**",
    "**/spec/**",
    "spec/**",
    "test_*",
    "*_test.*",
    "*_tests.*",
    "*_spec.*",
    "*.test.*",
    "*.spec.*",
    "*Test.java",
    "*Tests.java",
    "*Test.kt",
    "*Tests.cs",
    "*Test.php",
    "*Tests.swift",
)
# fmt: off
CODE_SUFFIXES = (
    ".py", ".pyi", ".pyx", ".js", ".jsx", ".mjs", ".cjs", ".ts", ".tsx", ".mts", ".cts", ".vue", ".svelte", ".go",
    ".rs", ".rb", ".php", ".java", ".kt", ".kts", ".scala", ".groovy", ".cs", ".fs", ".c", ".h", ".cc", ".cpp", ".cxx",
    ".hpp", ".hh", ".m", ".mm", ".swift", ".dart", ".ex", ".exs", ".erl", ".hs", ".ml", ".mli", ".clj", ".cljs",
    ".lua", ".pl", ".pm", ".r", ".jl", ".zig", ".nim", ".sh", ".bash", ".sql",
)
# fmt: on


@dataclass(frozen=True)
class GuardVerdict:
    ok: bool
    reason: str


def guard(
    changed: Sequence[str], test_globs: Sequence[str] = TEST_GLOBS, code_suffixes: Sequence[str] = CODE_SUFFIXES
) -> GuardVerdict:
    tests = [path for path in changed if matches(path, test_globs)]
    code = [path for path in changed if path not in tests and is_code(path, code_suffixes)]
    if not code:
        return GuardVerdict(True, "no code changed" if not tests else "only tests changed")
    if tests:
        return GuardVerdict(True, f"{len(code)} code and {len(tests)} test files changed")
    shown = ", ".join(code[:5]) + (f" and {len(code) - 5} more" if len(code) > 5 else "")
    return GuardVerdict(False, f"code changed without a test: {shown}")


def is_code(path: str, suffixes: Sequence[str] = CODE_SUFFIXES) -> bool:
    return PurePosixPath(path).suffix.lower() in suffixes


def matches(path: str, globs: Sequence[str]) -> bool:
    """A glob without '/' is about the file's name alone; '**' is any number of folders."""
    name = path.rsplit("/", 1)[-1]
    return any(_regex(glob).fullmatch(path if "/" in glob else name) for glob in globs)


@cache
def _regex(glob: str) -> re.Pattern[str]:
    tokens = re.split(r"(\*\*/|\*\*|\*|\?)", glob)
    meaning = {"**/": r"(?:.*/)?", "**": r".*", "*": r"[^/]*", "?": r"[^/]"}
    return re.compile("".join(meaning.get(token, re.escape(token)) for token in tokens), re.DOTALL)
