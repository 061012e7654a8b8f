"""Finds and reads the report of a test command: JUnit XML, or the stream of `go test -json`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path, PurePath

from windlass.checks.go_json import parse_stream
from windlass.checks.junit import MAX_BYTES, Status, parse_report

FILES, FOLDERS, REPORT = "{files}", "{folders}", "{junit}"
STREAM = "-json"


def names_report(command: Sequence[str]) -> bool:
    """The command writes its report to a file."""
    return any(REPORT in word for word in command)


def reports(command: Sequence[str]) -> bool:
    """The command writes a report to a file or, as `go test -json`, to its standard output."""
    calls_go = any(PurePath(word).name == "go" for word in command)
    return names_report(command) or (calls_go and STREAM in command)


def expand(command: Sequence[str], files: Sequence[str], report: str) -> tuple[str, ...]:
    # Without `./`, a name with a leading dash would be an option.
    named = [f"./{path}" if path.startswith("-") else path for path in files]
    # Without `./`, `go` takes a folder for a package of the standard library.
    parents = dict.fromkeys(path.rpartition("/")[0] for path in files)
    folders = [f"./{parent}" if parent else "." for parent in parents]
    lists = {FILES: named, FOLDERS: folders}
    words = [lists.get(word) or [word.replace(REPORT, report)] for word in command]
    return tuple(word for part in words for word in part)


def read_report(path: Path, cwd: Path) -> dict[str, Status] | None:
    """Test id -> status; None without a readable report. Paths in ids are relative to `cwd`."""
    try:
        if path.stat().st_size > MAX_BYTES:
            return None
        text = path.read_bytes().decode("utf-8", "replace")
    except OSError:
        return None
    return parse_report(text, str(cwd)) if text.lstrip("\ufeff \t\r\n").startswith("<") else parse_stream(text)
