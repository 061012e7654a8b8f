"""Claude Code: `claude -p` with its stream of JSON lines.

Its stream tells the money at its end only, and of each response the tokens as they were before it was spoken; the
transcript that it keeps of the session tells them as they are after it.
"""

from __future__ import annotations

import json
import sys
from datetime import datetime
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

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
    UsageFileNames,
)
from windlass.agents.cli.account import Account, CliAdapter
from windlass.agents.cli.base import (
    CliSettings,
    activity,
    count,
    load,
    money,
    rows,
    status,
    table,
    text,
    tools_of,
    usage_sum,
    usage_with_cost,
)
from windlass.agents.cli.failures import REASON, class_of
from windlass.model import ErrorClass, Usage

TESTED = "2.1.325"
INSTALL = "npm install -g @anthropic-ai/claude-code"
KEYCHAIN = sys.platform == "darwin"
ACCOUNT = Account(
    variables=("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN", "CLAUDE_CODE_USE_BEDROCK",
               "CLAUDE_CODE_USE_VERTEX", "ANTHROPIC_BASE_URL", "ANTHROPIC_VERTEX_PROJECT_ID", "CLOUD_ML_REGION",
               "AWS_REGION", "AWS_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN",
               "AWS_BEARER_TOKEN_BEDROCK"),
    files=(".credentials.json",), folder=".claude", folder_variable="CLAUDE_CONFIG_DIR", sessions="projects",
    key="ANTHROPIC_API_KEY", server="ANTHROPIC_BASE_URL",
)  # fmt: skip
_TOOLS = {
    "read": "Read",
    "grep": "Grep",
    "find": "Glob",
    "ls": "Glob",
    "bash": "Bash",
    "write": "Write",
    "edit": "Edit",
}
_NAMES = {"Read": "read", "Grep": "grep", "Glob": "find", "Bash": "bash", "Write": "write", "Edit": "edit"}
#: the tool that returns an answer with a schema: neither work nor a turn
_ANSWERING = "StructuredOutput"
#: the source of a failure: for a request without a response, and for a connection that broke during one
_NO_RESPONSE, _BROKEN_RESPONSE = "request_retry", "connection_retry"
#: commits are the user's: they do not name the CLI as their author
_SETTINGS = '{"attribution":{"commit":"","pr":""}}'
_EFFORTS = {"off": "low", "minimal": "low"}
_ROOM = {
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "CLAUDE_CODE_DISABLE_AUTO_MEMORY": "1",
    "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS": "1",
    "DISABLE_AUTOUPDATER": "1",
    # "@path" in a prompt, which may quote anybody, would attach that file.
    "CLAUDE_CODE_DISABLE_FILE_MENTIONS": "1",
    # Few retries of its own: the waits are Windlass's, so that a person sees them.
    "CLAUDE_CODE_MAX_RETRIES": "2",
    # without it the CLI refuses to work unasked as root
    "IS_SANDBOX": "1",
}


class ClaudeAdapter(CliAdapter):
    name = "claude"
    capabilities = Capabilities(resume=True, cost="tokens", structured=True, read_only=True, effort=True)
    account = ACCOUNT

    def invocation(self, job: Job) -> Invocation:
        settings = self.settings.for_job(job)
        home = job.folder / "home"
        login = self.login(settings)
        env = {**_ROOM, "CLAUDE_CONFIG_DIR": str(home), **login}
        if KEYCHAIN and not (login or settings.base_url or settings.api_key):
            # On macOS the login is in the Keychain, under a name made from the configuration folder. Without the name
            # of the user's own folder the clean room has no login. '' stands for the usual folder.
            env["CLAUDE_SECURESTORAGE_CONFIG_DIR"] = self.environ.get("CLAUDE_CONFIG_DIR", "")
        return Invocation(
            (*settings.command("claude"), *_flags(job, settings)),
            # A prompt that begins with "/" would be a command of the CLI, and succeed without a model.
            stdin=f"\n{job.prompt}" if job.prompt.startswith("/") else job.prompt,
            env=env,
            files={"home/settings.json": "{}"},
            carried=self.carried(job, settings),
        )

    def reader(self, job: Job) -> ClaudeReader:
        return ClaudeReader(job)

    def parse(self, line: str) -> list[AgentEvent]:
        return ClaudeReader().parse(line)


def _flags(job: Job, settings: CliSettings) -> tuple[str, ...]:
    tools = dict.fromkeys(_TOOLS[tool] for tool in tools_of(job) if tool in _TOOLS)
    flags = ["-p", "--output-format", "stream-json", "--verbose", "--setting-sources", "", "--strict-mcp-config"]
    flags += [
        "--settings",
        _SETTINGS,
        "--disable-slash-commands",
        "--permission-mode",
        "bypassPermissions",
        "--tools",
        ",".join(tools),
    ]
    model = job.model or settings.model
    flags += ["--model", model] if model else []
    flags += ["--effort", _EFFORTS.get(job.effort, job.effort)] if job.effort else []
    flags += ["--append-system-prompt", job.system] if job.system else []
    flags += ["--max-turns", str(job.limits.turns)] if job.limits.turns else []
    bounds = [usd for usd in (job.limits.usd, job.limits.left_usd) if usd]
    flags += ["--max-budget-usd", f"{min(bounds):.4f}"] if bounds else []
    flags += ["--resume", job.session] if job.session else []
    if job.schema and job.schema.get("type") == "object" and settings.structured != "off":
        flags += ["--json-schema", json.dumps(job.schema, separators=(",", ":"))]
    return tuple(flags)


class ClaudeReader(Struct):
    job: Job | None = None
    started: dict[str, str] = field(default_factory=dict)
    """Tools at work: id -> name."""
    messages: dict[str, Usage] = field(default_factory=dict)
    """Responses by id. Stream and transcript report each several times: the highest count is right."""
    unpriced: set[str] = field(default_factory=set)
    """Responses whose model has no price."""
    usage: Usage = Usage()
    asking: bool | None = None
    """By the transcript, a request to the model is open; None: the transcript has no requests."""
    failed: set[str] = field(default_factory=set)
    """By the transcript, how requests failed since the last response."""
    broken_responses: int = 0
    """By the transcript, how many responses broke off, so that the CLI asked again. It never reports their cost."""
    session: str = ""
    reset_at: float | None = None
    pause_s: float = 0.0
    reported_at: float | None = None

    @property
    def unanswered(self) -> bool:
        """Its requests failed, and none of them while a response arrived."""
        return self.failed == {_NO_RESPONSE}

    def ledger(self) -> UsageFileNames:
        return UsageFileNames(f"{ACCOUNT.room}/{ACCOUNT.sessions}", "*/*.jsonl")

    def parse_ledger(self, line: str) -> list[AgentEvent]:
        data = load(line)
        match data.get("type"):
            case "api-request":
                self.asking = True
                return []
            case "assistant":
                self.asking = None if self.asking is None else False
                if data.get("isApiErrorMessage") is True:
                    return []
                self.failed.clear()
                return self._spent(table(data, "message"))
            case "system" if data.get("subtype") == "api_error":
                # The request failed, and it asks again after a pause.
                self.asking = None if self.asking is None else False
                source = text(data, "source")
                self.failed.add(source)
                self.broken_responses += source == _BROKEN_RESPONSE
                return []
            case _:
                return []

    def parse(self, line: str) -> list[AgentEvent]:
        data = load(line)
        match data.get("type"):
            case "assistant":
                return self._assistant(data)
            case "user":
                return self._results(table(data, "message"))
            case "system" if data.get("subtype") == "api_retry":
                return [self._retry(data)]
            case "system" if data.get("subtype") == "init":
                session = text(data, "session_id")
                if not session or session == self.session:
                    return []
                self.session = session
                return [SessionSeen(session)]
            case "rate_limit_event":
                info = table(data, "rate_limit_info")
                if info.get("status") == "rejected":
                    self.reset_at = float(count(info, "resetsAt")) or self.reset_at
                return []
            case "result":
                return [Spent(_cost(data), total=True), self._end(data)]
            case _:
                return []

    def _retry(self, data: dict[str, Any]) -> Retrying:
        delay, code = count(data, "retry_delay_ms"), status(data, "error_status")
        # Whole seconds come from the server; the CLI's own pauses are random.
        from_server = delay > 0 and delay % 1000 == 0
        if code == 429:
            self.pause_s = delay / 1000 if from_server else 0.0
        words = text(data, "error") or "the model's server failed"
        found = class_of(words, code)
        error = ErrorClass.OVERLOADED if found is ErrorClass.CRASHED else found
        return Retrying(error, f"{code or ''} {words}".strip()[:REASON], delay / 1000, from_server)

    def _assistant(self, data: dict[str, Any]) -> list[AgentEvent]:
        message = table(data, "message")
        self.reported_at = _time(text(data, "timestamp")) or self.reported_at
        if data.get("is_api_error_message") is True:
            return []
        events: list[AgentEvent] = []
        for part in rows(message, "content"):
            if part.get("type") == "text" and text(part, "text").strip():
                events.append(Said(text(part, "text")))
            elif part.get("type") == "tool_use" and part.get("name") != _ANSWERING:
                name, id = text(part, "name"), text(part, "id")
                tool = self.started[id] = _NAMES.get(name, name.lower())
                words = activity(tool, table(part, "input"), self.job) if self.job else tool
                events.append(ToolStarted(tool, words, id))
        return events + self._spent(message)

    def _spent(self, message: dict[str, Any]) -> list[AgentEvent]:
        id, counts = text(message, "id"), table(message, "usage")
        before, read = self.messages.get(id, Usage(cost_usd=0.0)), _tokens(counts)
        most = Usage(max(read.input, before.input), max(read.output, before.output), max(read.cached, before.cached))
        if (
            not id
            or not (most.input or most.output)
            or (id in self.messages and most == replace(before, cost_usd=None))
        ):
            return []
        written = count(counts, "cache_creation_input_tokens")
        now = usage_with_cost(most, None, text(message, "model"), written)
        self.messages[id] = now
        if now.cost_usd is None:
            self.unpriced.add(id)
        so_far = self.usage
        cost = (so_far.cost_usd or 0.0) + (now.cost_usd or 0.0) - (before.cost_usd or 0.0)
        self.usage = Usage(
            so_far.input + now.input - before.input,
            so_far.output + now.output - before.output,
            so_far.cached + now.cached - before.cached,
            cost if not self.unpriced else None,
            not self.unpriced,
        )
        return [Spent(self.usage, total=True)]

    def _results(self, message: dict[str, Any]) -> list[AgentEvent]:
        events: list[AgentEvent] = []
        for part in rows(message, "content"):
            id = text(part, "tool_use_id")
            if part.get("type") == "tool_result" and id in self.started:
                ok = part.get("is_error") is not True
                why = "" if ok else text(part, "content")[:REASON]
                events.append(ToolFinished(self.started.pop(id), ok, why, id))
        return events

    def _end(self, data: dict[str, Any]) -> Done:
        said = text(data, "result")
        if data.get("is_error") is not True and data.get("subtype") == "success":
            if data.get("stop_reason") == "refusal":
                return Done("", error=ErrorClass.REFUSED, reason=said[:REASON] or "the model refused")
            return Done(said, data.get("structured_output"))
        errors = data.get("errors")
        message = said or "; ".join(str(one) for one in errors if one) if isinstance(errors, list) else said
        error = _error(data, message)
        retry_at = self.reset_at if error is ErrorClass.RATE_LIMITED else None
        if error is ErrorClass.RATE_LIMITED and retry_at is None and self.pause_s and self.reported_at is not None:
            retry_at = self.reported_at + self.pause_s
        return Done("", error=error, reason=message[:REASON] or str(data.get("terminal_reason")), retry_at=retry_at)


def _error(data: dict[str, Any], message: str) -> ErrorClass:
    match data.get("subtype"), data.get("terminal_reason"):
        case "error_max_budget_usd", _:
            return ErrorClass.OVER_BUDGET
        case "error_max_turns", _:
            return ErrorClass.TIMED_OUT
        case _, "aborted_tools" | "aborted_streaming":
            return ErrorClass.KILLED
        case "error_max_structured_output_retries", _:
            return ErrorClass.BAD_OUTPUT
        case _:
            return class_of(message, status(data, "api_error_status"))


def _tokens(usage: dict[str, Any]) -> Usage:
    cached = count(usage, "cache_read_input_tokens")
    everything = count(usage, "input_tokens") + count(usage, "cache_creation_input_tokens") + cached
    return Usage(everything, count(usage, "output_tokens"), cached)


def _cost(data: dict[str, Any]) -> Usage:
    """What this dispatch cost: the total of a continued session holds its earlier dispatches too."""
    usage = _tokens(table(data, "usage"))
    recent = data.get("model_usage_since_last_result")
    # An empty one is a dispatch without a token; older versions leave it out.
    models = recent if isinstance(recent, dict) else table(data, "modelUsage")
    if not models and recent is None:
        return Usage(usage.input, usage.output, usage.cached, money(data, "total_cost_usd"))
    parts = []
    for name, one in models.items():
        if not isinstance(one, dict):
            continue
        if one.get("costBasis", "list") != "unknown":
            parts.append(Usage(cost_usd=money(one, "costUSD")))
            continue
        cached, written = count(one, "cacheReadInputTokens"), count(one, "cacheCreationInputTokens")
        tokens = Usage(count(one, "inputTokens") + cached + written, count(one, "outputTokens"), cached)
        parts.append(usage_with_cost(tokens, None, text(one, "canonicalModel") or name, written))
    whole = usage_sum(*parts)
    return replace(usage, cost_usd=whole.cost_usd, priced=whole.priced)


def _time(stamp: str) -> float | None:
    try:
        return datetime.fromisoformat(stamp).timestamp() if stamp else None
    except ValueError:
        return None


ADAPTER = ClaudeAdapter
