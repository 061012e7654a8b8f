"""A job's facts in one word that is safe in a URL: a model server on loopback knows by it which dispatch asks."""

from __future__ import annotations

from urllib.parse import quote, unquote

from windlass.agents.base import Job

FACTS = ("run", "key", "attempt", "role", "purpose", "phase", "task_id", "cycle")


def job_token(job: Job) -> str:
    return "~".join(_quoted(str(getattr(job, name))) for name in FACTS)


def token_facts(token: str) -> dict[str, str] | None:
    """None: this is not a token."""
    values = token.split("~")
    return dict(zip(FACTS, map(unquote, values), strict=True)) if len(values) == len(FACTS) else None


def _quoted(text: str) -> str:
    # quote() leaves the separator alone, because it is safe in a URL
    return quote(text, safe="").replace("~", "%7E")
