"""The stream of `go test -json`: which tests there were, and what became of each.

Test ids are `package::Test/subtest`. What the exit code and the package's own line say is not enough: a package whose
TestMain ends with 0 "passes" without a test, and a test that skips itself does not make its package fail.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict

from msgspec import Struct, field

from windlass.checks.junit import MAX_ID, WORST, Status
from windlass.text import plain

ENDS = {"pass": Status.PASSED, "fail": Status.FAILED, "skip": Status.SKIPPED}
#: go before 1.24 writes this line as it is, between the events
NOT_BUILT = re.compile(r"FAIL\t(\S+) \[(?:build|setup) failed\]$")


class _Package(Struct):
    ended: dict[str, Status] = field(default_factory=dict)
    running: set[str] = field(default_factory=set)
    failed: bool = False

    def take(self, action: str, test: str) -> None:
        end = ENDS.get(action)
        if not test:
            self.failed = self.failed or action == "fail"
        elif end is not None:
            self.ended[test] = max(self.ended.get(test, end), end, key=WORST.index)
            self.running.discard(test)
        elif action == "run":
            self.running.add(test)

    def results(self) -> dict[str, Status]:
        """A test that did not end shows nothing: it exited, or the package was stopped."""
        found = {test: self._status(test, status) for test, status in self.ended.items()}
        return found | dict.fromkeys(sorted(self.running), Status.ERROR)

    def _status(self, test: str, status: Status) -> Status:
        inner = [other for name, other in self.ended.items() if name.startswith(f"{test}/")]
        skipped = bool(inner) and all(other is Status.SKIPPED for other in inner)
        return Status.SKIPPED if skipped and status is Status.PASSED else status


def parse_stream(text: str) -> dict[str, Status] | None:
    """Test id -> status; None when it is no such stream. Lines between the events are for people."""
    packages: dict[str, _Package] = defaultdict(_Package)
    for line in text.splitlines():
        if found := NOT_BUILT.match(line):
            packages[found[1]].failed = True
        elif (event := _event(line)) is not None:
            packages[event["Package"]].take(event["Action"], event["Test"])
    if not packages:
        return None
    results: dict[str, Status] = {}
    for name, package in packages.items():
        ended = package.results()
        results |= {_id(name, test): status for test, status in ended.items()}
        # Without a test that failed it is the package that did: it does not compile, or TestMain ended it.
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
    # Events about the build have no package; that of the package follows them.
    if not isinstance(data.get("Package"), str):
        return None
    return {"Action": data["Action"], "Package": data["Package"], "Test": str(data.get("Test") or "")}


def _id(*words: str) -> str:
    return plain("::".join(words)).replace("\n", " ")[:MAX_ID]
