from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.checks.junit import Status, normal_id, parse_report
from windlass.checks.reports import read_report

PYTEST = """<?xml version="1.0" encoding="utf-8"?><testsuites name="pytest tests">
<testsuite name="pytest" hostname="vm">
<testcase classname="tests.test_a.TestA" name="test_x[1]" time="0.1" />
<testcase classname="tests.test_a" name="test_bad"><failure message="assert 1 == 2">...</failure></testcase>
<testcase classname="tests.test_a" name="test_setup"><error message="failed on setup">...</error></testcase>
<testcase classname="tests.test_a" name="test_skip"><skipped type="pytest.skip" /></testcase>
<testcase classname="tests.test_a" name="test_xfail"><skipped type="pytest.xfail" message="" /></testcase>
<testcase classname="tests.test_a" name="test_import">
<failure message="ModuleNotFoundError: No module named 'x'" /></testcase>
<testcase classname="" name="tests.test_b"><error message="collection failure">...</error></testcase>
</testsuite></testsuites>"""
NODE = """<?xml version="1.0" encoding="utf-8"?>
<testsuites>
	<testcase name="adds" time="0.001049" classname="test"/>
	<testsuite name="group" tests="2"><testcase name="inner" classname="test" failure="2 == 3">
		<failure type="testCodeFailure" message="2 == 3">Error [ERR_TEST_FAILURE]: 2 == 3</failure></testcase>
		<testcase name="skip" classname="test"><skipped type="skipped" message="true"/></testcase></testsuite>
	<testcase name="/slot/1/test/b.test.mjs" classname="test" failure="test failed">
		<failure type="testCodeFailure" message="test failed">[Error: test failed]</failure></testcase>
	<!-- tests 4 -->
</testsuites>"""
REPORTS = Path(__file__).parents[1] / "captures" / "junit"
"""As vitest 4 and jest 30 with jest-junit 17 wrote them, told what Windlass tells them, about the same tests."""
RAN = {
    "test/calc.test.js::half of an even number": Status.PASSED,
    "test/calc.test.js::half of an odd number": Status.FAILED,
    "test/calc.test.js::left out": Status.SKIPPED,
    "test/calc.test.js::later": Status.SKIPPED,
    "test/name.test.js::area of what is not exported": Status.FAILED,
    "test/inner.test.js::imported inside": Status.ERROR,
}
LOADS_NOT = ("absent", "empty", "own", "syntax")
"""Without its module, without a test, with a syntax error of its own, with one in the code."""


def test_pytest_s_report_tells_what_ran_from_what_did_not_load() -> None:
    assert parse_report(PYTEST) == {
        "tests.test_a.TestA::test_x[1]": Status.PASSED,
        "tests.test_a::test_bad": Status.FAILED,
        "tests.test_a::test_setup": Status.ERROR,
        "tests.test_a::test_skip": Status.SKIPPED,
        "tests.test_a::test_xfail": Status.SKIPPED,
        "tests.test_a::test_import": Status.ERROR,
        "tests.test_b": Status.ERROR,
    }


def test_node_s_own_report_names_files_from_the_slot() -> None:
    assert parse_report(NODE, "/slot/1") == {
        "test::adds": Status.PASSED,
        "group::test::inner": Status.FAILED,
        "group::test::skip": Status.SKIPPED,
        "test::test/b.test.mjs": Status.FAILED,
    }


def test_vitest_s_report_is_read() -> None:
    group = {"group > inner": Status.PASSED, "group > throws": Status.FAILED}
    assert parse_report((REPORTS / "vitest.xml").read_text(), "/slot/1") == {
        **RAN,
        **{f"test/calc.test.js::{name}": status for name, status in group.items()},
        **{f"test/{name}.test.js": Status.ERROR for name in LOADS_NOT},
    }


def test_jest_s_report_is_read_and_a_todo_has_not_passed() -> None:
    group = {"group::inner": Status.PASSED, "group::throws": Status.FAILED}
    assert parse_report((REPORTS / "jest.xml").read_text(), "/slot/1") == {
        **RAN,
        **{f"test/calc.test.js::{name}": status for name, status in group.items()},
        **{f"test/{name}.test.js::Test suite failed to run": Status.ERROR for name in LOADS_NOT},
    }


def test_of_two_cases_with_one_name_the_worse_counts() -> None:
    case = '<testcase name="a"/><testcase name="a"><failure message="no"/></testcase><testcase name="a"/>'
    assert parse_report(f"<testsuite>{case}</testsuite>") == {"a": Status.FAILED}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no xml",
        "<html/>",
        "<testsuite>",
        '<!DOCTYPE x [<!ENTITY a "b">]><testsuite name="&a;"/>',
        "<testsuite>" * 5000,
        "<testsuites>\x00</testsuites>",
    ],
)
def test_what_is_no_report_is_none(text: str) -> None:
    assert parse_report(text) is None


def test_a_report_that_is_missing_or_huge_is_none(tmp_path: Path) -> None:
    assert read_report(tmp_path / "none.xml", tmp_path) is None
    assert read_report(tmp_path, tmp_path) is None
    with (tmp_path / "huge.xml").open("wb") as file:
        file.truncate(64 * 1024 * 1024)
    assert read_report(tmp_path / "huge.xml", tmp_path) is None


def test_names_cannot_move_a_terminal_s_cursor() -> None:
    assert parse_report('<testsuite><testcase name="a&#10;b\x9b31m"/></testsuite>') == {"a b": Status.PASSED}


def test_one_test_is_the_same_however_its_runner_spells_it() -> None:
    assert normal_id("tests/test_a.py::TestA::test_x[a/b]") == normal_id("tests.test_a.TestA::test_x[a/b]")


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    assert parse_report(text) in (None, {})
