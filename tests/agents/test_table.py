"""The table of what each agent can: its first half follows the code, its second half what the live suite saw."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import agents_table
from windlass.agents.registry import CLIS

LIVE = Path(__file__).parents[1] / "live"
ROW = agents_table.ROWS[0]


def lines(*results: dict[str, object]) -> str:
    full = {"agent": "pi", "file": ROW.file, "test": ROW.test, "case": "pi", "ok": True, "seen": {}}
    return "\n".join(json.dumps({**full, **one}) for one in results)


def row_of(page: str, label: str) -> list[str]:
    [found] = [line for line in page.splitlines() if line.startswith(f"| {label} |")]
    return [cell.strip() for cell in found.strip("|").split("|")][1:]


def rendered(tmp_path: Path, *results: dict[str, object]) -> str:
    (tmp_path / "results").write_text(lines(*results))
    return agents_table.render(agents_table.read(tmp_path / "results"))


def test_what_the_committed_page_says_of_abilities_is_what_the_adapters_declare() -> None:
    page = agents_table.PAGE.read_text(encoding="utf-8")
    assert page.startswith("\n".join(agents_table.declared()))


def test_every_row_of_the_committed_page_was_tried_with_every_agent_and_held() -> None:
    page = agents_table.PAGE.read_text(encoding="utf-8")
    assert [row_of(page, row.label) for row in agents_table.ROWS] == [["yes"] * len(CLIS)] * len(agents_table.ROWS)
    told = [cell for row in agents_table.FAULT_ROWS for cell in row_of(page, row.label)]
    assert len(told) == len(CLIS) * len(agents_table.FAULT_ROWS)
    assert not {"", "yes", "no", agents_table.NOT_TRIED} & set(told)


def test_every_row_names_a_test_of_the_live_suite() -> None:
    for row in (*agents_table.ROWS, *agents_table.FAULT_ROWS):
        assert re.search(rf"^def {row.test}\(", (LIVE / f"{row.file}.py").read_text(), re.MULTILINE), row.test


def test_what_was_not_tried_is_said(tmp_path: Path) -> None:
    assert row_of(agents_table.render([]), ROW.label) == [agents_table.NOT_TRIED] * len(CLIS)
    assert row_of(rendered(tmp_path, {}), ROW.label)[CLIS.index("pi")] == "yes"
    assert row_of(rendered(tmp_path, {}), ROW.label)[0] == agents_table.NOT_TRIED


def test_one_case_that_failed_is_a_no_and_the_last_run_counts(tmp_path: Path) -> None:
    place = CLIS.index("pi")
    assert row_of(rendered(tmp_path, {"case": "a-pi"}, {"case": "b-pi", "ok": False}), ROW.label)[place] == "no"
    assert row_of(rendered(tmp_path, {"ok": False}, {"ok": True}), ROW.label)[place] == "yes"


def test_a_row_takes_its_own_cases_only(tmp_path: Path) -> None:
    row = next(row for row in agents_table.FAULT_ROWS if row.case == "402")
    cases = [{"file": row.file, "test": row.test, "case": case, "ok": case[0] == "4"} for case in ("402-pi", "529-pi")]
    assert row_of(rendered(tmp_path, *cases), row.label)[CLIS.index("pi")] == "yes"


def test_a_fault_says_what_happens_and_one_that_failed_says_no(tmp_path: Path) -> None:
    row, place = agents_table.FAULT_ROWS[0], CLIS.index("pi")
    fault = {"file": row.file, "test": row.test, "seen": {row.label: "the run stops"}}
    page = rendered(tmp_path, fault)
    assert row_of(page, row.label)[place] == "the run stops"
    assert row_of(rendered(tmp_path, fault, {**fault, "ok": False}), row.label)[place] == "no"


def test_a_page_that_says_something_else_is_stale_and_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    results, page = tmp_path / "results", tmp_path / "page.md"
    results.write_text(lines({}))
    monkeypatch.setattr(agents_table, "PAGE", page)
    assert agents_table.main(["--results", str(results)]) == 0
    assert agents_table.main(["--results", str(results), "--check"]) == 0
    page.write_text(page.read_text().replace("yes", "no"))
    before = page.read_text()
    assert agents_table.main(["--results", str(results), "--check"]) == 1
    assert "page.md is stale: run `make agents`" in capsys.readouterr().err
    assert page.read_text() == before


def test_what_a_test_saw_becomes_a_row_of_its_own(tmp_path: Path) -> None:
    page = rendered(tmp_path, {"seen": {"a reviewer told to write": "refused by the CLI"}})
    assert row_of(page, "a reviewer told to write")[CLIS.index("pi")] == "refused by the CLI"
