"""Gemini CLI: `gemini --output-format stream-json`. It reports tokens, not money.

Its stream reports tokens at its end; its record of the chat, after every response of the model.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
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
    ToolFinished,
    ToolStarted,
    UsageFileNames,
)
from windlass.agents.cli.account import Account, CliAdapter
from windlass.agents.cli.base import (
    activity,
    count,
    load,
    table,
    text,
    tools_of,
    usage_sum,
    usage_with_cost,
)
from windlass.agents.cli.failures import REASON, class_of
from windlass.agents.cli.tally import Tally
from windlass.model import ErrorClass, Json, Usage

TESTED = "0.61.0"
INSTALL = "npm install -g @google/gemini-cli (Node 20 or newer)"
ACCOUNT = Account(
    variables=("GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_GENAI_USE_VERTEXAI", "GOOGLE_GENAI_USE_GCA",
               "GOOGLE_CLOUD_PROJECT", "GOOGLE_CLOUD_LOCATION", "GOOGLE_APPLICATION_CREDENTIALS",
               "GOOGLE_CLOUD_ACCESS_TOKEN"),
    files=("oauth_creds.json",), extra_files=("google_accounts.json", "installation_id"), folder=".gemini",
    room="home/.gemini", sessions="tmp", key="GEMINI_API_KEY", server="GOOGLE_GEMINI_BASE_URL",
)  # fmt: skip
_TOOLS = {
    "read": ("read_file", "read_many_files"),
    "grep": ("grep_search",),
    "find": ("glob",),
    "ls": ("list_directory",),
    "bash": ("run_shell_command",),
    "write": ("write_file",),
    "edit": ("replace",),
}
_NAMES = {name: tool for tool, names in _TOOLS.items() for name in names} | {"search_file_content": "grep"}
#: input, output and total: in the stream, and in the recorded chat
_STREAMED = ("input_tokens", "output_tokens", "total_tokens")
_RECORDED = ("input", "output", "total")
_ATTEMPT = re.compile(r"Attempt \d+ failed(?: with)?:?\s*(.*)")
_AGAIN = re.compile(r"Retrying (?:after (\d+)\s*ms|with backoff)")
_SUGGESTED = re.compile(r"retry after (\d+(?:\.\d+)?)\s*s\b")
_TURN_LIMIT = "FatalTurnLimitedError"


class GeminiAdapter(CliAdapter):
    name = "gemini"
    capabilities = Capabilities(resume=True, cost="tokens", read_only=True)
    account = ACCOUNT
    waits_for_output = True

    def invocation(self, job: Job) -> Invocation:
        settings = self.settings.for_job(job)
        login = self.login(settings)
        files = {"home/.gemini/settings.json": json.dumps(_settings(job, login))}
        env = {"HOME": str(job.folder / "home"), "GEMINI_CLI_NO_RELAUNCH": "true"}
        home = self.environ.get("HOME")
        # Its only folder is the home folder; git must still know the user's name.
        env |= {"GIT_CONFIG_GLOBAL": f"{home}/.gitconfig"} if home else {}
        env |= login
        if job.system:
            files["system.md"] = job.system
            env["GEMINI_SYSTEM_MD"] = str(job.folder / "system.md")
        flags = ["--output-format", "stream-json", "--approval-mode", "yolo", "--skip-trust", "--extensions", "none"]
        model = job.model or settings.model
        flags += ["-m", model] if model else []
        flags += ["--resume", job.session] if job.session else []
        return Invocation(
            (*settings.command("gemini"), *flags),
            stdin=job.prompt,
            env=env,
            files=files,
            carried=self.carried(job, settings),
        )

    def reader(self, job: Job) -> GeminiReader:
        return GeminiReader(job, job.model or self.settings.for_job(job).model)

    def parse(self, line: str) -> list[AgentEvent]:
        return GeminiReader().parse(line)


def _settings(job: Job, login: Mapping[str, str]) -> dict[str, Json]:
    if "GEMINI_API_KEY" in login:
        auth = "gemini-api-key"
    else:
        auth = "vertex-ai" if "GOOGLE_GENAI_USE_VERTEXAI" in login or "GOOGLE_API_KEY" in login else "oauth-personal"
    core: list[Json] = [name for tool in tools_of(job) for name in _TOOLS.get(tool, ())]
    general: dict[str, Json] = {"maxAttempts": 2, "disableAutoUpdate": True, "enableAutoUpdate": False}
    settings: dict[str, Json] = {
        "general": general,
        "tools": {"core": core},
        "security": {"auth": {"selectedType": auth}},
        "privacy": {"usageStatisticsEnabled": False},
        "telemetry": {"enabled": False},
    }
    if job.limits.turns:
        settings["model"] = {"maxSessionTurns": job.limits.turns}
    return settings


class GeminiReader(Struct):
    job: Job | None = None
    model: str = ""
    """The requested model, until a reply names another one; not every reply names one."""
    answer: list[str] = field(default_factory=list)
    """The text since the last tool call."""
    heard: bool = False
    """The model answered, though no event shows it yet."""
    tools: dict[str, str] = field(default_factory=dict)
    trouble: str = ""
    failing: str = ""
    """Why a request failed, before the CLI retries it."""
    retrying: Retrying | None = None
    """The last failure since the model's last answer: the final event may lack the status."""
    tally: Tally = field(default_factory=Tally)

    def ledger(self) -> UsageFileNames:
        return UsageFileNames(f"{ACCOUNT.room}/{ACCOUNT.sessions}", "*/chats/session-*.jsonl")

    def parse_ledger(self, line: str) -> list[AgentEvent]:
        data = load(line)
        if data.get("type") != "gemini":
            return []
        usage = _tokens(table(data, "tokens"), *_RECORDED)
        self.model = text(data, "model") or self.model
        return self.tally.response(text(data, "id"), usage_with_cost(usage, None, self.model))

    def parse(self, line: str) -> list[AgentEvent]:
        data = load(line)
        match data.get("type"):
            case "init":
                self.model = text(data, "model") or self.model
                return [SessionSeen(text(data, "session_id"))]
            case "message" if data.get("role") == "assistant":
                self.heard = True
                self.retrying = None
                self.answer.append(text(data, "content"))
                return []
            case "tool_use":
                self.retrying = None
                name, id = text(data, "tool_name"), text(data, "tool_id")
                tool = self.tools[id] = _NAMES.get(name, name)
                words = activity(tool, table(data, "parameters"), self.job) if self.job else tool
                return [*self._text_event(), ToolStarted(tool, words, id)]
            case "tool_result":
                ok, id = data.get("status") != "error", text(data, "tool_id")
                why = "" if ok else (text(table(data, "error"), "message") or text(data, "output"))[:REASON]
                return [ToolFinished(self.tools.pop(id, ""), ok, why, id)]
            case "error":
                self.trouble = text(data, "message") or self.trouble
                return []
            case "result":
                return self._result(data)
            case _:
                return []

    def parse_error(self, line: str) -> list[AgentEvent]:
        """Only its standard error reports a retry: `Attempt 1 failed: WHY. Retrying after 41743ms...`. WHY may take
        several lines."""
        begun = _ATTEMPT.match(line)
        if begun:
            self.failing = begun[1]
        found = _AGAIN.search(line)
        if not found:
            return []
        why = (self.failing or line).partition(". Retrying ")[0]
        suggested = _SUGGESTED.search(line)
        wait_s = float(suggested[1]) if suggested else float(found[1]) / 1000 if found[1] else None
        known = class_of(why)
        error = ErrorClass.OVERLOADED if known is ErrorClass.CRASHED else known
        self.failing = ""
        self.retrying = Retrying(error, why[:REASON], wait_s, told=suggested is not None)
        return [self.retrying]

    def without_log(self, stderr: str) -> str:
        return stderr

    def at_exit(self, text: str, code: int | None) -> Done | None:
        return _failure(self.trouble) if self.trouble else None

    def _text_event(self) -> list[AgentEvent]:
        """The text comes in pieces; the next event completes it."""
        answer = "".join(self.answer)
        self.answer.clear()
        return [Said(answer)] if answer.strip() else []

    def _result(self, data: dict[str, Any]) -> list[AgentEvent]:
        answer = "".join(self.answer)
        stats = table(data, "stats")
        models = {
            name: _tokens(one, *_STREAMED) for name, one in table(stats, "models").items() if isinstance(one, dict)
        }
        used = {name: usage for name, usage in models.items() if usage.input or usage.output}
        # The stats may leave out the models.
        used = used or {self.model: _tokens(stats, *_STREAMED)}
        spent = self.tally.final_total(usage_sum(*(usage_with_cost(usage, None, name) for name, usage in used.items())))
        if data.get("status") == "success" and not (self.trouble and not answer.strip()):
            return [*self._text_event(), *spent, Done(answer)]
        # A run that it cut short itself ("Loop detected") is reported as a success without text.
        error = table(data, "error")
        message = text(error, "message") or self.trouble
        if text(error, "type") == _TURN_LIMIT:
            return [*spent, Done("", error=ErrorClass.TIMED_OUT, reason=message[:REASON])]
        failed = _failure(message)
        if failed.error is ErrorClass.CRASHED and self.retrying:
            failed = replace(failed, error=self.retrying.error)
        return [*spent, failed]


def _failure(message: str) -> Done:
    return Done("", error=class_of(message), reason=message[:REASON] or "failed")


def _tokens(counts: dict[str, Any], *names: str) -> Usage:
    # thoughts cost as output, and only the total includes them
    sent = count(counts, names[0])
    return Usage(sent, max(count(counts, names[1]), count(counts, names[2]) - sent), count(counts, "cached"))


ADAPTER = GeminiAdapter
