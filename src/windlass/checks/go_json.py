"""Reads the results of tests from the stream of `go test -json`.

Test ids are `package::Test/subtest`. The exit code and the line of the package are not enough: if TestMain exits with
0, the package "passes" without a test, and a skipped test does not make its package fail.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict

from msgspec import Struct, field

from windlass.checks.junit import MAX_ID, WORST, Status
from windlass.text import plain

ENDS = {"pass": Status.PASSED, "fail": Status.FAILED, "skip": Status.SKIPPED}
#: go before 1.24 writes this line as plain text between the events
NOT_BUILT = re.compile(r"FAIL\t(\S+) \[(?:build|setup) failed\]$")


class _Package(Struct):
    ended: dict[str, Status] = field(default_factory=dict)
    running: set[str] = field(default_factory=set)
    failed: bool = False

    def add_event(self, action: str, test: str) -> None:
        end = ENDS.get(action)
        if not test:
            self.failed = self.failed or action == "fail"
        elif end is not None:
            self.ended[test] = max(self.ended.get(test, end), end, key=WORST.index)
            self.running.discard(test)
        elif action == "run":
            self.running.add(test)

    def results(self) -> dict[str, Status]:
        """A test that did not end has the status ERROR: it called exit, or the package was stopped."""
        found = dict(self.ended)
        for test, status in self.ended.items():
            inner = [other for name, other in self.ended.items() if name.startswith(f"{test}/")]
            if status is Status.PASSED and inner and all(other is Status.SKIPPED for other in inner):
                found[test] = Status.SKIPPED
        return found | dict.fromkeys(sorted(self.running), Status.ERROR)


def parse_stream(text: str) -> dict[str, Status] | None:
    """Test id -> status; None if the text is not such a stream. Other lines between the events are ignored."""
    packages: dict[str, _Package] = defaultdict(_Package)
    for line in text.splitlines():
        if found := NOT_BUILT.match(line):
            packages[found[1]].failed = True
        elif (event := _event(line)) is not None:
            packages[event["Package"]].add_event(event["Action"], event["Test"])
    if not packages:
        return None
    results: dict[str, Status] = {}
    for name, package in packages.items():
        ended = package.results()
        results |= {_id(name, test): status for test, status in ended.items()}
        # The package failed without a failed test: it does not compile, or TestMain exited.
        if package.failed and not any(status in (Status.FAILED, Status.ERROR) for status in ended.values()):
            results[_id(name)] = Status.ERROR
    return results


def _event(line: str) -> dict[str, str] | None:
    if not line.startswith("{"):
        return None
    try:
        data = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(data, dict) or not isinstance(data.get("Action"), str):
        return None
    # Build events have no package. The event of the package comes later.
    if not isinstance(data.get("Package"), str):
        return None
    return {"Action": data["Action"], "Package": data["Package"], "Test": str(data.get("Test") or "")}


def _id(*words: str) -> str:
    return plain("::".join(words)).replace("\n", " ")[:MAX_ID]
