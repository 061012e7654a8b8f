"""opencode: `opencode run --format json`. No event begins or ends its stream: the end of the last step is the end."""

from __future__ import annotations

import json
import math
from typing import Any

from msgspec import Struct, field

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
from windlass.agents.cli import opencode_log
from windlass.agents.cli.account import Account, CliAdapter
from windlass.agents.cli.base import (
    KEY_VARIABLE,
    CliSettings,
    activity,
    count,
    load,
    money,
    status,
    table,
    text,
    tools_of,
    usage_sum,
    usage_with_cost,
)
from windlass.agents.cli.failures import REASON, class_of
from windlass.model import ErrorClass, Json, Usage

TESTED = "1.18.33"
INSTALL = "npm install -g opencode-ai"
ACCOUNT = Account(
    variables=("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", "GOOGLE_GENERATIVE_AI_API_KEY",
               "OPENROUTER_API_KEY", "OPENCODE_API_KEY", "GROQ_API_KEY", "XAI_API_KEY", "DEEPSEEK_API_KEY",
               "MISTRAL_API_KEY", "GITHUB_TOKEN", "AWS_PROFILE", "AWS_REGION", "AWS_ACCESS_KEY_ID",
               "AWS_SECRET_ACCESS_KEY", "AWS_BEARER_TOKEN_BEDROCK"),
    files=("auth.json",), folder=".local/share/opencode", folder_variable="XDG_DATA_HOME", below="/opencode",
    room="home/data/opencode", provider="opencode",
)  # fmt: skip
#: after a cut stream of the model it retries at once, for ever
CUT_STREAMS = 3
_AGENT = _PROVIDER = "windlass"
_MODEL = "model"
_SWITCHED_OFF = ("AUTOUPDATE", "MODELS_FETCH", "DEFAULT_PLUGINS", "LSP_DOWNLOAD", "CLAUDE_CODE", "EXTERNAL_SKILLS",
                 "PROJECT_CONFIG")  # fmt: skip
_TOOLS = {"read": "read", "grep": "grep", "find": "glob", "ls": "list", "bash": "bash", "write": "edit", "edit": "edit"}
_NAMES = {"glob": "find", "list": "ls", "patch": "edit", "multiedit": "edit", "apply_patch": "edit"}


class OpencodeAdapter(CliAdapter):
    name = "opencode"
    capabilities = Capabilities(resume=True, cost="stream", read_only=True, effort=True)
    account = ACCOUNT
    waits_for_output = True

    def invocation(self, job: Job) -> Invocation:
        settings = self.settings.for_job(job)
        room = {f"XDG_{name.upper()}_HOME": str(job.folder / "home" / name) for name in _FOLDERS}
        room |= {f"OPENCODE_DISABLE_{name}": "1" for name in _SWITCHED_OFF} | {"OPENCODE_PURE": "1"}
        # Only its log reports the start of a tool and the retry of a failing server.
        flags = ["run", "--print-logs", "--log-level", "INFO", "--format", "json", "--pure"]
        flags += ["--dir", str(job.cwd), "--agent", _AGENT]
        model = job.model or settings.model or (_MODEL if settings.base_url else "")
        provider = _PROVIDER if settings.base_url else settings.provider
        flags += ["--model", f"{provider}/{model}" if provider else model] if model else []
        flags += ["--variant", job.effort] if job.effort else []
        flags += ["--session", job.session] if job.session else ["--title", job.key]
        return Invocation(
            (*settings.command("opencode"), *flags),
            stdin=job.prompt,
            env={**room, "OPENCODE_CONFIG_CONTENT": json.dumps(_config(job, settings)), **self.login(settings)},
            files={f"home/{name}": text for name, text in _FILES.items()},
            carried=self.carried(job, settings),
        )

    def reader(self, job: Job) -> OpencodeReader:
        return OpencodeReader(job, job.model or self.settings.for_job(job).model)

    def parse(self, line: str) -> list[AgentEvent]:
        return OpencodeReader().parse(line)


_FOLDERS = ("config", "data", "state", "cache")
#: otherwise it fetches a package for plug-ins from the npm registry, in every dispatch
INSTALLED = {
    "opencode/node_modules/.keep": "",
    "opencode/package-lock.json": json.dumps({"packages": {"": {"dependencies": {"@opencode-ai/plugin": "*"}}}}),
}
_FILES = {f"{name}/.keep": "" for name in _FOLDERS} | {f"config/{name}": text for name, text in INSTALLED.items()}


def _config(job: Job, settings: CliSettings) -> dict[str, Json]:
    tools = tools_of(job)
    # An unnamed tool is denied: a question would wait for ever.
    allowed: dict[str, Json] = {"*": "deny"}
    allowed |= {_TOOLS[tool]: "allow" for tool in tools if tool in _TOOLS}
    allowed |= {"external_directory": "allow"} if "bash" in tools else {}
    own: dict[str, Json] = {"mode": "primary", "permission": allowed}
    own |= {"prompt": job.system} if job.system else {}
    config: dict[str, Json] = {"agent": {_AGENT: own}, "share": "disabled", "autoupdate": False, "snapshot": False}
    if not settings.base_url:
        return config
    url = settings.base_url if settings.base_url.endswith("/v1") else f"{settings.base_url}/v1"
    server: dict[str, Json] = {
        "npm": "@ai-sdk/openai-compatible",
        "options": {"baseURL": url, "apiKey": f"{{env:{KEY_VARIABLE}}}"},
        "models": {job.model or settings.model or _MODEL: {"limit": {"context": 200_000, "output": 32_000}}},
    }
    return {**config, "provider": {_PROVIDER: server}}


class OpencodeReader(Struct):
    job: Job | None = None
    model: str = ""
    session: str = ""
    answer: list[str] = field(default_factory=list)
    """The text of this step."""
    spent: Usage | None = None
    in_step: bool | None = None
    """A step has begun and its cost is not reported yet. That comes after the tools of the step."""
    sent: int = 0
    """Requests to the model, according to the log."""
    ended: int = 0
    """Requests that failed, and steps that ended."""
    cut: int = 0
    """Steps in a row that the model did not end."""
    broken_responses: int = 0
    """Steps that the model did not end, and whose cost is therefore unknown."""
    begun: set[str] = field(default_factory=set)
    """Permissions of running tools, according to the log."""

    @property
    def asking(self) -> bool | None:
        """A response may be on its way or unreported. On a busy machine the stream is late, so the log decides."""
        return self.sent > self.ended if self.sent else self.in_step

    def parse(self, line: str) -> list[AgentEvent]:
        data = load(line)
        part, session = table(data, "part"), self._session_event(text(data, "sessionID"))
        match data.get("type"):
            case "step_start":
                self.in_step = True
                self.answer.clear()
                return session
            case "text":
                self.answer.append(text(part, "text"))
                return [*session, Said(text(part, "text"))]
            case "tool_use":
                return [*session, *self._tool(part)]
            case "step_finish":
                self.in_step = False
                self.ended += 1
                return [*session, *self._finish(part)]
            case "error":
                return [*session, _failure(data)]
            case _:
                return session

    def parse_error(self, line: str) -> list[AgentEvent]:
        known = opencode_log.fields(line)
        self.sent += opencode_log.is_request(known)
        trouble = opencode_log.retry_event(known)
        if trouble:
            self.ended += 1
            return [trouble]
        # The stream names the session only with its first step, which may never end.
        session = self._session_event(known.get("session.id", "")) if known.get("message") == "loop" else []
        permission, what = opencode_log.permission_request(known) or ("", "")
        # Only the first permission of a tool is its start: a command of several parts asks for each.
        if permission not in _TOOLS.values() or permission in self.begun:
            return session
        self.begun.add(permission)
        tool = _NAMES.get(permission, permission)
        given = {"command": what, "pattern": what, "path": what}
        return [*session, ToolStarted(tool, activity(tool, given, self.job) if self.job else tool)]

    def without_log(self, stderr: str) -> str:
        return opencode_log.without_log(stderr)

    def _session_event(self, session: str) -> list[AgentEvent]:
        if not session or session == self.session:
            return []
        self.session = session
        return [SessionSeen(session)]

    def _tool(self, part: dict[str, Any]) -> list[AgentEvent]:
        """The stream reports a tool at its end; the log may report its start."""
        state, id, name = table(part, "state"), text(part, "callID"), text(part, "tool")
        given = table(state, "input")
        ok = state.get("status") != "error" and name != "invalid"
        tool = _NAMES.get(name, name) if name != "invalid" else text(given, "tool").lower()
        words = activity(tool, given, self.job) if self.job else tool
        why = "" if ok else (text(state, "error") or text(given, "error") or text(state, "output"))[:REASON]
        ended = ToolFinished(tool, ok, why, id)
        permission = _TOOLS.get(tool, tool)
        if permission not in self.begun:
            return [ToolStarted(tool, words, id), ended]
        self.begun.discard(permission)
        return [ended]

    def _finish(self, part: dict[str, Any]) -> list[AgentEvent]:
        tokens = table(part, "tokens")
        cached, written = count(table(tokens, "cache"), "read"), count(table(tokens, "cache"), "write")
        spoken = count(tokens, "output") + count(tokens, "reasoning")
        own = Usage(count(tokens, "input") + cached + written, spoken, cached)
        spent: list[AgentEvent] = []
        # It reports 0 for a step when the model reported no usage.
        if own.input or own.output:
            self.spent = usage_sum(self.spent, usage_with_cost(own, money(part, "cost"), self.model, written))
            spent = [Spent(self.spent, total=True)]
        match part.get("reason"):
            case "tool-calls":
                self.cut = 0
                return spent
            case "unknown" | None:
                self.cut += 1
                self.broken_responses += not spent
                if self.cut != CUT_STREAMS:
                    return spent
                reason = f"the model's stream was cut {self.cut} times in a row"
                return [*spent, Done("", error=ErrorClass.OVERLOADED, reason=reason)]
            case "length":
                reason = "the answer was cut at the model's output limit"
                return [*spent, Done("", error=ErrorClass.BAD_OUTPUT, reason=reason)]
            case "content-filter":
                return [*spent, Done("", error=ErrorClass.REFUSED, reason="the answer was filtered")]
            case "error":
                return [*spent, Done("", error=ErrorClass.OVERLOADED, reason="the model's answer ended in an error")]
            case "stop":
                return [*spent, Done("\n".join(self.answer))]
            case other:
                return [*spent, Done("", error=ErrorClass.CRASHED, reason=f"ended without an answer ({other})")]


def _failure(data: dict[str, Any]) -> Done:
    error = table(data, "error")
    details = table(error, "data")
    message = text(details, "message") or text(error, "name") or "failed"
    found = class_of(f"{text(error, 'name')} {message} {text(details, 'responseBody')}", status(details, "statusCode"))
    if text(error, "name") == "MessageAbortedError":
        found = ErrorClass.KILLED
    try:
        wait = float(text(table(details, "responseHeaders"), "retry-after") or "nan")
    except ValueError:
        wait = math.nan
    failed_at = count(data, "timestamp") / 1000
    return Done(
        "",
        error=found,
        reason=f"{details.get('statusCode') or ''} {message}".strip()[:REASON],
        retry_at=failed_at + wait if failed_at and 0 <= wait < 1e7 else None,
    )


ADAPTER = OpencodeAdapter
