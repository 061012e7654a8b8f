"""A JUnit report, whoever wrote it: which tests there were, and what became of each."""

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
# A failure with these words is no answer of the code: something the test wants was not there to be asked.
NOT_THERE = re.compile(
    r"\s*(?:\w+\.)*(?:ModuleNotFoundError|ImportError)\b"
    r"|.{0,200}?(?:Cannot find (?:module|package)|ERR_MODULE_NOT_FOUND)",
    re.DOTALL,
)


class Status(StrEnum):
    PASSED = "passed"
    #: it ran, and the code gave another answer than it wanted
    FAILED = "failed"
    #: it did not come to run: collection, set-up, an import
    ERROR = "error"
    #: skipped, or expected to fail
    SKIPPED = "skipped"


# Of two cases with one id the worse counts.
WORST = (Status.PASSED, Status.SKIPPED, Status.FAILED, Status.ERROR)


def parse_report(text: str, cwd: str = "") -> dict[str, Status] | None:
    """Test id -> status; None when it is no report. Ids name files from `cwd`."""
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
    # pytest puts all cases into one suite of its own name, which says nothing.
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
        return Status.ERROR if _is_file(case, suites) or _was_missing(kinds["failure"]) else Status.FAILED
    return Status.SKIPPED if "skipped" in kinds or _was_left_out(case) else Status.PASSED


def _is_file(case: Element, suites: tuple[str, ...]) -> bool:
    """vitest's way to say that a file did not load: a case of the file's own name."""
    name = case.get("name", "")
    return name == case.get("classname") and name in suites


def _was_left_out(case: Element) -> bool:
    """jest's own word, where the report carries it: a `todo` is told as if it had passed."""
    said = [one.get("value") for one in case.iterfind("properties/property") if one.get("name") == "status"]
    return any(word in ("todo", "pending", "skipped", "disabled") for word in said)


def _was_missing(failure: Element) -> bool:
    said = failure.get("message") or failure.text or ""
    return NOT_THERE.match(said) is not None


def normal_id(id: str) -> str:
    """The same for a test however its runner spells it: `tests/test_a.py::test_x` and `tests.test_a::test_x`."""
    return re.sub(r"\.py(?=::|$)", "", id).replace("::", ".").replace("/", ".")
