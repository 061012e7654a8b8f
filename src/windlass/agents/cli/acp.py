"""Any agent that speaks the Agent Client Protocol. Best effort: Windlass enforces the limits; the cost is known only if
the agent reports it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct, field, to_builtins
from msgspec.structs import replace

from windlass.agents.base import (
    AgentEvent,
    Capabilities,
    Done,
    Invocation,
    Job,
    Said,
    SessionSeen,
    Spent,
    ToolFinished,
    ToolStarted,
)
from windlass.agents.cli.base import activity, count, load, may_write, money, rows, snippet, table, text, tools_of
from windlass.agents.cli.failures import REASON, class_of, classify_text
from windlass.agents.job_token import job_token
from windlass.errors import UserError, near
from windlass.model import ErrorClass, Json, Usage

PROGRAM = Path(__file__).with_name("acp_program.py")
#: the mode in which agents that act without asking do ask
QUIET_MODES = ("read-only",)
AUTH_REQUIRED = -32000
_TOOLS = {"edit": "edit", "execute": "bash", "read": "read", "search": "grep"}


class AcpSettings(Struct, frozen=True):
    """`[agents.acp]` of the config, or `[agents.NAME]` with `protocol = "acp"`."""

    argv: tuple[str, ...] = ()
    """The agent and its arguments, with the placeholders `{model}`, `{cwd}`, `{job}`, `{folder}` (the attempt's
    folder)."""
    env: tuple[str, ...] = ()
    """`NAME` passes a variable of yours, `NAME=value` sets one; placeholders as in argv."""
    model: str = ""
    """The model of roles that name none."""
    mode: str = ""
    """The session's mode, by the agent's own name."""
    read_mode: str = ""
    """The mode of roles that only read."""
    auth: str = ""
    """The agent's name of a login method, if it needs one."""
    protocol: str = "acp"
    """Marks an agent of any name as one that speaks this protocol."""

    def asks_for_model(self) -> bool:
        return not any("{model}" in item for item in (*self.argv, *self.env))


def settings_of(agent: str, options: Mapping[str, Any]) -> AcpSettings:
    known = to_builtins(AcpSettings())
    for name, value in options.items():
        if name not in known:
            raise UserError(f"agent '{agent}' has no setting '{name}'", hint=near(name, known))
        if isinstance(known[name], str) != isinstance(value, str):
            example = f'{name} = "…"' if isinstance(known[name], str) else f'{name} = ["…"]'
            raise UserError(f"'{name}' of agent '{agent}' is of the wrong type", hint=f"like {example}")
    values: dict[str, Any] = {name: one if isinstance(one, str) else tuple(one) for name, one in options.items()}
    settings = AcpSettings(**values)
    if settings.protocol != "acp":
        raise UserError(
            f"agent '{agent}' speaks an unknown protocol '{settings.protocol}'", hint=near(settings.protocol, ("acp",))
        )
    if not settings.argv:
        raise UserError(
            f"agent '{agent}' needs 'argv', the command of an agent that speaks the Agent Client Protocol",
            hint=f'like argv = ["opencode", "acp"] under [agents.{agent}]',
        )
    return settings


class AcpAdapter:
    capabilities = Capabilities(read_only=True, best_effort=True)
    flat_usd: float | None = None

    def __init__(self, settings: AcpSettings, name: str = "acp", environ: Mapping[str, str] | None = None) -> None:
        self.settings = settings
        self.name = name
        self.credential = f"{name} {settings.argv[0]}"
        self.environ = environ or {}
        self.program = settings.argv[0]

    def invocation(self, job: Job) -> Invocation:
        settings = self.settings
        words = {"job": job_token(job), "cwd": str(job.cwd), "folder": str(job.folder)}
        words["model"] = job.model or settings.model
        read_only = not may_write(job) and "bash" not in tools_of(job)
        quiet: list[Json] = list(QUIET_MODES) if read_only else []
        spec: dict[str, Json] = {
            "argv": [_substitute(item, words) for item in settings.argv],
            "cwd": str(job.cwd),
            "tools": list(tools_of(job)),
            "model": words["model"] if settings.asks_for_model() else "",
            "mode": (settings.read_mode if read_only else "") or settings.mode,
            "quiet_modes": quiet,
            "auth": settings.auth,
        }
        variables = [item.partition("=") for item in settings.env]
        env = {name: self.environ[name] for name, sign, _ in variables if not sign and name in self.environ}
        env |= {name: _substitute(value, words) for name, sign, value in variables if sign}
        return Invocation(
            (sys.executable, "-E", "-P", str(PROGRAM), str(job.folder / "acp.json")),
            stdin=f"{job.system}\n\n{job.prompt}" if job.system else job.prompt,
            env=env,
            files={"acp.json": json.dumps(spec)},
        )

    def reader(self, job: Job) -> AcpReader:
        return AcpReader(job)

    def parse(self, line: str) -> list[AgentEvent]:
        return AcpReader().parse(line)

    def classify(self, stderr: str, code: int | None) -> tuple[ErrorClass, str]:
        return classify_text(stderr, code)


def _substitute(item: str, words: Mapping[str, str]) -> str:
    # not str.format: a value may be JSON
    for name, value in words.items():
        item = item.replace(f"{{{name}}}", value)
    return item


class AcpCall(Struct, frozen=True):
    """A tool call with what the agent has described so far."""

    id: str
    kind: str = ""
    title: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    new_file: bool = False
    shown: bool = False

    def with_update(self, data: dict[str, Any]) -> AcpCall:
        raw = table(data, "rawInput")
        diffs = [one for one in rows(data, "content") if one.get("type") == "diff"]
        places = [path for one in (*diffs, *rows(data, "locations")) if (path := text(one, "path"))]
        arguments = {**({"path": places[0]} if places else {}), **self.arguments, **raw}
        new = self.new_file or "content" in raw or any(not one.get("oldText") for one in diffs)
        return replace(
            self,
            kind=text(data, "kind") or self.kind,
            title=text(data, "title") or self.title,
            arguments=arguments,
            new_file=new,
        )

    @property
    def tool(self) -> str:
        if self.kind in ("", "other") and text(self.arguments, "command", "cmd"):
            return "bash"
        if self.kind == "edit" and self.new_file:
            return "write"
        return _TOOLS.get(self.kind, self.kind or "other")

    @property
    def has_target(self) -> bool:
        wanted = {"bash": ("command", "cmd"), "grep": ("pattern", "query")}
        return bool(text(self.arguments, *wanted.get(self.tool, ("path", "file_path", "filePath", "absolute_path"))))

    def words(self, job: Job | None) -> str:
        if job and self.has_target and self.tool != "other":
            return activity(self.tool, self.arguments, job)
        return f"running {snippet(self.title)}" if self.tool == "bash" else snippet(self.title) or f"using {self.tool}"


class AcpReader(Struct):
    job: Job | None = None
    message: str = ""
    """The id of the message, if messages have one."""
    answer: list[str] = field(default_factory=list)
    """The message so far: its text comes in pieces."""
    last_text: str = ""
    calls: dict[str, AcpCall] = field(default_factory=dict)
    closed: set[str] = field(default_factory=set)
    """Calls that have ended."""
    usage: Usage = Usage()
    over: bool = False

    def parse(self, line: str) -> list[AgentEvent]:
        found = load(line)
        kind, data = found.get("kind"), table(found, "data")
        match kind:
            case _ if self.over:
                return []
            case "session_update":
                return self._update(data)
            case "request_permission":
                return [*self._whole(), *self._call(table(data, "toolCall"), show=True)]
            case "refused":
                return self._tool_end(text(data, "toolCallId"), False, text(data, "why"))
            case "response:session/new":
                return [SessionSeen(text(data, "sessionId"))]
            case "prompted":
                # Earlier text was a greeting.
                self.answer.clear()
                return []
            case "cancelled":
                return self._spent(data)
            case "response:session/prompt":
                end = _end_event(text(data, "stopReason"), "".join(self.answer))
                return [*self._whole(), *self._spent(data), *self._over(end)]
            case "missing":
                why = f"'{text(data, 'program')}' cannot be started: {text(data, 'why')}"
                return self._over(Done("", error=ErrorClass.MISSING_BINARY, reason=why[:REASON]))
            case str() if kind.startswith("error:"):
                return self._failure(data)
            case _:
                return []

    # -- updates

    def _update(self, data: dict[str, Any]) -> list[AgentEvent]:
        match data.get("sessionUpdate"):
            case "agent_message_chunk":
                id = text(data, "messageId")
                before = self._whole() if id != self.message else []
                self.message = id
                self.answer.append(text(table(data, "content"), "text"))
                return before
            case "tool_call" | "tool_call_update":
                return [*self._whole(), *self._call(data, show=False)]
            case "usage_update":
                cost = table(data, "cost")
                # An agent that does not know its model's price reports 0.
                amount = money(cost, "amount") if cost.get("currency") == "USD" else None
                if not amount:
                    return []
                self.usage = replace(self.usage, cost_usd=amount)
                return [Spent(self.usage, total=True)]
            case _:
                return []

    def _whole(self) -> list[AgentEvent]:
        words = "".join(self.answer)
        self.answer.clear()
        self.last_text = words.strip() or self.last_text
        return [Said(words)] if words.strip() else []

    def _call(self, data: dict[str, Any], *, show: bool) -> list[AgentEvent]:
        """Shown once: when the agent says what the call does, at the latest when it runs."""
        id, status = text(data, "toolCallId"), data.get("status")
        if id in self.closed:
            return []
        call = self.calls.get(id, AcpCall(id)).with_update(data)
        show = not call.shown and (show or call.has_target or status in ("in_progress", "completed", "failed"))
        self.calls[id] = replace(call, shown=call.shown or show)
        started: list[AgentEvent] = [ToolStarted(call.tool, call.words(self.job), id)] if show else []
        if status not in ("completed", "failed"):
            return started
        shown = [text(table(one, "content"), "text") for one in rows(data, "content")]
        output = next((one for one in shown if one.strip()), "") or text(data, "rawOutput")
        return [*started, *self._tool_end(id, status == "completed", output)]

    def _tool_end(self, id: str, ok: bool, why: str) -> list[AgentEvent]:
        call = self.calls.pop(id, None)
        self.closed.add(id)
        return [ToolFinished(call.tool, ok, "" if ok else why[:REASON], id)] if call else []

    # -- the end

    def _spent(self, data: dict[str, Any]) -> list[AgentEvent]:
        usage = table(data, "usage")
        if not usage:
            tokens = table(data, "_meta", "quota", "token_count")
            usage = {"inputTokens": tokens.get("input_tokens"), "outputTokens": tokens.get("output_tokens")}
        cached = count(usage, "cachedReadTokens")
        sent = count(usage, "inputTokens") + cached + count(usage, "cachedWriteTokens")
        # Thoughts may be missing in the output; the total includes them.
        spoken = max(count(usage, "outputTokens"), count(usage, "totalTokens") - sent)
        if not sent and not spoken:
            return []
        self.usage = Usage(sent, spoken, cached, self.usage.cost_usd)
        return [Spent(self.usage, total=True)]

    def _failure(self, data: dict[str, Any]) -> list[AgentEvent]:
        whole = self._whole()
        message = text(data, "message", "err") or "failed"
        details = json.dumps(data["data"]) if data.get("data") else ""
        found = class_of(f"{message} {details}")
        if found is ErrorClass.CRASHED:
            # Some agents describe a failure to the user and report only its occurrence to the client.
            found = class_of(self.last_text[-REASON:])
        if data.get("code") == AUTH_REQUIRED and "uthenticat" in message:
            found = ErrorClass.AUTH
        reason = " ".join(part for part in (message, details, self.last_text[-REASON:]) if part)
        return [*whole, *self._over(Done("", error=found, reason=reason[:REASON]))]

    def _over(self, end: Done) -> list[AgentEvent]:
        self.over = True
        return [end]


def _end_event(stop: str, answer: str) -> Done:
    match stop:
        case "end_turn":
            return Done(answer)
        case "max_tokens":
            return Done("", error=ErrorClass.BAD_OUTPUT, reason="the answer was cut at the model's output limit")
        case "max_turn_requests":
            return Done("", error=ErrorClass.TIMED_OUT, reason="the agent's own limit of turns was reached")
        case "refusal":
            return Done("", error=ErrorClass.REFUSED, reason="the agent refused to go on")
        case "cancelled":
            return Done("", error=ErrorClass.CRASHED, reason="cancelled by the agent itself")
        case other:
            return Done(
                "", error=ErrorClass.CRASHED, reason=f"ended without an answer ({other or 'no reason'})"[:REASON]
            )
