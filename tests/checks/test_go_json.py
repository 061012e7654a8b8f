"""What `go test -json` says, read as it is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.checks.go_json import parse_stream
from windlass.checks.junit import Status
from windlass.checks.reports import expand, read_report, reports

CALC = "example.com/m/calc"


def stream(*events: tuple[str, str], package: str = CALC) -> str:
    """Events as 'action test'."""
    lines = [{"Action": action, "Package": package, **({"Test": test} if test else {})} for action, test in events]
    return "".join(json.dumps(line) + "\n" for line in lines)


def test_every_test_and_subtest_has_its_own_status() -> None:
    text = stream(
        ("start", ""),
        ("run", "TestA"),
        ("output", "TestA"),
        ("run", "TestA/one"),
        ("pass", "TestA/one"),
        ("pass", "TestA"),
        ("run", "TestB"),
        ("fail", "TestB"),
        ("run", "TestC"),
        ("skip", "TestC"),
        ("fail", ""),
    )
    assert parse_stream(text) == {
        f"{CALC}::TestA": Status.PASSED,
        f"{CALC}::TestA/one": Status.PASSED,
        f"{CALC}::TestB": Status.FAILED,
        f"{CALC}::TestC": Status.SKIPPED,
    }


@pytest.mark.parametrize(
    "text",
    [
        # before go 1.24, and since
        f"# {CALC}\ncalc/a_test.go:3:31: undefined: F\nFAIL\t{CALC} [build failed]\n",
        f"FAIL\t{CALC} [setup failed]\n",
        '{"ImportPath":"' + CALC + '.test","Action":"build-output","Output":"undefined: F"}\n'
        '{"ImportPath":"' + CALC + '.test","Action":"build-fail"}\n'
        + stream(("start", ""), ("output", ""), ("fail", "")),
    ],
)  # fmt: skip
def test_a_package_that_does_not_compile_did_not_load(text: str) -> None:
    assert parse_stream(text) == {CALC: Status.ERROR}


def test_a_package_that_passes_without_a_test_ran_nothing() -> None:
    assert parse_stream(stream(("start", ""), ("output", ""), ("pass", ""))) == {}
    assert parse_stream(stream(("skip", ""))) == {}


def test_a_test_of_nothing_but_skipped_subtests_is_skipped() -> None:
    text = stream(("run", "TestA"), ("run", "TestA/x"), ("skip", "TestA/x"), ("pass", "TestA"), ("pass", ""))
    assert parse_stream(text) == {f"{CALC}::TestA": Status.SKIPPED, f"{CALC}::TestA/x": Status.SKIPPED}


@pytest.mark.parametrize("end", ["pass", "fail"])
def test_a_test_that_did_not_end_shows_nothing(end: str) -> None:
    assert parse_stream(stream(("run", "TestA"), (end, ""))) == {f"{CALC}::TestA": Status.ERROR}


def test_a_failure_that_test_main_hides_is_one() -> None:
    assert parse_stream(stream(("run", "TestA"), ("fail", "TestA"), ("pass", ""))) == {f"{CALC}::TestA": Status.FAILED}


def test_a_package_that_fails_after_its_tests_passed_is_an_error() -> None:
    found = parse_stream(stream(("run", "TestA"), ("pass", "TestA"), ("fail", "")))
    assert found == {f"{CALC}::TestA": Status.PASSED, CALC: Status.ERROR}


def test_of_two_runs_of_a_test_the_worse_counts() -> None:
    twice = stream(("run", "TestA"), ("fail", "TestA"), ("run", "TestA"), ("pass", "TestA"), ("fail", ""))
    assert parse_stream(twice) == {f"{CALC}::TestA": Status.FAILED}
    assert parse_stream(stream(("run", "TestA"), ("pass", "TestA"), ("run", "TestA"), ("fail", ""))) == {
        f"{CALC}::TestA": Status.ERROR
    }


def test_what_a_test_prints_is_no_event() -> None:
    said = json.dumps({"Action": "pass", "Package": CALC, "Test": "TestA"})
    line = json.dumps({"Action": "output", "Package": CALC, "Test": "TestA", "Output": said + "\n"})
    assert parse_stream(stream(("run", "TestA")) + line + "\n" + stream(("fail", "TestA"), ("fail", ""))) == {
        f"{CALC}::TestA": Status.FAILED
    }


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    assert parse_stream(text) in (None, {})


@pytest.mark.parametrize("text", ["", "ok  \tcalc\t0.1s\n", "{}\n", '{"Action": 3}\n', "[1]\n", "null\n"])
def test_what_is_no_stream_is_none(text: str) -> None:
    assert parse_stream(text) is None


# -- where reports are


def test_a_report_is_read_by_what_is_in_it(tmp_path: Path) -> None:
    file = tmp_path / "report"
    file.write_text(stream(("run", "TestA"), ("pass", "TestA")))
    assert read_report(file, tmp_path) == {f"{CALC}::TestA": Status.PASSED}
    file.write_text('\n<testsuite><testcase name="a"/></testsuite>')
    assert read_report(file, tmp_path) == {"a": Status.PASSED}


@pytest.mark.parametrize(
    ("command", "words", "reported"),
    [
        (["t", "--out={junit}", "{files}"], ["t", "--out=R", "./-a_test.go", "x/b_test.go", "x/c_test.go"], True),
        (["go", "test", "-json", "{folders}"], ["go", "test", "-json", ".", "./x"], True),
        (["t", "{folders}"], ["t", ".", "./x"], False),
        (["t", "-json", "{folders}"], ["t", "-json", ".", "./x"], False),
        (
            ["env", "A=1", "/usr/bin/go", "test", "-json", "{folders}"],
            ["env", "A=1", "/usr/bin/go", "test", "-json", ".", "./x"],
            True,
        ),
    ],
)
def test_a_command_gets_files_or_folders(command: list[str], words: list[str], reported: bool) -> None:
    assert list(expand(command, ["-a_test.go", "x/b_test.go", "x/c_test.go"], "R")) == words
    assert reports(command) is reported
