"""Encodes a job's facts in one word that is safe in a URL, so that a local model server knows the dispatch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from windlass.agents.base import Job

#: a scripted model needs the last five for its rules: paths to write to, and the block to end with
FACTS = (
    "run",
    "key",
    "attempt",
    "role",
    "purpose",
    "phase",
    "task_id",
    "cycle",
    "task_title",
    "contract",
    "tag",
    "cwd",
    "outs",
)


def job_token(job: Job) -> str:
    outs = json.dumps(dict(job.outs), separators=(",", ":"))
    facts = [outs if name == "outs" else str(getattr(job, name)) for name in FACTS]
    # quote() does not escape the separator, because it is safe in a URL
    return "~".join(quote(fact, safe="").replace("~", "%7E") for fact in facts)


def token_facts(token: str) -> dict[str, str] | None:
    """None: this is not a token."""
    values = token.split("~")
    return dict(zip(FACTS, map(unquote, values), strict=True)) if len(values) == len(FACTS) else None


def job_of(token: str) -> Job | None:
    """The job of the token, without its prompt. None: this is not a token."""
    facts = token_facts(token)
    if facts is None:
        return None
    words: dict[str, Any] = {name: facts[name] for name in FACTS[:11]}
    try:
        words |= {"attempt": int(facts["attempt"]), "cycle": int(facts["cycle"])}
        words |= {"cwd": Path(facts["cwd"]), "outs": json.loads(facts["outs"])}
    except ValueError:
        return None
    return Job(**words, system="", prompt="", folder=Path(), agent="")
