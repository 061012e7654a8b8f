"""A local model server with scripted answers, for real CLIs without an API key.

It speaks Anthropic Messages, OpenAI Responses, OpenAI Chat Completions and Gemini, with and without streaming. The
base URL of a CLI is `server.url_for("{job}")`. The first part of the path is the job's token (see
`windlass.agents.job_token`), which identifies the dispatch. The answers follow the same rules as the scripted agent,
and the server keeps every request.
"""

from __future__ import annotations

import gzip
import json
import re
import select
import threading
from collections.abc import Callable, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

from msgspec import Struct

from windlass.agents.base import Job
from windlass.agents.cli.script import MODEL_FIELDS, load_script, parse_script
from windlass.agents.contracts.registry import CONTRACTS
from windlass.agents.job_token import job_of
from windlass.model import Json
from windlass.testing.playbook import NO_JOB, Playbook, Refusal, ScriptedReply
from windlass.testing.toolbox import sample
from windlass.testing.wire import find_wire
from windlass.testing.wire.base import Asked, ModelAnswer, ServerFailure, Tokens, Wire

SECRET = ("authorization", "x-api-key", "x-goog-api-key", "api-key", "cookie")
NO_TOKENS = Tokens()
MODELS = ("scripted-model", "claude-sonnet-4-5", "gpt-5", "gemini-2.5-pro")


class Request(Struct, frozen=True):
    method: str
    path: str
    """Without the token and the query."""
    job: Job | None
    wire: str
    headers: Mapping[str, str]
    """Names in lower case; secrets are redacted."""
    body: Any
    status: int
    aside: bool = False
    """A side request of the CLI, such as the choice of a model or a name for the session."""
    at: float = 0.0
    """The time of the answer, by the server's clock."""
    served: Tokens = Tokens()
    """The billed tokens; none if the answer was refused, cut off or never completed."""

    @property
    def text(self) -> str:
        return self.body if isinstance(self.body, str) else json.dumps(self.body, ensure_ascii=False)


class ScriptedModel:
    """`with ScriptedModel(rules) as server: ... server.url ... server.requests`"""

    def __init__(
        self, rules: Sequence[Mapping[str, Json]], *, port: int = 0, clock: Callable[[], float] = lambda: 0.0
    ) -> None:
        self.clock = clock
        self._playbook = Playbook(rules, {name: contract.tags[0] for name, contract in CONTRACTS.items()})
        self._requests: list[Request] = []
        self._lock = threading.Lock()
        self._port = port
        self._server: _Server | None = None

    @classmethod
    def from_file(cls, path: Path, *, port: int = 0) -> Self:
        return cls(load_script(path, MODEL_FIELDS).rules, port=port)

    @classmethod
    def from_text(cls, text: str, *, port: int = 0) -> Self:
        return cls(parse_script(text, Path("script.yaml"), MODEL_FIELDS).rules, port=port)

    def start(self) -> Self:
        self._server = _Server(("127.0.0.1", self._port), self)
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True, name="scripted-model").start()
        return self

    def stop(self) -> None:
        if self._server:
            self._server.stopping.set()
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def url(self) -> str:
        assert self._server is not None, "start() comes first"
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def url_for(self, token: str) -> str:
        """An agent's base_url contains `{job}` in place of the token."""
        return f"{self.url}/{token}"

    @property
    def requests(self) -> list[Request]:
        with self._lock:
            return list(self._requests)

    @property
    def asked(self) -> list[Request]:
        """Requests to a model, without side requests."""
        return [request for request in self.requests if request.wire and not request.aside]

    def keep(self, request: Request) -> None:
        with self._lock:
            self._requests.append(request)

    def reply(self, job: Job, asked: Asked) -> ScriptedReply | Refusal:
        if asked.aside is not None:
            return ScriptedReply(ModelAnswer("aside", asked.model, json.dumps(sample("", asked.aside))))
        return self._playbook.reply(job, asked)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, address: tuple[str, int], model: ScriptedModel) -> None:
        super().__init__(address, _Handler)
        self.model = model
        self.stopping = threading.Event()

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore broken connections of killed CLIs."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        self._take(None)

    def do_HEAD(self) -> None:
        self._take(None)

    def do_POST(self) -> None:
        length = int(self.headers.get("content-length") or 0)
        raw = self.rfile.read(length) if length else b""
        if not length and "chunked" in (self.headers.get("transfer-encoding") or ""):
            while size := int(self.rfile.readline().split(b";")[0] or b"0", 16):
                raw += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        is_packed = self.headers.get("content-encoding") == "gzip"
        text = (gzip.decompress(raw) if is_packed else raw).decode("utf-8", "replace")
        try:
            body = json.loads(text)
        except ValueError:
            body = text
        self._take(body)

    def _take(self, body: Any) -> None:
        path = urlsplit(self.path).path
        found = find_wire(path) if self.command == "POST" else None
        if found is None:
            status, answer = _side_answer(path, body)
            self._keep(path, body, status)
            return self._json(status, answer)
        prefix, endpoint, wire = found
        job = job_of(prefix)
        if prefix and job is None and "~" in prefix:
            failure = ServerFailure(400, "invalid_request_error", f"'{prefix}' is not a job token")
            return self._fail(Refusal(failure), wire, body, endpoint, job)
        asked = wire.read(endpoint, body if isinstance(body, dict) else {})
        reply = self.server.model.reply(job or NO_JOB, asked)
        self.server.stopping.wait(reply.delay)
        if isinstance(reply, Refusal):
            return self._fail(reply, wire, body, endpoint, job)
        served = Tokens() if reply.hang or reply.cut_after is not None else reply.answer.tokens
        self._keep(endpoint, body, 200, wire.name, job, aside=asked.aside is not None, served=served)
        if asked.stream:
            return self._stream(reply, wire)
        if reply.hang:
            return self._hang()
        return self._json(200, wire.whole(reply.answer))

    def _keep(
        self,
        path: str,
        body: Any,
        status: int,
        wire: str = "",
        job: Job | None = None,
        *,
        aside: bool = False,
        served: Tokens = NO_TOKENS,
    ) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        clean = {name: "(redacted)" if name in SECRET else value for name, value in headers.items()}
        model = self.server.model
        model.keep(Request(self.command, path, job, wire, clean, body, status, aside, model.clock(), served))

    def _fail(self, refusal: Refusal, wire: Wire, body: Any, endpoint: str, job: Job | None) -> None:
        self._keep(endpoint, body, refusal.failure.status, wire.name, job)
        self._json(refusal.failure.status, wire.failure(refusal.failure), refusal.headers)

    def _json(self, status: int, data: Any, headers: Mapping[str, str] | None = None) -> None:
        raw = json.dumps(data, ensure_ascii=False).encode()
        self.send_response(status)
        for name, value in {"content-type": "application/json", **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(raw)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(raw)

    def _stream(self, reply: ScriptedReply, wire: Wire) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream; charset=utf-8")
        self.send_header("cache-control", "no-cache")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        sent = 0
        for event in wire.stream(reply.answer):
            raw = event.encode()
            if reply.cut_after is not None and sent + len(raw) > reply.cut_after:
                self._chunk(raw[: reply.cut_after - sent])
                self.close_connection = True
                return
            self._chunk(raw)
            sent += len(raw)
            if reply.hang:
                self._hang()
                return
        self.wfile.write(b"0\r\n\r\n")

    def _chunk(self, raw: bytes) -> None:
        if raw:
            self.wfile.write(f"{len(raw):x}\r\n".encode() + raw + b"\r\n")
            self.wfile.flush()

    def _hang(self) -> None:
        """Wait until the server stops or the client disconnects."""
        self.close_connection = True
        while not self.server.stopping.is_set():
            readable, _, _ = select.select([self.connection], [], [], 0.2)
            if readable and not self.connection.recv(1):
                return


def _side_answer(path: str, body: Any) -> tuple[int, dict[str, Any]]:
    """The answer to a request that does not go to a model: token counts, lists of models, health checks."""
    if re.search(r"/count_tokens$", path):
        return 200, {"input_tokens": _length(body)}
    if path.endswith(":countTokens"):
        return 200, {"totalTokens": _length(body)}
    if re.search(r"/models$", path):
        listed = [{"id": name, "object": "model", "type": "model", "name": f"models/{name}"} for name in MODELS]
        return 200, {"object": "list", "data": listed, "models": listed, "has_more": False}
    if path.count("/") <= 1 or job_of(path.strip("/")):
        return 200, {}
    return 404, {"error": {"type": "not_found_error", "message": f"the scripted model has no '{path}'"}}


def _length(body: Any) -> int:
    return len(json.dumps(body)) // 4
