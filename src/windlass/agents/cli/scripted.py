"""The scripted agent: a real program with answers from a script.

`parse` reads the stream of `scripted_program`, one JSON object a line: session {id} · tool {tool, text} · tool_end
{tool, ok} · say {text} · usage {input, output, cached, cost_usd}, a running total · retrying {text, wait_s} · done
{text}.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence

from windlass.agents.base import (
    AgentEvent,
    Capabilities,
    Done,
    Invocation,
    Job,
    Retrying,
    Said,
    SessionSeen,
    Spent,
    ToolFinished,
    ToolStarted,
)
from windlass.agents.cli.failures import classify_text
from windlass.agents.process.launch import program
from windlass.errors import UserError, near
from windlass.model import ErrorClass, Json, Usage

ENTRY = "agents.cli.scripted_program.main"
_TEMPLATE = re.compile(r"\{(plan_path|task_id|task_title|cwd|out\.[A-Za-z0-9_-]+)\}")


class ScriptedAdapter:
    name = "scripted"
    credential = "scripted"
    capabilities = Capabilities(cost="stream", read_only=True, effort=True)
    flat_usd: float | None = None

    def __init__(
        self, rules: Sequence[Mapping[str, Json]], tags: Mapping[str, str], source: str = "the script"
    ) -> None:
        self.rules = rules
        self.tags = tags
        """Contract -> the tag of its block, for a dispatch without its own tag."""
        self.source = source

    def invocation(self, job: Job) -> Invocation:
        rules: list[Json] = [fill_rule(rule, job) | {"n": n} for n, rule in self._candidate_rules(job)]
        spec: dict[str, Json] = {
            **_facts(job),
            "run": job.run,
            "key": job.key,
            "cwd": str(job.cwd),
            "state": job.options.get("state") or str(job.folder.parent),
            "tag": job.tag or self.tags.get(job.contract, "json"),
            "source": self.source,
            "rules": rules,
        }
        argv = program(ENTRY, str(job.folder / "scripted.json"))
        return Invocation(argv, stdin=job.prompt, entry=ENTRY, files={"scripted.json": json.dumps(spec)})

    def _candidate_rules(self, job: Job) -> Iterator[tuple[int, Mapping[str, Json]]]:
        """The rules up to the first that may answer without limit: later ones never answer."""
        for n, rule in enumerate(self.rules):
            if matches(rule, job):
                yield n, rule
                if "times" not in rule:
                    return

    def parse(self, line: str) -> list[AgentEvent]:
        try:
            data = json.loads(line)
        except (ValueError, RecursionError):
            return []
        if not isinstance(data, dict):
            return []
        text = str(data.get("text", ""))
        match data.get("type"):
            case "session":
                return [SessionSeen(str(data.get("id", "")))]
            case "tool":
                return [ToolStarted(str(data.get("tool", "")), text)]
            case "tool_end":
                return [ToolFinished(str(data.get("tool", "")), data.get("ok") is True, text)]
            case "say":
                return [Said(text)]
            case "usage":
                cost = data.get("cost_usd")
                input, output, cached = (_count(data.get(name)) for name in ("input", "output", "cached"))
                cost_usd = float(cost) if isinstance(cost, int | float) else None
                return [Spent(Usage(input, output, cached, cost_usd), total=True)]
            case "retrying":
                wait = data.get("wait_s")
                wait_s = float(wait) if isinstance(wait, int | float) else None
                return [Retrying(ErrorClass.OVERLOADED, text, wait_s)]
            case "done":
                return [Done(text)]
            case _:
                return []

    def classify(self, stderr: str, code: int | None) -> tuple[ErrorClass, str]:
        return classify_text(stderr, code)


def _count(value: object) -> int:
    return value if isinstance(value, int) else 0


def _facts(job: Job) -> dict[str, Json]:
    """The facts that a rule's `when` can use."""
    return {
        "role": job.role,
        "phase": job.phase,
        "task": job.task_id,
        "title": job.task_title,
        "cycle": job.cycle,
        "attempt": job.attempt,
        "purpose": job.purpose,
        "step": re.split(r"[#+]", job.key.rpartition("/")[2])[0],
    }


def matches(rule: Mapping[str, Json], job: Job) -> bool:
    when = rule.get("when")
    conditions = when.items() if isinstance(when, dict) else ()
    known = {name: {str(value)} for name, value in _facts(job).items()}
    known["task"] = {job.task_id, job.task_title} - {""}
    return all(str(value) in known[name] for name, value in conditions)


def fill_rule(rule: Mapping[str, Json], job: Job) -> dict[str, Json]:
    values = {"task_id": job.task_id, "task_title": job.task_title, "cwd": str(job.cwd)}
    values |= {"plan_path": job.outs.get("plan", "")} | {f"out.{name}": path for name, path in job.outs.items()}

    def value(match: re.Match[str]) -> str:
        if not values.get(match[1]):
            raise UserError(
                f"the script uses '{{{match[1]}}}', which role '{job.role}' does not have in phase '{job.phase}'",
                hint=near(match[1], [name for name, text in values.items() if text]),
            )
        return values[match[1]]

    def fill(item: Json) -> Json:
        match item:
            case str():
                return _TEMPLATE.sub(value, item)
            case list():
                return [fill(one) for one in item]
            case dict():
                return {str(fill(key)): fill(one) for key, one in item.items()}
            case _:
                return item

    return {
        key: fill(item) if key in ("say", "json", "files", "run", "delete", "commit") else item
        for key, item in rule.items()
    }
