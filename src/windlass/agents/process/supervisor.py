"""One small process per dispatch or check; it owns the process tree and outlives the driver long enough to end it.

The first line on stdin is the job as JSON: argv, entry (of a program of Windlass's own, which is called instead of
started), cwd, env, stdin, stdout, stderr (paths), folder, wall_s, grace_s, marker, most_bytes (of stdout and of stderr:
whoever writes more is killed, and the file is cut there). After that stdin is the life line: the byte `s` means stop,
end of file means the driver died. Writes `proc.json` when the program runs and `exit.json` when nothing of it is left.

A driver starts this once, as `serve`: a process that does nothing but fork a supervisor for each job, which takes a
tenth of what starting an interpreter does. Standard library only, and as little of it as possible: `ctypes`, `json`,
`signal` and `subprocess` would double the start-up time. Without a subreaper (not Linux) a process that left the tree
between two samples is missed: best effort.
"""

# ruff: noqa: SIM105, S605, S606 - contextlib and subprocess would cost start-up time, and starting programs is the point
from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import socket
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

LINUX = sys.platform == "linux"
PR_SET_CHILD_SUBREAPER = 36
TERM_TO_KILL_S = 5.0
GIVE_UP_S = 30.0
SAMPLE_S = 1.0
SIZE_SAMPLE_S = 0.25
STANDARD_FILES = 3
OPEN_FILES = 256
"""More than a supervisor ever opens."""


def serve() -> int:
    """Fork supervisors until the driver is gone. Stdin is a socket: a job is its three standard files, sent as file
    descriptors."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # supervisors are waited for by nobody: the driver reads their end
    control = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, 0, os.dup(0))
    space = socket.CMSG_SPACE(STANDARD_FILES * 4)
    while True:
        said, sent, *_ = control.recvmsg(1, space)
        files = [number for _, _, data in sent for number in numbers(data)]
        if not said:
            return 0
        if os.fork() == 0:
            control.close()
            supervise(files)
        for file in files:
            os.close(file)


def numbers(data: bytes) -> list[int]:
    return [int.from_bytes(data[at : at + 4], sys.byteorder) for at in range(0, len(data) - 3, 4)]


def supervise(files: list[int]) -> NoReturn:
    try:
        for number, file in enumerate(files):
            os.dup2(file, number)
            os.close(file)
        main()
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(0)


def main() -> int:
    line, rest = read_job_line(0)
    if not line:
        return 0  # the driver died before it said what to do
    job = json.loads(line.decode("utf-8"))
    become_owner()
    wake = watch_signals()
    tree = ProcessTree()
    started = time.monotonic()
    agent, error = start(job)
    if agent is None:
        write_json(job["folder"], "exit.json", exit_facts(None, "missing", started, 0, error))
        return 0
    announce(job, agent)
    tree.agent = agent
    reason = wait(job, tree, wake, rest, started)
    # A process that floods the disk gets no time to go on.
    left = sweep(tree, 0.0 if reason == "output" else float(job.get("grace_s", TERM_TO_KILL_S)))
    reason = "output" if cut_output(job) else reason
    write_json(job["folder"], "exit.json", exit_facts(tree.status, reason, started, left, ""))
    return 0


def read_job_line(fd: int) -> tuple[bytes, bytes]:
    chunks: list[bytes] = []
    while True:
        chunk = os.read(fd, 65536)
        head, newline, rest = chunk.partition(b"\n")
        chunks.append(head)
        if newline or not chunk:
            return b"".join(chunks), rest


def become_owner() -> None:
    """A session of our own, so that no terminal signal reaches us, and every orphan below becomes our child."""
    try:
        os.setsid()
    except OSError:
        pass  # already a leader
    if LINUX:
        prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def prctl(*args: int) -> None:
    ctypes.CDLL(None).prctl(*args)


def watch_signals() -> int:
    """A pipe that gets one byte per signal, so that one poll() sees signals and the life line alike."""
    readable, writable = os.pipe()
    os.set_blocking(readable, False)
    os.set_blocking(writable, False)
    signal.set_wakeup_fd(writable, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    return readable


class ProcessTree:
    """Everything that descends from the agent, and the agent's exit status once it is known."""

    def __init__(self) -> None:
        self.agent = 0
        self.status: int | None = None
        self.childless = False
        self.descendants: set[int] = set()

    def reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                self.childless = True
                return
            if pid == 0:
                self.childless = False
                return
            if pid == self.agent:
                self.status = status

    def pids(self) -> list[int]:
        # As subreaper every descendant hangs below one of our children: no child, no descendant, and nothing to scan.
        if LINUX and self.childless:
            return []
        parents = linux_parents() if LINUX else other_parents()
        below = {os.getpid()} | (set() if LINUX else self.descendants)
        grew = True
        while grew:
            more = {pid for pid, parent in parents.items() if parent in below and pid not in below}
            below |= more
            grew = bool(more)
        self.descendants = {pid for pid in below if pid in parents} - {os.getpid()}
        return sorted(self.descendants)


def linux_parents() -> dict[int, int]:
    parents: dict[int, int] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            fields = stat_fields(int(name))
            if fields and fields[0] != "Z":
                parents[int(name)] = int(fields[1])
    return parents


def stat_fields(pid: int) -> list[str]:
    """Fields of /proc/<pid>/stat from the state on; the name before it may hold spaces and brackets."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            return file.read(4096).rpartition(b")")[2].decode().split()
    except OSError:
        return []


def other_parents() -> dict[int, int]:
    with os.popen("ps -A -o pid=,ppid=,stat=") as listing:
        rows = [row.split() for row in listing]
    return {int(row[0]): int(row[1]) for row in rows if len(row) > 2 and "Z" not in row[2]}


def start(job: dict[str, Any]) -> tuple[int | None, str]:
    """The agent's pid, or None with the system's error."""
    report, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        run_agent(job, tell)
    os.close(tell)
    said = b""
    while chunk := os.read(report, 4096):
        said += chunk
    os.close(report)
    if not said:
        return pid, ""
    os.waitpid(pid, 0)
    return None, said.decode("utf-8", "replace")


def run_agent(job: dict[str, Any], tell: int) -> NoReturn:
    """In the child. A session of its own: an agent that signals its group must not reach us."""
    try:
        os.setsid()
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
            signal.signal(number, signal.SIG_DFL)
        signal.set_wakeup_fd(-1)
        fresh = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        plumb(0, job.get("stdin") or os.devnull, os.O_RDONLY)
        plumb(1, job["stdout"], fresh)
        plumb(2, job["stderr"], fresh)
        os.chdir(job["cwd"])
        if job.get("entry"):
            call(job["entry"], job["argv"], job["env"])
        os.execvpe(job["argv"][0], job["argv"], job["env"])
    except BaseException as error:
        os.write(tell, f"{job['argv'][0]}: {getattr(error, 'strerror', None) or error}".encode("utf-8", "replace"))
    finally:
        os._exit(127)


def call(entry: str, argv: list[str], env: dict[str, str]) -> NoReturn:
    """Be that program, as if its command line (`launch.program`) had been executed."""
    os.closerange(STANDARD_FILES, OPEN_FILES)
    os.environ.clear()
    os.environ.update(env)
    sys.argv[:] = argv[argv.index("-c") + 2 :]
    code = 1
    try:
        module, _, function = entry.rpartition(".")
        code = getattr(__import__(f"windlass.{module}", fromlist=[function]), function)()
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(code)


def plumb(fd: int, path: str, flags: int) -> None:
    opened = os.open(path, flags, 0o600)
    os.dup2(opened, fd, inheritable=True)
    if opened != fd:
        os.close(opened)


def announce(job: dict[str, Any], agent: int) -> None:
    facts = {
        "supervisor": {"pid": os.getpid(), "start": start_ticks(os.getpid())},
        "agent": {"pid": agent, "start": start_ticks(agent)},
        "boot_id": boot_id(),
        "host": os.uname().nodename,
        "marker": job.get("marker", ""),
    }
    write_json(job["folder"], "proc.json", facts)
    try:
        os.write(1, json.dumps(facts).encode() + b"\n")
    except OSError:
        pass  # the driver is gone already; the life line will say so


def start_ticks(pid: int) -> int:
    fields = stat_fields(pid) if LINUX else []
    return int(fields[19]) if len(fields) > 19 else 0


def boot_id() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read().strip()
    except OSError:
        return ""


def wait(job: dict[str, Any], tree: ProcessTree, wake: int, rest: bytes, started: float) -> str:
    """Wait until the agent ends or has to end. Returns why."""
    if b"s" in rest:
        return "stopped"
    deadline = started + float(job["wall_s"])
    sample = SIZE_SAMPLE_S if job.get("most_bytes") else SAMPLE_S
    sampled = not LINUX or bool(job.get("most_bytes"))
    poll = select.poll()
    poll.register(0, select.POLLIN)
    poll.register(wake, select.POLLIN)
    while True:
        remaining = deadline - time.monotonic()
        pause = min(remaining, sample) if sampled else remaining
        ready = {fd for fd, _ in poll.poll(max(0, pause * 1000))}
        tree.reap()
        if not LINUX:
            tree.pids()
        reason = why(tree, ready, wake, time.monotonic() >= deadline)
        if reason:
            return reason
        if too_large(job):
            return "output"


def too_large(job: dict[str, Any]) -> list[str]:
    """The files of stdout and stderr that are larger than allowed."""
    most = int(job.get("most_bytes") or 0)
    return [path for path in (job["stdout"], job["stderr"]) if most and size(path) > most]


def size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def cut_output(job: dict[str, Any]) -> bool:
    """Cut the files, which nobody writes to any more. True: there was something to cut."""
    found = too_large(job)
    for path in found:
        try:
            os.truncate(path, int(job["most_bytes"]))
        except OSError:
            pass  # gone, or not ours any more
    return bool(found)


def why(tree: ProcessTree, ready: set[int], wake: int, late: bool) -> str:
    if tree.status is not None:
        return "exited"
    if wake in ready and set(os.read(wake, 512)) - {signal.SIGCHLD}:
        return "stopped"
    if 0 in ready:
        said = os.read(0, 512)
        if b"s" in said:
            return "stopped"
        if not said:
            return "driver-died"
    return "wall" if late else ""


def sweep(tree: ProcessTree, grace_s: float) -> int:
    """TERM to all, KILL after the grace, until none is left; returns how many could not be ended."""
    begun = time.monotonic()
    asked: set[int] = set()
    pause = 0.002
    while True:
        tree.reap()
        pids = tree.pids()
        if not pids:
            tree.reap()
            # A process that was born while the list was read, to a parent that died meanwhile, is our child now.
            if tree.childless or not LINUX:
                return 0
        waited = time.monotonic() - begun
        if waited > grace_s + GIVE_UP_S:
            return len(pids)
        for pid in pids:
            if waited >= grace_s:
                send(pid, signal.SIGKILL)
            elif pid not in asked:
                asked.add(pid)
                send(pid, signal.SIGTERM)
                # A stopped process gets no TERM before it goes on.
                send(pid, signal.SIGCONT)
        time.sleep(pause)
        pause = min(pause * 1.5, 0.05)


def send(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except OSError:
        pass  # gone meanwhile, or not ours any more


def exit_facts(status: int | None, reason: str, started: float, left: int, error: str) -> dict[str, Any]:
    return {
        "code": os.WEXITSTATUS(status) if status is not None and os.WIFEXITED(status) else None,
        "signal": os.WTERMSIG(status) if status is not None and os.WIFSIGNALED(status) else None,
        "reason": reason,
        "seconds": round(time.monotonic() - started, 4),
        "left": left,
        "error": error,
    }


def write_json(folder: str, name: str, facts: dict[str, Any]) -> None:
    """Whole at once. Not synced: a power cut ends the process too, and what it printed is not synced either."""
    path = os.path.join(folder, name)
    with os.fdopen(os.open(path + ".tmp", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(json.dumps(facts).encode() + b"\n")
    os.rename(path + ".tmp", path)
