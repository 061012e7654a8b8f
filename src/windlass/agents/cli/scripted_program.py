"""The program behind the scripted agent: finds the first rule that may still answer, and performs it.

It uses only a little of the standard library. Its argument is a file with the rules that match this dispatch.
`<state>/counts.json` counts the answers of each rule, under a lock across processes; every start and end is a line in
`<state>/dispatches.jsonl`.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn, Self

STEP_PAUSE_S = 0.1
GIT = ("git", "-c", "user.name=Scripted Agent", "-c", "user.email=scripted@windlass.invalid", "-c", "gc.auto=0",
       "-c", "maintenance.auto=false", "-c", "commit.gpgsign=false")  # fmt: skip
UNCHANGED = (*GIT, "diff", "--cached", "--quiet")


def main() -> int:
    with open(sys.argv[1], encoding="utf-8") as file:
        spec = json.loads(file.read())
    rule = claim(spec)
    if rule is None:
        fail(64, f"no rule of {spec['source']} answers {dispatch_facts(spec)}")
    code = 70
    try:
        code = act(spec, rule)
    except (OSError, ValueError) as error:
        sys.stderr.write(f"rule {rule['n'] + 1} of {spec['source']}: {error}\n")
    settle(spec, rule, code)
    return code


def dispatch_facts(spec: dict[str, Any]) -> str:
    names = ("role", "phase", "task", "title", "cycle", "attempt", "purpose")
    return ", ".join(f"{name}={spec[name]!r}" for name in names if spec[name] not in ("", 0))


def fail(code: int, text: str) -> NoReturn:
    sys.stderr.write(text + "\n")
    sys.exit(code)


def emit(kind: str, **fields: Any) -> None:
    sys.stdout.write(json.dumps({"type": kind, **fields}) + "\n")
    sys.stdout.flush()


def claim(spec: dict[str, Any]) -> dict[str, Any] | None:
    with RuleLedger(spec["state"]) as ledger:
        for rule in spec["rules"]:
            if ledger.may_answer(rule, spec):
                ledger.claim(rule, spec)
                return dict(rule)
        ledger.log("start", spec, None)
        ledger.log("end", spec, None, code=64)
    return None


def settle(spec: dict[str, Any], rule: dict[str, Any], code: int) -> None:
    with RuleLedger(spec["state"]) as ledger:
        ledger.settle(rule, spec, code)


class RuleLedger:
    """Which rule answered which dispatch. A dispatch that never ended does not count when its step runs again."""

    def __init__(self, state: str) -> None:
        os.makedirs(state, exist_ok=True)
        self.path = os.path.join(state, "counts.json")
        self.log_path = os.path.join(state, "dispatches.jsonl")
        self.lock = open(os.path.join(state, "lock"), "a")  # noqa: SIM115 - held until __exit__

    def __enter__(self) -> Self:
        fcntl.flock(self.lock, fcntl.LOCK_EX)
        try:
            with open(self.path, encoding="utf-8") as file:
                self.claims: dict[str, dict[str, str]] = json.loads(file.read())
        except FileNotFoundError:
            self.claims = {}
        return self

    def __exit__(self, *_: object) -> None:
        self.lock.close()

    def may_answer(self, rule: dict[str, Any], spec: dict[str, Any]) -> bool:
        if rule.get("times") is None:
            return True
        mine = f"{spec['run']}:{spec['key']}@"
        claims = self.claims.get(str(rule["n"]), {})
        counted = [dispatch for dispatch, state in claims.items() if state == "ended" or not dispatch.startswith(mine)]
        return len(counted) < int(rule["times"])

    def claim(self, rule: dict[str, Any], spec: dict[str, Any]) -> None:
        self._mark(rule, spec, "running")
        self.log("start", spec, rule)

    def settle(self, rule: dict[str, Any], spec: dict[str, Any], code: int) -> None:
        self._mark(rule, spec, "ended")
        self.log("end", spec, rule, code=code)

    def _mark(self, rule: dict[str, Any], spec: dict[str, Any], state: str) -> None:
        if rule.get("times") is None:
            return
        self.claims.setdefault(str(rule["n"]), {})[f"{spec['run']}:{spec['key']}@{spec['attempt']}"] = state
        with open(self.path + ".tmp", "w", encoding="utf-8") as file:
            file.write(json.dumps(self.claims))
        os.replace(self.path + ".tmp", self.path)

    def log(self, event: str, spec: dict[str, Any], rule: dict[str, Any] | None, **more: Any) -> None:
        names = ("run", "key", "attempt", "role", "purpose", "phase", "task", "cycle")
        line = {"event": event, **{name: spec[name] for name in names}, "rule": rule["n"] + 1 if rule else None}
        with open(self.log_path, "a", encoding="utf-8") as file:
            file.write(json.dumps({**line, "pid": os.getpid(), "at": time.time(), **more}) + "\n")


def act(spec: dict[str, Any], rule: dict[str, Any]) -> int:
    if rule.get("ignore_term"):
        import signal

        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    emit("session", id=f"scripted-{os.getpid()}")
    time.sleep(rule.get("sleep", 0))
    for number in range(rule.get("events", 0)):
        emit("tool", tool="bash", text=f"step {number + 1}")
        emit("tool_end", tool="bash", ok=True)
    for cost in rule.get("usage_steps", []):
        emit("usage", **{**rule.get("usage", {}), "cost_usd": cost})
        time.sleep(STEP_PAUSE_S)
    if not work(spec, rule):
        return 1
    return finish(spec, rule)


def work(spec: dict[str, Any], rule: dict[str, Any]) -> bool:
    for path, text in rule.get("files", {}).items():
        emit("tool", tool="write", text=f"writing {path}")
        write(inside(spec["cwd"], path), text)
        emit("tool_end", tool="write", ok=True)
    for path in rule.get("delete", []):
        os.unlink(inside(spec["cwd"], path))
    for command in rule.get("run", []):
        emit("tool", tool="bash", text=f"running {command}")
        code = run(("/bin/sh", "-c", command), spec["cwd"])
        emit("tool_end", tool="bash", ok=code == 0)
        if code:
            sys.stderr.write(f"'{command}' ended with code {code}\n")
            return False
    return not rule.get("commit") or commit(spec["cwd"], rule["commit"])


def finish(spec: dict[str, Any], rule: dict[str, Any]) -> int:
    # A rule that ends with an error has no text unless it sets one.
    text = rule.get("say", "" if "json" in rule or rule.get("exit") else "Done.")
    if "json" in rule:
        text = f"{text}\n\n```{spec['tag']}\n{json.dumps(rule['json'])}\n```".strip()
    if text:
        emit("say", text=text)
    if rule.get("usage"):
        emit("usage", **rule["usage"])
    while rule.get("hang"):
        time.sleep(3600)
    if rule.get("stderr"):
        sys.stderr.write(rule["stderr"] + "\n")
    code = int(rule.get("exit", 0))
    if code == 0:
        emit("done", text=text)
    return code


def inside(cwd: str, path: str) -> str:
    root = os.path.realpath(cwd)
    full = os.path.realpath(os.path.join(root, path))
    if not full.startswith(root + os.sep):
        raise ValueError(f"'{path}' is not inside the working directory")
    return full


def write(path: str, text: str) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def run(argv: tuple[str, ...], cwd: str) -> int:
    # This program's stdout is the event stream: the output of a command goes to stderr.
    os.chdir(cwd)
    pid = os.posix_spawnp(argv[0], list(argv), os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, 2, 1)])
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def commit(cwd: str, message: str) -> bool:
    emit("tool", tool="bash", text="git commit")
    staged = run((*GIT, "add", "-A"), cwd) == 0
    # With nothing to commit git fails, which is fine.
    done = staged and (run((*GIT, "commit", "-qm", message), cwd) == 0 or run(UNCHANGED, cwd) == 0)
    emit("tool_end", tool="bash", ok=done)
    return done
