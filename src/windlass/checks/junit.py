"""Reads the results of tests from the JUnit reports of all common test runners."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import TYPE_CHECKING

from windlass.text import plain

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

MAX_BYTES = 32 * 1024 * 1024
MAX_ID = 300
# A failure with these words means that a name or a file was missing, not that the code gave a wrong result.
MISSING = re.compile(
    r"\s*(?:\w+\.)*(?:ModuleNotFoundError|ImportError)\b"
    r"|.{0,200}?(?:Cannot find (?:module|package)|ERR_MODULE_NOT_FOUND)",
    re.DOTALL,
)


class Status(StrEnum):
    PASSED = "passed"
    #: it ran, and the code gave a wrong result
    FAILED = "failed"
    #: it could not run: collection, set-up or an import failed
    ERROR = "error"
    #: skipped, or expected to fail
    SKIPPED = "skipped"


# If two cases have the same id, the worse status counts.
WORST = (Status.PASSED, Status.SKIPPED, Status.FAILED, Status.ERROR)


def parse_report(text: str, cwd: str = "") -> dict[str, Status] | None:
    """Test id -> status; None if the text is not a report. Paths in ids are relative to `cwd`."""
    from xml.etree.ElementTree import ParseError, fromstring

    if "<!DOCTYPE" in text or "<!ENTITY" in text:
        return None
    try:
        root = fromstring(text)  # noqa: S314
    except (ParseError, RecursionError):
        return None
    if root.tag not in ("testsuites", "testsuite"):
        return None
    found: dict[str, Status] = {}
    waiting: list[tuple[Element, tuple[str, ...]]] = [(root, ())]
    while waiting:
        element, suites = waiting.pop()
        if element.tag == "testcase":
            id, status = _id(element, suites, cwd), _status(element, suites)
            found[id] = max(found.get(id, status), status, key=WORST.index)
            continue
        inner = suites if element.tag == "testsuites" else (*suites, element.get("name", ""))
        waiting.extend((child, inner) for child in element if child.tag in ("testsuite", "testcase"))
    return found


def _id(case: Element, suites: tuple[str, ...], cwd: str) -> str:
    # pytest puts all cases into one suite named "pytest".
    words = (*(name for name in suites if name != "pytest"), case.get("file", ""), case.get("classname", ""))
    words = (*words, case.get("name", ""))
    parts = dict.fromkeys(word.replace(f"{cwd}/", "") if cwd else word for word in words)
    return plain("::".join(part for part in parts if part)).replace("\n", " ")[:MAX_ID]


def _status(case: Element, suites: tuple[str, ...]) -> Status:
    kinds = {child.tag: child for child in case}
    if "error" in kinds:
        return Status.ERROR
    if "failure" in kinds:
        name, message = case.get("name", ""), kinds["failure"].get("message") or kinds["failure"].text or ""
        # vitest reports a file that did not load as a case with the name of the file.
        did_not_load = name == case.get("classname") and name in suites
        return Status.ERROR if did_not_load or MISSING.match(message) else Status.FAILED
    # The status from jest, if the report has it: JUnit alone shows a `todo` as passed.
    statuses = [one.get("value") for one in case.iterfind("properties/property") if one.get("name") == "status"]
    was_skipped = any(status in ("todo", "pending", "skipped", "disabled") for status in statuses)
    return Status.SKIPPED if "skipped" in kinds or was_skipped else Status.PASSED


def normal_id(id: str) -> str:
    """One id for the spellings of different runners: `tests/test_a.py::test_x` and `tests.test_a::test_x`."""
    return re.sub(r"\.py(?=::|$)", "", id).replace("::", ".").replace("/", ".")
