"""docs/agents-table.md: what each agent can, as its adapter declares it, and what the live suite saw it do.

usage: agents_table.py [--results FILE] [--check]

`make agents` writes the results; without them the second half says `not tried`.
"""

from __future__ import annotations

import argparse
import difflib
import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from reference import table
from windlass.agents import registry
from windlass.agents.base import Capabilities
from windlass.agents.installed import known_version
from windlass.agents.registry import CLIS

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "agents-table.md"
RESULTS = ROOT / ".venv-agents" / "results.jsonl"
NOTE = "<!-- Made by tools/agents_table.py from the adapters and the results of the live suite; do not edit. -->"
NOT_TRIED = "not tried"
COSTS = {
    "stream": "told while it works",
    "end": "told at its end",
    "tokens": "from its tokens and a price list, while it works",
    "none": "unknown",
}
SANDBOX = "its commands are confined"
#: not run in CI, which compares this page with what it saw
DEEP = ("test_answers_live", "test_cost_live", "test_waits_live")
FAILURES = "test_failures_live"
FAULTS = "test_faults_live"


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
    Row(
        "another version than the tested one is said once",
        "test_dispatch_live",
        "test_a_version_that_nobody_tried_is_said_once_and_the_run_goes_on",
    ),
)
FAULT_ROWS = (
    Row("401", FAULTS, "test_a_login_that_is_refused_stops_the_run_and_a_resume_ends_right"),
    Row("402", FAILURES, "test_an_error_that_stays_is_told_by_its_class", "402"),
    Row("429 once", FAULTS, "test_a_429_that_passes_is_got_over"),
    Row("429 always, with a reset in 3 s", FAULTS, "test_a_429_with_a_reset_is_waited_for_in_sight_of_everybody"),
    Row("500 always", FAULTS, "test_a_500_that_stays_is_asked_again_in_growing_pauses"),
    Row("529 always", FAILURES, "test_an_error_that_stays_is_told_by_its_class", "529"),
    Row("the model's stream is cut once", FAULTS, "test_a_stream_that_breaks_off_is_got_over"),
    Row(
        "it is always cut",
        FAULTS,
        "test_a_stream_that_always_breaks_off_is_given_up_within_bounds_and_the_next_attempt_ends_right",
    ),
    Row("the model hangs", FAULTS, "test_a_model_that_hangs_is_ended_by_our_limit_and_a_retry_ends_right"),
    Row("stopped in the middle of a tool", FAILURES, "test_a_stop_in_the_middle_of_a_tool_leaves_no_process"),
    Row(
        "a budget used up among tools",
        FAULTS,
        "test_a_budget_used_up_among_tools_stops_them_and_a_higher_one_ends_right",
    ),
    Row(
        "the driver killed in the middle of a tool",
        "test_resume_live",
        "test_a_driver_killed_in_the_middle_of_a_tool_leaves_nothing_and_the_run_goes_on",
    ),
)


def read(path: Path) -> list[Result]:
    """Of a test that ran more than once the last run counts."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    found = [Result(**json.loads(line)) for line in lines if '"file"' in line]
    return list({(one.agent, one.file, one.test, one.case): one for one in found if one.file not in DEEP}.values())


def render(results: Sequence[Result]) -> str:
    return "\n".join([*declared(), "", *observed(results)]) + "\n"


def declared() -> list[str]:
    """What the code says: it cannot go stale without a test that fails."""
    can = {name: registry.make(name, {}).capabilities for name in CLIS}
    rows = [
        ["tested version", *(known_version(name) for name in CLIS)],
        ["cost", *(COSTS[can[name].cost] for name in CLIS)],
        *([label, *(yes(can[name], field) for name in CLIS)] for label, field in ABILITIES.items()),
    ]
    return ["# What each agent can", "", NOTE, "", *table(["", *CLIS], rows)]


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
    head = "Seen by the live suite: the real CLIs of these versions, a scripted model behind them."
    told = {row.label for row in (*ROWS, *FAULT_ROWS)}
    labels = [label for label in dict.fromkeys(label for one in results for label in one.seen) if label not in told]
    roles = [[label, *(said(label, name, results) for name in CLIS)] for label in sorted(labels)]
    return [
        *("## What it was seen to do", "", head, "", *table(["", *CLIS], _verdicts(ROWS, results)), ""),
        *("## What happens when something goes wrong", "", FAULT_HEAD, ""),
        *(*table(["", *CLIS], _verdicts(FAULT_ROWS, results)), ""),
        *("## What happens when it is told what its role may not do", "", *table(["", *CLIS], roles)),
    ]


FAULT_HEAD = (
    "After each of these no process is left. 402, 529 and a stop were seen in single"
    " dispatches; all others in whole runs, which came to their right end by themselves or by the command named."
)


def _verdicts(rows: Iterable[Row], results: Sequence[Result]) -> list[list[str]]:
    return [[row.label, *(verdict(row, name, results) for name in CLIS)] for row in rows]


def verdict(row: Row, agent: str, results: Iterable[Result]) -> str:
    """What the test told under the row's own name; else only whether it held."""
    found = [one for one in results if (one.agent, one.file, one.test) == (agent, row.file, row.test) and row.has(one)]
    if not found:
        return NOT_TRIED
    if not all(one.ok for one in found):
        return "no"
    return next((one.seen[row.label] for one in found if row.label in one.seen), "yes")


def said(label: str, agent: str, results: Iterable[Result]) -> str:
    return next((one.seen[label] for one in results if one.agent == agent and label in one.seen), NOT_TRIED)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="agents_table.py", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="FILE")
    parser.add_argument("--check", action="store_true", help="change nothing; fail if the page says something else")
    options = parser.parse_args(arguments)
    page = render(read(options.results))
    if not options.check:
        PAGE.write_text(page, encoding="utf-8")
        return 0
    return compare(page)


def compare(page: str) -> int:
    committed = PAGE.read_text(encoding="utf-8")
    lines = difflib.unified_diff(committed.splitlines(), page.splitlines(), "committed", "seen now", lineterm="", n=0)
    if committed != page:
        print("\n".join([f"{PAGE.name} is stale: run `make agents` and commit it.", *lines]), file=sys.stderr)
    return int(committed != page)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
