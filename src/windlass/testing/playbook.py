"""Chooses the rule that answers a request, and the next step of the conversation.

The conversation itself shows its progress: the answered calls have ids that the server assigned. So a request that a
CLI repeats gets the same answer. The playbook remembers only what must not repeat: used-up rules and given errors.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from threading import Lock
from typing import Any

from msgspec import Struct, field

from windlass.agents.base import Job
from windlass.agents.cli.scripted import fill_rule, matches
from windlass.errors import UserError
from windlass.model import Json, content_id
from windlass.testing.toolbox import READERS, STRUCTURED, Read, Step, Structured, fill, requires_read, steps_of
from windlass.testing.wire.base import Asked, ModelAnswer, ServerFailure, Tokens, ToolCall

NO_JOB = Job("", "", 0, "", "", "", "", "")
"""The job of a request without a token in its URL."""
KINDS = {400: "invalid_request_error", 401: "authentication_error", 402: "billing_error", 403: "permission_error",
         413: "request_too_large", 429: "rate_limit_error", 500: "api_error", 529: "overloaded_error"}  # fmt: skip


class ScriptedReply(Struct, frozen=True):
    answer: ModelAnswer
    delay: float = 0.0
    cut_after: int | None = None
    """Break off the stream after so many bytes."""
    hang: bool = False
    """Start the stream and never continue it."""


class Refusal(Struct, frozen=True):
    failure: ServerFailure
    headers: Mapping[str, str] = field(default_factory=dict)
    delay: float = 0.0


class Playbook:
    def __init__(self, rules: Sequence[Mapping[str, Json]], tags: Mapping[str, str]) -> None:
        self._rules = rules
        self._tags = tags
        self._lock = Lock()
        self._chosen: dict[str, int] = {}
        self._claims: dict[int, dict[str, bool]] = {}
        """Rule -> dispatch that uses it -> whether the dispatch got the last answer."""
        self._faults: Counter[tuple[str, str]] = Counter()

    def reply(self, job: Job, asked: Asked) -> ScriptedReply | Refusal:
        number = self._choose(job)
        if number is None:
            names = ("role", "phase", "task_id", "task_title", "cycle", "attempt", "purpose", "key")
            facts = [f"{name}={getattr(job, name)!r}" for name in names if getattr(job, name)]
            return _refusal(400, f"no rule of the script answers {', '.join(facts) or 'a request without a job token'}")
        try:
            rule: dict[str, Any] = fill_rule(self._rules[number], job)
        except UserError as error:
            return _refusal(400, str(error))
        talk = _Talk(rule, asked, job, content_id(f"{job.run}\n{job.key}\n{number}")[:10])
        delay = float(rule.get("delay", 0))
        fault: dict[str, Any] | None = rule.get("error")
        is_due = fault is not None and fault.get("turn", talk.index + 1) == talk.index + 1
        if fault and is_due and self._repeats("error", job, number, fault.get("times")):
            return _refusal(int(fault.get("status", 500)), fault.get("message", ""), fault, delay=delay)
        last = talk.last
        cut = rule.get("cut_after")
        if cut is not None and not (talk.asked.stream and self._repeats("cut", job, number, rule.get("cut_times"))):
            cut = None
        hang = last and rule.get("hang") is True
        if last and not hang and cut is None:
            with self._lock:
                self._claims.setdefault(number, {})[_marker(job)] = True
        first = float(rule.get("sleep", 0)) if talk.first else 0.0
        answer = talk.answer(job.tag or self._tags.get(job.contract, "json"))
        return ScriptedReply(answer, first + delay, cut, hang)

    def _choose(self, job: Job) -> int | None:
        """The first rule that may still answer. A dispatch keeps its first rule."""
        mine, step = _marker(job), f"{job.run}:{job.key}@"
        with self._lock:
            if mine in self._chosen:
                return self._chosen[mine]
            for number, rule in enumerate(self._rules):
                # Earlier attempts of the step count as uses only if they got the last answer.
                claims = self._claims.get(number, {})
                uses = [who for who, ended in claims.items() if ended or not who.startswith(step)]
                if matches(rule, job) and ("times" not in rule or len(uses) < int(rule["times"])):  # type: ignore[arg-type]
                    self._chosen[mine] = number
                    self._claims.setdefault(number, {})[mine] = False
                    return number
        return None

    def _repeats(self, kind: str, job: Job, number: int, times: int | None) -> bool:
        """Whether to fail again. Counts over all attempts of a step, so that the one after the last error succeeds."""
        with self._lock:
            key = (kind, f"{job.run}:{job.key}:{number}")
            self._faults[key] += 1
            return times is None or self._faults[key] <= times


class _Talk:
    """One request of a dispatch: the rule's steps, and the next one."""

    def __init__(self, rule: Mapping[str, Any], asked: Asked, job: Job, mark: str) -> None:
        self.rule, self.asked, self.job, self.mark = rule, asked, job, mark
        self.steps = steps_of(rule)
        if "json" in rule and self._structured and asked.tool(*STRUCTURED):
            self.steps = (*self.steps, Structured(rule["json"]))
        self.index, self.letter, self.step = self._next()

    @property
    def first(self) -> bool:
        return (self.index, self.letter) == (0, "a")

    @property
    def last(self) -> bool:
        """Whether this is the last answer. A CLI may end as soon as it has the answer for its schema."""
        return self.step is None or isinstance(self.step, Structured)

    @property
    def _structured(self) -> bool:
        return self.rule.get("structured") is not False

    def _next(self) -> tuple[int, str, Step | None]:
        """(number of the step, try, step). Without a step, only the final text is left."""
        results = self.asked.results
        found = [(re.fullmatch(rf"call_{self.mark}_(\d+)([abc])", one.id), one.text) for one in results]
        given = {(int(match[1]), match[2]): text for match, text in found if match}
        if not given and not any(one.id.startswith("call_") for one in results):
            # The CLI uses its own ids for the calls. They were answered in order.
            given = {(number, "a"): one.text for number, one in enumerate(results)}
        can_read = self.asked.tool(*READERS) is not None
        for number, step in enumerate(self.steps):
            if (number, "a") not in given:
                return number, "a", step
            if (number, "c") in given or not (can_read and requires_read(step, given[number, "a"])):
                continue
            return (number, "c", step) if (number, "b") in given else (number, "b", Read(getattr(step, "path", "")))
        return len(self.steps), "a", None

    def answer(self, tag: str) -> ModelAnswer:
        id = f"{self.mark}_{self.index}{self.letter}"
        text = str(self.rule.get("say", ""))
        if self.step is not None:
            name, input = fill(self.step, self.asked, self.job.cwd)
            call = ToolCall(f"call_{id}", name, input)
            return ModelAnswer(id, self.asked.model, text if self.last else "", call, self._tokens())
        stop = str(self.rule.get("stop", ""))
        if stop == "empty":
            return ModelAnswer(id, self.asked.model, "", tokens=self._tokens())
        if "json" not in self.rule:
            text = text or "Done."
        else:
            block = json.dumps(self.rule["json"], ensure_ascii=False)
            fenced = f"{text}\n\n```{tag}\n{block}\n```\n{self.rule.get('then', '')}".strip()
            text = block if self.asked.wants_json and self._structured else fenced
        return ModelAnswer(id, self.asked.model, text, tokens=self._tokens(), stop=stop)

    def _tokens(self) -> Tokens:
        """The rule's figures, spread over all turns."""
        ends_with_call = bool(self.steps) and isinstance(self.steps[-1], Structured)
        usage, turns = self.rule.get("usage", {}), len(self.steps) + (not ends_with_call)

        def share(name: str) -> int:
            each, rest = divmod(int(usage.get(name, 0)), turns)
            return each + (self.index < rest) if self.letter == "a" and self.index < turns else 0

        return Tokens(share("input"), share("output"), share("cached"))


def _marker(job: Job) -> str:
    return f"{job.run}:{job.key}@{job.attempt}"


def _refusal(status: int, message: str, error: Mapping[str, Any] | None = None, *, delay: float = 0.0) -> Refusal:
    given = error or {}
    kind = given.get("type") or KINDS.get(status, "api_error")
    after = given.get("retry_after")
    headers = {} if after is None else {"retry-after": f"{after:g}"}
    headers |= {str(name): str(value) for name, value in given.get("headers", {}).items()}
    return Refusal(ServerFailure(status, kind, message or f"scripted {kind}", after), headers, delay)
