"""opencode's log on standard error: facts that its stream of events lacks, or reports too late."""

from __future__ import annotations

import json
import re

from windlass.agents.base import Retrying
from windlass.agents.cli.failures import REASON, class_of
from windlass.model import ErrorClass

_LINE = re.compile(r"timestamp=\S+ level=(?:DEBUG|INFO|WARN|ERROR) ")
_FIELD = re.compile(r'([\w.]+)=("(?:[^"\\]|\\.)*"|\S*)')
LONGEST = 20_000


def fields(line: str) -> dict[str, str]:
    """The fields of a log line; {} for another line."""
    if not _LINE.match(line):
        return {}
    return {name: _unquote(value) for name, value in _FIELD.findall(line[:LONGEST])}


def _unquote(value: str) -> str:
    try:
        return str(json.loads(value)) if value.startswith('"') else value
    except ValueError:
        return value.strip('"')


def is_request(line: dict[str, str]) -> bool:
    """It asks the model. Small requests, as for a title, are not part of the work."""
    return line.get("message") == "stream" and line.get("small") != "true"


def retry_event(line: dict[str, str]) -> Retrying | None:
    """A failure that it retries is the server's, unless its text says otherwise."""
    if line.get("message") != "stream error" or line.get("small") == "true":
        return None
    message = line.get("error.error", "").partition("For more information")[0].strip() or "the model's server failed"
    found = class_of(message)
    return Retrying(ErrorClass.OVERLOADED if found is ErrorClass.CRASHED else found, message[:REASON])


def permission_request(line: dict[str, str]) -> tuple[str, str] | None:
    """The permission that a starting tool needs, and its target."""
    if line.get("message") != "evaluated" or line.get("action.action") != "allow":
        return None
    return line.get("permission", ""), line.get("pattern", "")


def without_log(stderr: str) -> str:
    """Keeps only log lines about a failure: others quote commands and paths."""
    kept = []
    for line in stderr.splitlines():
        known = fields(line)
        kept += [line] if not known else [known["error.error"]] if known.get("error.error") else []
    return "\n".join(kept)
