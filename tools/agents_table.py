"""docs/agents-table.md: what each agent can, as its adapter declares it, and what the live suite saw it do.

usage: agents_table.py [--results FILE]

`make agents` writes the results; without them the second half says `not tried`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from reference import table
from windlass.agents import registry
from windlass.agents.base import Capabilities
from windlass.agents.installed import ORDER, TESTED

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "agents-table.md"
RESULTS = ROOT / ".venv-agents" / "results.jsonl"
NOTE = "<!-- Made by tools/agents_table.py from the adapters and the results of the live suite; do not edit. -->"
NOT_TRIED = "not tried"
COSTS = {
    "stream": "told while it works",
    "end": "told at its end",
    "tokens": "from its tokens and a price list, at its end",
    "none": "unknown",
}
SANDBOX = "its commands are confined"
FAILURES = "test_failures_live"


@dataclass(frozen=True)
class Result:
    agent: str
    file: str
    test: str
    case: str
    ok: bool
    seen: dict[str, str]


@dataclass(frozen=True)
class Row:
    label: str
    file: str
    test: str
    case: str = ""
    """Only those cases with a parameter that begins so."""

    def has(self, result: Result) -> bool:
        return any(part.startswith(self.case) for part in result.case.split("-"))


ROWS = (
    Row(
        "the whole demo: three tasks reviewed and landed",
        "test_demo_live",
        "test_the_same_three_tasks_are_landed_and_checked",
    ),
    Row(
        "a file written, a command run, a block answered",
        "test_dispatch_live",
        "test_it_writes_a_file_runs_a_command_and_answers_with_a_block",
    ),
    Row("a prompt of 900 KB arrives whole", "test_dispatch_live", "test_a_prompt_of_900_kb_arrives_whole"),
    Row("401 is told as a login that failed", FAILURES, "test_an_error_that_stays_is_told_by_its_class", "401"),
    Row("402 is told as an account without credit", FAILURES, "test_an_error_that_stays_is_told_by_its_class", "402"),
    Row("429 that stays is a wait of the credential", FAILURES, "test_an_error_that_stays_is_told_by_its_class", "429"),
    Row("429 once is got over", FAILURES, "test_a_429_that_passes_is_got_over_by_the_cli_or_by_the_next_attempt"),
    Row("500 and 529 that stay are told as overload", FAILURES, "test_an_error_that_stays_is_told_by_its_class", "5"),
    Row(
        "a model's stream that always breaks off ends within bounds",
        FAILURES,
        "test_a_stream_that_always_breaks_off_is_a_failure_within_bounds",
    ),
    Row("a model that hangs ends at the wall", FAILURES, "test_a_model_that_hangs_ends_at_the_wall"),
    Row(
        "stopped in the middle of a tool: no process left",
        FAILURES,
        "test_a_stop_in_the_middle_of_a_tool_leaves_no_process",
    ),
    Row(
        "driver killed in the middle of a tool: nothing left, the run goes on",
        "test_resume_live",
        "test_a_driver_killed_in_the_middle_of_a_tool_leaves_nothing_and_the_run_goes_on",
    ),
)


def read(path: Path) -> list[Result]:
    """Of a test that ran more than once the last run counts."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    found = [Result(**json.loads(line)) for line in lines if '"file"' in line]
    return list({(one.agent, one.file, one.test, one.case): one for one in found}.values())


def render(results: Sequence[Result]) -> str:
    return "\n".join([*declared(), "", *observed(results)]) + "\n"


def declared() -> list[str]:
    """What the code says: it cannot go stale without a test that fails."""
    can = {name: registry.make(name, {}).capabilities for name in ORDER}
    rows = [
        ["tested version", *(TESTED[name] for name in ORDER)],
        ["cost", *(COSTS[can[name].cost] for name in ORDER)],
        *([label, *(yes(can[name], field) for name in ORDER)] for label, field in ABILITIES.items()),
    ]
    return ["# What each agent can", "", NOTE, "", *table(["", *ORDER], rows)]


ABILITIES = {
    "goes on with its session after an interruption": "resume",
    "checks its answer against a schema": "structured",
    "is restricted to tools that read": "read_only",
    "can be told how hard to think": "effort",
    SANDBOX: "sandbox",
}


def yes(can: Capabilities, field: str) -> str:
    return "yes" if getattr(can, field) else "no"


def observed(results: Sequence[Result]) -> list[str]:
    rows = [[row.label, *(verdict(row, name, results) for name in ORDER)] for row in ROWS]
    labels = dict.fromkeys(label for one in results for label in one.seen)
    rows += [[label, *(said(label, name, results) for name in ORDER)] for label in labels]
    head = "Seen by the live suite: the real CLIs of these versions, a scripted model behind them."
    return ["## What it was seen to do", "", head, "", *table(["", *ORDER], rows)]


def verdict(row: Row, agent: str, results: Iterable[Result]) -> str:
    found = [
        one.ok for one in results if (one.agent, one.file, one.test) == (agent, row.file, row.test) and row.has(one)
    ]
    return NOT_TRIED if not found else "yes" if all(found) else "no"


def said(label: str, agent: str, results: Iterable[Result]) -> str:
    return next((one.seen[label] for one in results if one.agent == agent and label in one.seen), NOT_TRIED)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="agents_table.py", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="FILE")
    PAGE.write_text(render(read(parser.parse_args(arguments).results)), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
