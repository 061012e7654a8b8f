"""What was measured, beside what is demanded."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Figure:
    name: str
    value: float
    unit: str
    """x: a ratio of two times measured in this run; else ms, s or MB."""
    limit: float
    at_least: bool = False
    detail: str = ""

    @property
    def ok(self) -> bool:
        return self.value >= self.limit if self.at_least else self.value <= self.limit


def table(figures: Sequence[Figure]) -> str:
    rows = [("figure", "measured", "limit", "", ""), *(_row(figure) for figure in figures)]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    return "\n".join(_line(row, widths) for row in rows)


def as_json(figures: Sequence[Figure]) -> str:
    return json.dumps([{**asdict(figure), "ok": figure.ok} for figure in figures], indent=2)


def _row(figure: Figure) -> tuple[str, str, str, str, str]:
    sign = ">=" if figure.at_least else "<="
    verdict = "ok" if figure.ok else "over" if not figure.at_least else "under"
    return figure.name, _amount(figure, figure.value), f"{sign} {_amount(figure, figure.limit)}", verdict, figure.detail


def _amount(figure: Figure, value: float) -> str:
    digits = 0 if value >= 100 else 1 if figure.limit >= 5 else 2
    return f"{value:.{digits}f} {figure.unit}"


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    name, measured, limit, verdict, detail = row
    cells = [name.ljust(widths[0]), measured.rjust(widths[1]), limit.rjust(widths[2]), verdict.ljust(widths[3]), detail]
    return "  ".join(cells).rstrip()
