"""Reads the results of tests from the JUnit reports of all common test runners."""

from __future__ import annotations

import re
from collections.abc import Iterator
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
    for id, status in _cases(root, (), cwd):
        found[id] = max(found.get(id, status), status, key=WORST.index)
    return found


def _cases(at: Element, above: tuple[str, ...], cwd: str) -> Iterator[tuple[str, Status]]:
    waiting = [(at, above)]
    while waiting:
        element, suites = waiting.pop()
        if element.tag == "testcase":
            yield _id(element, suites, cwd), _status(element, suites)
            continue
        inner = suites if element.tag == "testsuites" else (*suites, element.get("name", ""))
        waiting.extend((child, inner) for child in element if child.tag in ("testsuite", "testcase"))


def _id(case: Element, suites: tuple[str, ...], cwd: str) -> str:
    # pytest puts all cases into one suite named "pytest".
    words = (*(name for name in suites if name != "pytest"), case.get("file", ""), case.get("classname", ""))
    parts = dict.fromkeys(_relative(word, cwd) for word in (*words, case.get("name", "")))
    return plain("::".join(part for part in parts if part)).replace("\n", " ")[:MAX_ID]


def _relative(word: str, cwd: str) -> str:
    return word.replace(f"{cwd}/", "") if cwd else word


def _status(case: Element, suites: tuple[str, ...]) -> Status:
    kinds = {child.tag: child for child in case}
    if "error" in kinds:
        return Status.ERROR
    if "failure" in kinds:
        return Status.ERROR if _is_load_failure(case, suites) or _is_missing_name(kinds["failure"]) else Status.FAILED
    return Status.SKIPPED if "skipped" in kinds or _was_skipped(case) else Status.PASSED


def _is_load_failure(case: Element, suites: tuple[str, ...]) -> bool:
    """vitest reports a file that did not load as a case with the name of the file."""
    name = case.get("name", "")
    return name == case.get("classname") and name in suites


def _was_skipped(case: Element) -> bool:
    """The status from jest, if the report has it: JUnit alone shows a `todo` as passed."""
    statuses = [one.get("value") for one in case.iterfind("properties/property") if one.get("name") == "status"]
    return any(status in ("todo", "pending", "skipped", "disabled") for status in statuses)


def _is_missing_name(failure: Element) -> bool:
    message = failure.get("message") or failure.text or ""
    return MISSING.match(message) is not None


def normal_id(id: str) -> str:
    """One id for the spellings of different runners: `tests/test_a.py::test_x` and `tests.test_a::test_x`."""
    return re.sub(r"\.py(?=::|$)", "", id).replace("::", ".").replace("/", ".")
