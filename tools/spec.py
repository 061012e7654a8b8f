"""Which test proves which requirement, which requirements wait and why, and which have neither.

A requirement is proved when a test that carries its number was seen failing while the code was broken on purpose
(tests/checked_by_breaking.toml). One whose tests were never seen failing is only claimed.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import re
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import pytest

import mutate

ROOT = Path(__file__).resolve().parent.parent
NUMBER = re.compile(r"S[0-4]-[0-9]{2,3}")
REQUIREMENT = re.compile(r"^- \*\*(S[0-4]-[0-9]{2,3})\*\* .*?\{[^}]*\} (.*)$", re.MULTILINE)
Span: TypeAlias = tuple[str, int, int]


@dataclass(frozen=True)
class Row:
    number: str
    text: str
    tests: tuple[str, ...]
    reason: str
    checked: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Its tests that were seen failing, each with the mutations that made them fail."""

    @property
    def state(self) -> str:
        if self.tests:
            return "proved" if self.checked else "claimed"
        return "later" if self.reason else "open"


class Collector:
    """A pytest plugin that notes the marks of what was collected."""

    def __init__(self) -> None:
        self.tests: dict[str, list[str]] = defaultdict(list)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        for item in session.items:
            name = item.nodeid.split("[")[0]
            for number in (number for mark in item.iter_markers("req") for number in mark.args):
                if name not in self.tests[number]:
                    self.tests[number].append(name)


def requirements(text: str) -> dict[str, str]:
    return dict(REQUIREMENT.findall(text))


def collect(tests: Path) -> Mapping[str, Sequence[str]]:
    collector, said = Collector(), io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = pytest.main(["--collect-only", "-q", "-p", "no:cacheprovider", str(tests)], plugins=[collector])
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        sys.exit(f"spec: the tests cannot be collected\n{said.getvalue()}")
    return collector.tests


def reasons(later: Mapping[str, str], numbers: Iterable[str]) -> dict[str, str]:
    """The narrowest key that covers a number gives its reason."""
    spans = sorted(((_span(key), reason) for key, reason in later.items()), key=lambda one: one[0][2] - one[0][1])
    return {number: next((why for span, why in spans if _covers(span, number)), "") for number in numbers}


def _span(key: str) -> Span:
    if re.fullmatch(r"S[0-4]", key):
        return key, 0, 999
    first, _, last = key.partition("..")
    if not NUMBER.fullmatch(first) or not NUMBER.fullmatch(last or first) or (last or first)[:2] != first[:2]:
        sys.exit(f"spec: '{key}' in later.toml is not a number, a range within one group, or a group")
    return first[:2], int(first[3:]), int((last or first)[3:])


def _covers(span: Span, number: str) -> bool:
    group, first, last = span
    return number[:2] == group and first <= int(number[3:]) <= last


def checked(tests: Path, marks: Mapping[str, Sequence[str]]) -> dict[str, dict[str, list[str]]]:
    """requirement -> test -> mutations. Each line names a test that carries the number, and a mutation of the list."""
    listed, mutations = tests / "checked_by_breaking.toml", tests / "mutations.toml"
    if not listed.exists():
        return {}
    known = {one.id for one in mutate.load(mutations)} if mutations.exists() else set()
    found: dict[str, dict[str, list[str]]] = tomllib.loads(listed.read_text(encoding="utf-8"))
    faults = [
        f"{number}: {test} by {id}"
        for number, lines in found.items()
        for test, ids in lines.items()
        for id in ids
        if test not in marks.get(number, ()) or id not in known
    ]
    if faults:
        sys.exit("spec: checked_by_breaking.toml names tests or mutations that are gone\n" + "\n".join(faults))
    return found


def rows(
    texts: Mapping[str, str],
    tests: Mapping[str, Sequence[str]],
    later: Mapping[str, str],
    broken: Mapping[str, Mapping[str, Sequence[str]]] | None = None,
) -> list[Row]:
    why = reasons(later, texts)
    return [
        Row(number, text, tuple(tests.get(number, ())), why[number], (broken or {}).get(number, {}))
        for number, text in texts.items()
    ]


def table(found: Sequence[Row]) -> str:
    return "\n".join(line for row in found for line in _lines(row))


def _lines(row: Row) -> list[str]:
    head = f"{row.number:<7} {row.state:<7}"
    if row.tests:
        seen = [f"{name} (seen failing: {', '.join(row.checked[name])})" for name in row.tests if name in row.checked]
        names = seen + [name for name in row.tests if name not in row.checked]
        return [f"{head} {names[0]}", *(f"{'':<15} {name}" for name in names[1:])]
    return [f"{head} {row.reason or row.text[:100]}"]


def counts(found: Sequence[Row]) -> str:
    lines = ["group  proved  claimed  later  open  all"]
    lines += [
        _count(group, [row.state for row in found if row.number[:2] == group])
        for group in sorted({row.number[:2] for row in found})
    ]
    lines.append(_count("all", [row.state for row in found]))
    return "\n".join(lines)


def _count(name: str, states: Sequence[str]) -> str:
    proved, claimed, later, left = (states.count(state) for state in ("proved", "claimed", "later", "open"))
    return f"{name:<5} {proved:>7} {claimed:>8} {later:>6} {left:>5} {len(states):>4}"


def as_json(found: Sequence[Row]) -> str:
    return json.dumps(
        [
            {
                "number": row.number,
                "state": row.state,
                "tests": row.tests,
                "checked": dict(row.checked),
                "reason": row.reason,
                "text": row.text,
            }
            for row in found
        ],
        indent=2,
    )


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="spec", description=__doc__)
    parser.add_argument("--group", choices=["S0", "S1", "S2", "S3", "S4"], help="one group only")
    parser.add_argument("--open", action="store_true", help="only what has neither a test nor a reason")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--tests", type=Path, default=ROOT / "tests")
    parser.add_argument("--spec", type=Path, default=ROOT / "docs" / "spec")
    given = parser.parse_args(arguments)
    texts = requirements((given.spec / "requirements.md").read_text(encoding="utf-8"))
    later = tomllib.loads((given.spec / "later.toml").read_text(encoding="utf-8"))
    tests = collect(given.tests)
    unknown = sorted(set(tests) - set(texts))
    if unknown:
        print(f"spec: marks without a requirement: {', '.join(unknown)}", file=sys.stderr)
    broken = checked(given.tests, tests)
    every = [row for row in rows(texts, tests, later, broken) if row.number.startswith(given.group or "S")]
    shown = [row for row in every if row.state == "open"] if given.open else every
    print(as_json(shown) if given.json else f"{table(shown)}\n\n{counts(every)}")
    return 1 if unknown or any(row.state == "open" and row.number.startswith("S0") for row in every) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
