"""Codex: `codex exec --json`. It reports tokens, not money, and confines its commands itself.

Its stream reports tokens at the end of a turn; its record of the session, the rollout, after every response of the
model.
"""

from __future__ import annotations

import json
import re
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
    ToolFinished,
    ToolStarted,
    UsageFileNames,
)
from windlass.agents.cli.account import Account, CliAdapter
from windlass.agents.cli.base import (
    KEY_VARIABLE,
    CliSettings,
    activity,
    count,
    here,
    load,
    may_write,
    rows,
    table,
    text,
    usage_with_cost,
)
from windlass.agents.cli.failures import REASON, class_of, was_cut
from windlass.agents.cli.tally import Tally
from windlass.model import ErrorClass, Usage

TESTED = "0.166.0"
INSTALL = "npm install -g @openai/codex"
ACCOUNT = Account(
    variables=("OPENAI_API_KEY", "CODEX_API_KEY", "OPENAI_BASE_URL", "OPENAI_ORGANIZATION", "OPENAI_PROJECT"),
    files=("auth.json",), folder=".codex", folder_variable="CODEX_HOME", sessions="sessions", key="CODEX_API_KEY",
)  # fmt: skip
_EFFORTS = {"off": "none", "max": "xhigh"}
_PROVIDER = "windlass"
#: codex's default model has no tools on another server
_MODEL = "gpt-5"
_ROOM = (
    "analytics.enabled=false",
    "project_doc_max_bytes=0",
    "skills.include_instructions=false",
    "skills.bundled.enabled=false",
    'approval_policy="never"',
    'web_search="disabled"',
    # a login shell reads the machine's profile, which resets PATH and drops the project's tools
    "allow_login_shell=false",
    # all of /tmp would be writable; the dispatch has its own temporary folder
    "sandbox_workspace_write.exclude_slash_tmp=true",
)


#: the log lines about retries, in addition to its errors
_LOG = "error,codex_core::responses_retry=warn"
_LOGGED = re.compile(r"\d{4}-\d\d-\d\dT\S+Z\s+WARN .*codex_core::responses_retry: ")
_WAITING = re.compile(r"\(\d+/\d+ in ([\d.]+)s\)\.\.\..*?sampling_error=(.*)")
_RECONNECTING = re.compile(r"Reconnecting\.\.\. \d+/\d+ \((.*)\)", re.DOTALL)


class CodexAdapter(CliAdapter):
    name = "codex"
    capabilities = Capabilities(resume=True, cost="tokens", read_only=True, effort=True, sandbox=True)
    account = ACCOUNT

    def invocation(self, job: Job) -> Invocation:
        settings = self.settings.for_job(job)
        temporary = job.folder / "tmp"
        env = {"CODEX_HOME": str(job.folder / "home"), "TMPDIR": str(temporary), "RUST_LOG": _LOG}
        env |= self.login(settings)
        # without --disable every offline run waits five seconds at its end
        flags = ["--json", "--ignore-user-config", "--ignore-rules", "--skip-git-repo-check"]
        flags += ["--disable", "apps", "--disable", "plugins"]
        flags += [part for one in _ROOM for part in ("-c", one)]
        if settings.sandbox == "off" and may_write(job):
            flags += ["--dangerously-bypass-approvals-and-sandbox"]
        else:
            flags += ["-c", f'sandbox_mode="{"workspace-write" if may_write(job) else "read-only"}"']
            flags += _writable_roots(job) if may_write(job) else []
        model, effort = _model(job, settings), _EFFORTS.get(job.effort, job.effort)
        flags += ["-m", model] if model else []
        flags += ["-c", f"model_reasoning_effort={json.dumps(effort)}"] if effort else []
        flags += ["-c", f"developer_instructions={json.dumps(job.system)}"] if job.system else []
        flags += _server(settings.base_url) if settings.base_url else []
        flags += ["resume", job.session] if job.session else []
        return Invocation(
            (*settings.command("codex"), "exec", *flags, "-"),
            stdin=job.prompt,
            env=env,
            files={"home/.keep": "", "tmp/.keep": ""},
            carried=self.carried(job, settings),
        )

    def reader(self, job: Job) -> CodexReader:
        return CodexReader(job, _model(job, self.settings.for_job(job)))

    def parse(self, line: str) -> list[AgentEvent]:
        return CodexReader().parse(line)


def _model(job: Job, settings: CliSettings) -> str:
    return job.model or settings.model or (_MODEL if settings.base_url else "")


def _writable_roots(job: Job) -> list[str]:
    """Its sandbox protects some folders of the workspace. The one of a declared output must be writable."""
    tops = sorted({path.partition("/")[0] for path in job.outs.values()} & {".agents", ".codex"})
    roots = json.dumps([str(job.cwd / top) for top in tops])
    return ["-c", f"sandbox_workspace_write.writable_roots={roots}"] if tops else []


def _server(base_url: str) -> list[str]:
    url = base_url if base_url.endswith("/v1") else f"{base_url}/v1"
    values = {
        "name": _PROVIDER,
        "base_url": url,
        "wire_api": "responses",
        "env_key": KEY_VARIABLE,
        "request_max_retries": 1,
        "stream_max_retries": 1,
    }
    fields = ",".join(f"{name}={json.dumps(value)}" for name, value in values.items())
    return ["-c", f"model_provider={_PROVIDER}", "-c", f"model_providers.{_PROVIDER}={{{fields}}}"]


class CodexReader(Struct):
    job: Job | None = None
    model: str = ""
    answer: str = ""
    trouble: str = ""
    open: set[str] = field(default_factory=set)
    heard: bool = False
    """The model answered, though no event shows it."""
    broken_responses: int = 0
    """Responses that broke off, so that the CLI asked again. It never reports their cost."""
    tally: Tally = field(default_factory=Tally)

    def ledger(self) -> UsageFileNames:
        return UsageFileNames(f"{ACCOUNT.room}/{ACCOUNT.sessions}", "*/*/*/rollout-*.jsonl")

    def parse_ledger(self, line: str) -> list[AgentEvent]:
        """Counts each response by its id: the totals leave out what a kill cut off, and continue in a later turn."""
        data = load(line)
        payload = table(data, "payload")
        match data.get("type"):
            case "turn_context":
                self.model = self.model or text(payload, "model")
                return []
            case "token_usage_record":
                return self.tally.response(text(payload, "response_id"), self._usage(table(payload, "usage")))
            case _:
                return []

    def parse(self, line: str) -> list[AgentEvent]:
        data = load(line)
        match data.get("type"):
            case "thread.started":
                return [SessionSeen(text(data, "thread_id"))]
            case "item.started":
                self.heard = True
                item = table(data, "item")
                tool = _tool(item, self.job)
                if tool is None:
                    return []
                self.answer = ""  # text before a tool call is not the answer
                self.open.add(text(item, "id"))
                return [ToolStarted(*tool, id=text(item, "id"))]
            case "item.completed":
                self.heard = self.heard or table(data, "item").get("type") != "error"
                return self._item_end(table(data, "item"))
            case "turn.completed":
                counts = table(data, "usage")
                if not counts or (self.job and self.job.session):
                    # For a continued session it reports the tokens of the whole thread, with those already counted.
                    return [Done(self.answer)]
                return [*self.tally.final_total(self._usage(counts)), Done(self.answer)]
            case "turn.failed":
                return [_failure(text(table(data, "error"), "message") or self.trouble)]
            case "error":
                self.trouble = text(data, "message") or self.trouble
                again = _RECONNECTING.match(text(data, "message"))
                if again is None:
                    return []
                self.broken_responses += was_cut(again[1])
                return [_retry(again[1])]
            case _:
                return []

    def parse_error(self, line: str) -> list[AgentEvent]:
        """The stream reports a retry; only the log has its time."""
        found = _WAITING.search(line) if _LOGGED.match(line) else None
        return [_retry(found[2], float(found[1]))] if found else []

    def without_log(self, stderr: str) -> str:
        return "\n".join(line for line in stderr.splitlines() if not _LOGGED.match(line))

    def at_exit(self, text: str, code: int | None) -> Done | None:
        """It can give up before its first turn: an error without the end of a turn."""
        return _failure(self.trouble) if self.trouble else None

    def _item_end(self, item: dict[str, Any]) -> list[AgentEvent]:
        if item.get("type") == "agent_message":
            self.answer = text(item, "text")
            return [Said(self.answer)] if self.answer.strip() else []
        found, id = _tool(item, self.job), text(item, "id")
        if found is None:
            return []
        ok = item.get("status") not in ("failed", "declined")
        why = "" if ok else text(item, "aggregated_output")[-REASON:]
        begun: list[AgentEvent] = [] if id in self.open else [ToolStarted(*found, id=id)]
        self.open.discard(id)
        return [*begun, ToolFinished(found[0], ok, why, id)]

    def _usage(self, counts: dict[str, Any]) -> Usage:
        sent, cached = count(counts, "input_tokens"), count(counts, "cached_input_tokens")
        usage = Usage(sent, count(counts, "output_tokens"), cached)
        return usage_with_cost(usage, None, self.model)


def _retry(message: str, wait_s: float | None = None) -> Retrying:
    found = class_of(message.partition(", url: ")[0])
    return Retrying(ErrorClass.OVERLOADED if found is ErrorClass.CRASHED else found, message[:REASON], wait_s)


def _failure(message: str) -> Done:
    message = message.partition(", url: ")[0]
    return Done("", error=class_of(message), reason=message[:REASON] or "the turn failed")


def _tool(item: dict[str, Any], job: Job | None) -> tuple[str, str] | None:
    match item.get("type"):
        case "command_execution":
            return "bash", activity("bash", item, job) if job else "running"
        case "file_change":
            changes = rows(item, "changes")
            tool = "write" if changes and all(one.get("kind") == "add" for one in changes) else "edit"
            paths = ", ".join(here(text(one, "path"), job) if job else text(one, "path") for one in changes[:5])
            return tool, f"{'writing' if tool == 'write' else 'editing'} {paths}".strip()
        case "mcp_tool_call":
            return text(item, "tool") or "mcp", f"using {text(item, 'tool') or 'a tool'}"
        case "web_search":
            return "web_search", f"searching the web for {text(item, 'query')}"
        case _:
            return None


ADAPTER = CodexAdapter
