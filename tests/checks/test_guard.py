from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.checks.test_files import GuardVerdict, guard, is_code, matches


@pytest.mark.req("S0-44")
def test_code_changed_without_a_test_is_refused_by_name() -> None:
    assert guard(["src/limiter.py", "README.md"]) == GuardVerdict(False, "code changed without a test: src/limiter.py")


@pytest.mark.req("S0-44")
def test_code_changed_with_a_test_passes() -> None:
    assert guard(["src/limiter.py", "tests/test_limiter.py"]).ok


@pytest.mark.parametrize(
    "changed",
    [[], ["README.md"], ["pyproject.toml", ".github/ci.yml", "docs/a.rst"], ["tests/test_a.py"], ["assets/x.png"]],
)
def test_changes_without_code_pass(changed: list[str]) -> None:
    assert guard(changed).ok


def test_long_lists_are_cut() -> None:
    reason = guard([f"src/m{n}.py" for n in range(8)]).reason
    assert reason.endswith("src/m4.py and 3 more")


@pytest.mark.parametrize(
    "path",
    [
        "tests/helpers.py",
        "pkg/tests/data.json",
        "test_top.py",
        "src/deep/test_x.py",
        "pkg/limiter_test.go",
        "web/button.test.tsx",
        "web/button.spec.ts",
        "src/__tests__/a.js",
        "spec/models/user_spec.rb",
        "app/LimiterTest.java",
        "src/test/java/Helper.java",
    ],
)
def test_default_globs_know_a_test(path: str) -> None:
    assert guard(["src/code.py", path]).ok


@pytest.mark.parametrize("path", ["src/contest.py", "src/latest.go", "attest/x.py", "testing.py", "protests/x.py"])
def test_a_name_that_only_resembles_a_test_is_code(path: str) -> None:
    assert not guard([path]).ok


def test_own_globs_and_suffixes_replace_the_defaults() -> None:
    assert guard(["lib/a.foo"], ["checks/*"], [".foo"]) == GuardVerdict(False, "code changed without a test: lib/a.foo")
    assert guard(["lib/a.foo", "checks/a.foo"], ["checks/*"], [".foo"]).ok
    assert not guard(["lib/a.foo", "checks/deep/a.foo"], ["checks/*"], [".foo"]).ok


@pytest.mark.parametrize(
    ("glob", "path", "wanted"),
    [
        ("tests/**", "tests/a/b.py", True),
        ("tests/**", "x/tests/a.py", False),
        ("**/tests/**", "tests/a.py", True),
        ("*.py", "a/b/c.py", True),
        ("src/*.py", "src/a/b.py", False),
        ("src/?.py", "src/a.py", True),
        ("a+b(c)/*", "a+b(c)/x", True),
        ("tests/**", "tests/new\nline", True),
    ],
)
def test_globs_match_like_those_of_git(glob: str, path: str, wanted: bool) -> None:
    assert matches(path, [glob]) is wanted


@given(st.lists(st.text(min_size=1, max_size=20), max_size=6))
def test_any_list_of_names_gets_a_verdict_and_a_test_never_makes_it_worse(changed: list[str]) -> None:
    assert guard([*changed, "tests/test_x.py"]).ok
    assert guard(changed).ok or any(is_code(path) for path in changed)
