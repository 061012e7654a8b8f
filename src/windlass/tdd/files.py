"""Which files are tests, which help them, which are protected; and the guard that asks for a test beside the code."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import PurePosixPath

# How the common runners name a file that holds tests; other files below the globs help these.
MODULE_GLOBS = (
    "**/__tests__/**",
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
TEST_GLOBS = ("tests/**", "test/**", "**/tests/**", "**/test/**", "**/spec/**", "spec/**", *MODULE_GLOBS)
# What decides how tests are run: changed without leave, it can make any test pass.
HARNESS_GLOBS = (
    "conftest.py",
    "pytest.ini",
    ".pytest.ini",
    "pytest.toml",
    "tox.ini",
    "noxfile.py",
    "setup.cfg",
    "pyproject.toml",
    ".coveragerc",
    "sitecustomize.py",
    "usercustomize.py",
    "package.json",
    "jest.config.*",
    "jest.setup.*",
    "junitProperties.js",
    "junitTestCaseProperties.js",
    "vitest.config.*",
    "vitest.workspace.*",
    "vitest.setup.*",
    "vite.config.*",
    ".mocharc*",
    "karma.conf.*",
    "playwright.config.*",
    "babel.config.*",
    "phpunit.xml*",
    ".rspec",
    "Makefile",
    "makefile",
    "GNUmakefile",
    "justfile",
    "Jenkinsfile",
    ".gitlab-ci.yml",
    ".travis.yml",
    "azure-pipelines.yml",
    ".github/workflows/**",
    ".github/actions/**",
    ".circleci/**",
    ".windlass/**",
)
DOC_GLOBS = ("*.md", "*.rst", "*.txt", "*.adoc", "docs/**", "LICENSE*", "CHANGELOG*", "NOTICE*", ".gitignore")
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


@dataclass(frozen=True)
class Names:
    """How the files of a repository are told apart."""

    tests: tuple[str, ...] = TEST_GLOBS
    modules: tuple[str, ...] = MODULE_GLOBS
    harness: tuple[str, ...] = HARNESS_GLOBS

    def is_test(self, path: str) -> bool:
        return matches(path, self.tests)

    def is_harness(self, path: str) -> bool:
        return matches(path, self.harness)

    def modules_in(self, paths: Iterable[str]) -> tuple[str, ...]:
        """The files that a test runner is given; where none is named as usual, all code below the test globs."""
        code = [path for path in paths if is_code(path) and self.is_test(path) and not self.is_harness(path)]
        named = [path for path in code if matches(path, self.modules)]
        return tuple(sorted(named or code))


@dataclass(frozen=True)
class Changed:
    """What a task changed, sorted by what it means for the proof."""

    tests: tuple[str, ...] = ()
    """T: tests and what helps them."""
    code: tuple[str, ...] = ()
    """S."""
    data: tuple[str, ...] = ()
    """Neither code nor documentation: the code may read it."""
    harness: tuple[str, ...] = ()

    @property
    def swapped(self) -> tuple[str, ...]:
        """What goes with the tests when they are put beside other code."""
        return tuple(dict.fromkeys((*self.tests, *self.harness)))


def sort_files(paths: Iterable[str], names: Names, harness: Collection[str]) -> Changed:
    """`harness`: those of the changed files that change how tests are run."""
    kept = [path for path in paths if path not in harness]
    tests = [path for path in kept if names.is_test(path)]
    rest = [path for path in kept if path not in tests]
    code = [path for path in rest if is_code(path)]
    data = [path for path in rest if path not in code and not matches(path, DOC_GLOBS)]
    return Changed(tuple(tests), tuple(code), tuple(data), tuple(harness))


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
