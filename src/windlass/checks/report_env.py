"""What the test command is told through its environment, so that its report says what the proof needs."""

from __future__ import annotations

from pathlib import Path

#: asks jest-junit for what jest said of each test
STATUS = Path(__file__).with_name("jest_status.cjs")
VARIABLES = {
    # Without these a test's id has no file in it, and changes with the first group of its file.
    "JEST_JUNIT_SUITE_NAME": "{filepath}",
    "JEST_JUNIT_CLASSNAME": "{classname}",
    "JEST_JUNIT_TITLE": "{title}",
    "JEST_JUNIT_ANCESTOR_SEPARATOR": " > ",
    # A file that does not load is left out of the report otherwise.
    "JEST_JUNIT_REPORT_TEST_SUITE_ERRORS": "true",
    "JEST_JUNIT_NO_STACK_TRACE": "true",
    "JEST_JUNIT_TEST_CASE_PROPERTIES_DIR": str(STATUS.parent),
    "JEST_JUNIT_TEST_CASE_PROPERTIES_JSON_FILE": STATUS.name,
}
