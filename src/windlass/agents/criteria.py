"""Criteria of reviews: markdown files that a flow names. A project can replace those that ship with Windlass."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from windlass.errors import UserError, near
from windlass.model import is_inner_path

BUILT_IN = Path(__file__).parent / "prompts"


def find_criteria(name: str, folders: Sequence[Path]) -> Path | None:
    """The file of that name, as `high-stakes/plan-review`: earlier folders win, those of Windlass come last."""
    if not is_inner_path(name):
        return None
    found = (folder / f"{name}.md" for folder in (*folders, BUILT_IN))
    return next((path for path in found if path.is_file()), None)


def read_criteria(name: str, folders: Sequence[Path]) -> str:
    path = find_criteria(name, folders)
    if path is None:
        known = sorted(
            file.relative_to(folder).with_suffix("").as_posix()
            for folder in (*folders, BUILT_IN)
            for file in folder.rglob("*.md")
        )
        raise UserError(f"there are no criteria '{name}'", hint=near(name, known))
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read: {error}", hint="criteria are a UTF-8 markdown file") from None
