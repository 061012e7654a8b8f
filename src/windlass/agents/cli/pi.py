"""pi: `pi -p --mode json`. It reports the cost of each message, and exits with 0 also when it failed."""

from __future__ import annotations

import json
from typing import Any

from msgspec import Struct, field

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
    ToolUpdated,
)
from windlass.agents.cli.account import Account, CliAdapter
from windlass.agents.cli.base import (
    KEY_VARIABLE,
    activity,
    count,
    load,
    money,
    rows,
    table,
    text,
    tools_of,
    usage_sum,
    usage_with_cost,
)
from windlass.agents.cli.failures import REASON, class_of
from windlass.model import ErrorClass, Json, Usage

TESTED = "0.87.1"
# Newer versions name packages that do not exist.
INSTALL = f"npm install -g @earendil-works/pi-coding-agent@{TESTED} (Node 22.19 or newer)"
ACCOUNT = Account(
    variables=("ANTHROPIC_API_KEY", "ANTHROPIC_OAUTH_TOKEN", "OPENAI_API_KEY", "GEMINI_API_KEY", "GROQ_API_KEY",
               "CEREBRAS_API_KEY", "XAI_API_KEY", "OPENROUTER_API_KEY", "MISTRAL_API_KEY", "DEEPSEEK_API_KEY",
               "ZAI_API_KEY", "AZURE_OPENAI_API_KEY", "AI_GATEWAY_API_KEY", "GOOGLE_CLOUD_API_KEY"),
    files=("auth.json", "models.json"), folder=".pi/agent", folder_variable="PI_CODING_AGENT_DIR", sessions="sessions",
)  # fmt: skip
_PROVIDER = "windlass"
_MODEL = "model"
_TOOLS = ("read", "grep", "find", "ls", "bash", "write", "edit")
_ROOM = {"PI_OFFLINE": "1", "PI_TELEMETRY": "0", "PI_SKIP_VERSION_CHECK": "1"}
#: Windlass waits itself, so that a person sees it. With one retry, however short, pi reports how long the server asked
#: it to wait.
_SETTINGS: dict[str, Json] = {
    "retry": {"enabled": False, "provider": {"maxRetries": 1, "maxRetryDelayMs": 1}},
    "quietStartup": True,
}
_ALONE = (
    "--no-extensions",
    "--no-skills",
    "--no-prompt-templates",
    "--no-themes",
    "--no-context-files",
    "--no-approve",
)


class PiAdapter(CliAdapter):
    name = "pi"
    capabilities = Capabilities(resume=True, cost="stream", read_only=True, effort=True)
    account = ACCOUNT

    def invocation(self, job: Job) -> Invocation:
        settings = self.settings.for_job(job)
        provider = _PROVIDER if settings.base_url else settings.provider
        model = job.model or settings.model or (_MODEL if settings.base_url else "")
        files = {"home/settings.json": json.dumps(_SETTINGS)}
        if settings.base_url:
            server: dict[str, Json] = {
                "baseUrl": settings.base_url,
                "api": settings.api or "anthropic-messages",
                "apiKey": f"${KEY_VARIABLE}",
                "models": [{"id": model, "contextWindow": 200_000, "reasoning": True}],
            }
            files["home/models.json"] = json.dumps({"providers": {_PROVIDER: server}})
        tools = [tool for tool in tools_of(job) if tool in _TOOLS]
        flags = ["-p", "--mode", "json", *_ALONE, "--tools", ",".join(tools)]
        flags += ["--provider", provider] if provider else []
        flags += ["--model", model] if model else []
        flags += ["--thinking", job.effort] if job.effort else []
        # Both flags, otherwise pi uses the user's SYSTEM.md.
        flags += ["--system-prompt", job.system or "You are a coding agent.", "--append-system-prompt", " "]
        flags += ["--session-id", job.session] if job.session else []
        return Invocation(
            (*settings.command("pi"), *flags),
            stdin=job.prompt,
            env={**_ROOM, "PI_CODING_AGENT_DIR": str(job.folder / "home"), **self.login(settings)},
            files=files,
            carried=self.carried(job, settings),
        )

    def reader(self, job: Job) -> PiReader:
        return PiReader(job)

    def parse(self, line: str) -> list[AgentEvent]:
        return PiReader().parse(line)


class PiReader(Struct):
    job: Job | None = None
    spent: Usage | None = None
    heard: bool = False
    """The model answered, though no event shows it yet."""
    last: dict[str, Any] = field(default_factory=dict)
    """The assistant's last message: only it decides whether the work succeeded."""

    def parse(self, line: str) -> list[AgentEvent]:
        if line.startswith('{"type":"message_update"'):
            # Most of the stream; each repeats all of the text before it.
            self.heard = True
            return []
        data = load(line)
        match data.get("type"):
            case "session":
                return [SessionSeen(text(data, "id"))]
            case "tool_execution_start":
                tool = text(data, "toolName").lower()
                words = activity(tool, table(data, "args"), self.job) if self.job else tool
                return [ToolStarted(tool, words, text(data, "toolCallId"))]
            case "tool_execution_update":
                return [_tool_update(data)]
            case "tool_execution_end":
                ok = data.get("isError") is not True
                why = "" if ok else " ".join(text(part, "text") for part in rows(table(data, "result"), "content"))
                return [ToolFinished(text(data, "toolName").lower(), ok, why[:REASON], text(data, "toolCallId"))]
            case "message_end":
                return self._message(table(data, "message"))
            case "auto_retry_start":
                why = text(data, "errorMessage")
                found = class_of(why)
                error = ErrorClass.OVERLOADED if found is ErrorClass.CRASHED else found
                delay_s = count(data, "delayMs") / 1000
                return [Retrying(error, why[:REASON] or "the model failed", delay_s, told=False)]
            case "agent_settled":
                return [self._end()]
            case _:
                return []

    def _message(self, message: dict[str, Any]) -> list[AgentEvent]:
        if message.get("role") != "assistant":
            return []
        self.last = message
        words = _message_text(message)
        events: list[AgentEvent] = [Said(words)] if words.strip() else []
        counts = table(message, "usage")
        cached, written = count(counts, "cacheRead"), count(counts, "cacheWrite")
        own = Usage(count(counts, "input") + cached + written, count(counts, "output"), cached)
        if own.input or own.output:
            cost = money(table(counts, "cost"), "total")
            self.spent = usage_sum(self.spent, usage_with_cost(own, cost, text(message, "model"), written))
            events.append(Spent(self.spent, total=True))
        return events

    def _end(self) -> Done:
        reason, stop = text(self.last, "errorMessage"), self.last.get("stopReason")
        match stop:
            case "error":
                return Done("", error=class_of(reason), reason=reason[:REASON] or "the model failed")
            case "aborted":
                return Done("", error=ErrorClass.KILLED, reason=reason[:REASON] or "aborted")
            case "length":
                return Done("", error=ErrorClass.BAD_OUTPUT, reason="the answer was cut at the model's output limit")
            case "stop":
                return Done(_message_text(self.last))
            case _:
                return Done("", error=ErrorClass.CRASHED, reason=f"ended without an answer ({stop or 'silent'})")


def _message_text(message: dict[str, Any]) -> str:
    return "\n".join(text(part, "text") for part in rows(message, "content") if part.get("type") == "text")


def _tool_update(data: dict[str, Any]) -> ToolUpdated:
    """Its last line: an update repeats the whole output so far."""
    partial = data.get("partialResult")
    so_far = (
        partial
        if isinstance(partial, str)
        else " ".join(text(part, "text") for part in rows(table(data, "partialResult"), "content"))
    )
    lines = so_far.rstrip().splitlines()
    return ToolUpdated(text(data, "toolName").lower(), lines[-1][:REASON] if lines else "", text(data, "toolCallId"))


ADAPTER = PiAdapter
