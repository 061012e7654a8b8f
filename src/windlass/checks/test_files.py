"""Which files are tests, test helpers and harness; and the guard that requires a test for changed code."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from functools import cache
from pathlib import PurePosixPath

from msgspec import Struct

# Names of test files for the common runners. Other files below the globs are test helpers.
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
# Files that decide how tests run. A change to them can make any test pass.
# fmt: off
HARNESS_GLOBS = (
    # pytest, and files that Python loads before any test
    "conftest.py", "pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml", "tox.ini", "tox.toml", "noxfile.py",
    "setup.cfg", "pyproject.toml", ".coveragerc", "sitecustomize.py", "usercustomize.py", "*.pth",
    "**/*.egg-info/**", "**/*.dist-info/**",
    # jest, vitest, mocha and their compilers
    "package.json", "jest.config.*", "jest.setup.*", "jest.preset.*", "jest-*.config.*", "junitProperties.js",
    "junitTestCaseProperties.js", "vitest.config.*", "vitest.workspace.*", "vitest.projects.*", "vitest.setup.*",
    "vite.config.*", ".mocharc*", "mocha.opts", "karma.conf.*", "playwright.config.*", "cypress.config.*",
    "ava.config.*", ".taprc", ".nycrc*", ".c8rc*", "babel.config.*", ".babelrc*", ".swcrc", "tsconfig.json",
    ".npmrc", "node_modules/**",
    # go and cargo
    "go.mod", "go.work", ".cargo/**", "build.rs", ".config/nextest.toml", "rust-toolchain*", "Cargo.toml",
    # others
    "phpunit.xml*", "phpunit.dist.xml", ".rspec", "spec_helper.rb", "rails_helper.rb", "Rakefile", "Makefile",
    "makefile", "GNUmakefile", "*.mk", "justfile", "Jenkinsfile", ".gitlab-ci.yml", ".travis.yml",
    "azure-pipelines.yml", ".github/workflows/**", ".github/actions/**", ".circleci/**", ".windlass/**",
)
# A module with one of these names replaces the test runner, or a module that the runner loads.
RUNNER_MODULES = frozenset({
    "pytest", "_pytest", "pluggy", "iniconfig", "packaging", "py", "pygments", "exceptiongroup", "tomli", "colorama",
    "xdist", "execnet", "coverage", "pytest_cov", "pytest_asyncio", "anyio", "hypothesis", "nose", "nose2", "mock",
})
# fmt: on
DOC_GLOBS = ("*.md", "*.rst", "*.adoc", "docs/**", "README*", "LICENSE*", "CHANGELOG*", "NOTICE*", ".gitignore")
# fmt: off
CODE_SUFFIXES = (
    ".py", ".pyi", ".pyx", ".js", ".jsx", ".mjs", ".cjs", ".ts", ".tsx", ".mts", ".cts", ".vue", ".svelte", ".go",
    ".rs", ".rb", ".php", ".java", ".kt", ".kts", ".scala", ".groovy", ".cs", ".fs", ".c", ".h", ".cc", ".cpp", ".cxx",
    ".hpp", ".hh", ".m", ".mm", ".swift", ".dart", ".ex", ".exs", ".erl", ".hs", ".ml", ".mli", ".clj", ".cljs",
    ".lua", ".pl", ".pm", ".r", ".jl", ".zig", ".nim", ".sh", ".bash", ".sql", ".zsh", ".fish", ".ps1", ".psm1",
    ".bat", ".cmd", ".awk", ".tcl", ".vb", ".f90", ".f95", ".asm", ".s", ".cu", ".sol", ".vy", ".move",
    ".cairo", ".wat",
    ".d", ".cr", ".elm", ".coffee", ".astro", ".el", ".lisp", ".scm", ".rkt", ".pas", ".cob", ".vim", ".gd", ".sv",
    ".vhd", ".proto", ".tf", ".nix", ".xsl", ".xslt", ".jq",
    # templates
    ".j2", ".jinja", ".jinja2", ".tmpl", ".tpl", ".erb", ".ejs", ".hbs", ".mustache", ".liquid", ".haml", ".slim",
    ".pug", ".twig", ".cshtml", ".jsp", ".mako",
)
# Not programs, even if they are executable.
DATA_SUFFIXES = (
    ".json", ".yaml", ".yml", ".toml", ".ini", ".cfg", ".csv", ".tsv", ".xml", ".txt", ".lock", ".png", ".jpg", ".jpeg",
    ".gif", ".svg", ".ico", ".webp", ".pdf", ".css", ".scss", ".less", ".woff", ".woff2", ".ttf", ".mp3", ".mp4",
    ".zip",
    ".gz", ".pem", ".po", ".mo", ".md", ".rst",
)
TEMPLATE_GLOBS = ("**/templates/**/*.html", "**/templates/**/*.xml", "**/templates/**/*.txt")
# Folders in which a file without a suffix is a program.
PROGRAM_GLOBS = ("bin/*", "**/bin/*", "scripts/*", "**/scripts/*", "sbin/*", "libexec/*")
# fmt: on


class GuardVerdict(Struct, frozen=True):
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
    named = ", ".join(code[:5]) + (f" and {len(code) - 5} more" if len(code) > 5 else "")
    return GuardVerdict(False, f"code changed without a test: {named}")


class Names(Struct, frozen=True):
    """The globs that sort the files of a repository into tests, harness and others."""

    tests: tuple[str, ...] = TEST_GLOBS
    modules: tuple[str, ...] = MODULE_GLOBS
    harness: tuple[str, ...] = HARNESS_GLOBS

    def is_test(self, path: str) -> bool:
        return matches(path, self.tests)

    def is_harness(self, path: str) -> bool:
        return matches(path, self.harness)

    def modules_in(self, paths: Iterable[str]) -> tuple[str, ...]:
        """The test files for the runner. If none has a usual name, all code below the test globs."""
        code = [path for path in paths if is_code(path) and self.is_test(path) and not self.is_harness(path)]
        named = [path for path in code if matches(path, self.modules)]
        return tuple(sorted(named or code))


class ChangedFiles(Struct, frozen=True):
    """The files that a task changed, sorted by their role in the proof."""

    tests: tuple[str, ...] = ()
    """T: tests and test helpers."""
    code: tuple[str, ...] = ()
    """S: the code."""
    data: tuple[str, ...] = ()
    """Neither code nor documentation. The code may read it."""
    harness: tuple[str, ...] = ()

    @property
    def tests_and_harness(self) -> tuple[str, ...]:
        """The files that move with the tests into a tree with other code."""
        return tuple(dict.fromkeys((*self.tests, *self.harness)))


def sort_files(
    paths: Iterable[str], names: Names, harness: Collection[str], programs: Collection[str] = ()
) -> ChangedFiles:
    """`harness`: the changed files that decide how tests run; `programs`: files with the content of a program."""
    others = [path for path in paths if path not in harness]
    tests = [path for path in others if names.is_test(path)]
    rest = [path for path in others if path not in tests]
    code = [path for path in rest if path in programs or (is_code(path) and not matches(path, DOC_GLOBS))]
    data = [path for path in rest if path not in code and not matches(path, DOC_GLOBS)]
    return ChangedFiles(tuple(tests), tuple(code), tuple(data), tuple(harness))


def is_code(path: str, suffixes: Sequence[str] = CODE_SUFFIXES) -> bool:
    suffix = PurePosixPath(path).suffix.lower()
    if suffix in suffixes or matches(path, TEMPLATE_GLOBS):
        return True
    return not suffix and not path.rsplit("/", 1)[-1].startswith(".") and matches(path, PROGRAM_GLOBS)


def is_data(path: str) -> bool:
    return PurePosixPath(path).suffix.lower() in DATA_SUFFIXES


def is_program(path: str, mode: str, text: str) -> bool:
    """A file without a known suffix that is executable or starts with `#!`."""
    return not is_data(path) and (mode == "100755" or text.startswith("#!"))


def shadows_runner(path: str) -> bool:
    """A module at the top of the repository, or of its `src`, that replaces a module of the test runner."""
    parts = PurePosixPath(path.removeprefix("src/")).parts
    return bool(parts) and parts[0].removesuffix(".py") in RUNNER_MODULES


def matches(path: str, globs: Sequence[str]) -> bool:
    """A glob without '/' matches only the file's name; '**' matches any number of folders."""
    name = path.rsplit("/", 1)[-1]
    return any(_regex(glob).fullmatch(path if "/" in glob else name) for glob in globs)


@cache
def _regex(glob: str) -> re.Pattern[str]:
    tokens = re.split(r"(\*\*/|\*\*|\*|\?)", glob)
    meaning = {"**/": r"(?:.*/)?", "**": r".*", "*": r"[^/]*", "?": r"[^/]"}
    return re.compile("".join(meaning.get(token, re.escape(token)) for token in tokens), re.DOTALL)
