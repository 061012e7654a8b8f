"""Environment variables that make a test command's report complete enough for the proof."""

from __future__ import annotations

from pathlib import Path

#: makes jest-junit report jest's status of each test
STATUS = Path(__file__).with_name("jest_status.cjs")
VARIABLES = {
    # Without these, the id of a test has no file and depends on the first group of its file.
    "JEST_JUNIT_SUITE_NAME": "{filepath}",
    "JEST_JUNIT_CLASSNAME": "{classname}",
    "JEST_JUNIT_TITLE": "{title}",
    "JEST_JUNIT_ANCESTOR_SEPARATOR": " > ",
    # Without this, a file that does not load is missing from the report.
    "JEST_JUNIT_REPORT_TEST_SUITE_ERRORS": "true",
    "JEST_JUNIT_NO_STACK_TRACE": "true",
    "JEST_JUNIT_TEST_CASE_PROPERTIES_DIR": str(STATUS.parent),
    "JEST_JUNIT_TEST_CASE_PROPERTIES_JSON_FILE": STATUS.name,
}
