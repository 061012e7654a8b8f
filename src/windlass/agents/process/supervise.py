"""Starts a process through a supervisor, follows its output files, and ends what a dead supervisor left."""

from __future__ import annotations

import asyncio
import atexit
import json
import os
import socket
import subprocess
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO, TypeAlias

import psutil
from msgspec import Struct
from msgspec.structs import replace

from windlass.agents.base import Invocation
from windlass.agents.process.launch import program
from windlass.locks import boot_id, process_start
from windlass.private_files import make_private, open_private, replace_file

MARKER = "WINDLASS_ATTEMPT"
FOLDER = "WINDLASS_FOLDER"
"""The folder of an attempt's files. It identifies the repository: runs of a copied repository have the same ids."""
BUSY_POLL_S, IDLE_POLL_S, BUSY_FOR_S = 0.04, 0.1, 2.0
SIDE_POLL_S = 0.25
CHUNK = 1 << 20
MAX_LINE = 16 << 20
"""A longer line is cut: parsing holds a line in memory several times."""
MOST_OUTPUT = 64 << 20
"""Bytes of stdout and of stderr, unless the config sets another limit."""
LEAST_BYTES = 64 * 1024
"""A disk with less free space than this is full."""
_ENV = frozenset({"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TERM", "TMPDIR", "TZ"})
_ENV_PREFIXES = ("LC_", "SSL_CERT_")


def agent_env(environ: Mapping[str, str], extra: Collection[str] = (), *, ci: bool = False) -> dict[str, str]:
    """The variables of the user's environment that every program of the run gets; others must be listed."""
    allowed = {
        name: value
        for name, value in environ.items()
        if name in _ENV or name in extra or name.startswith(_ENV_PREFIXES)
    }
    return allowed | ({"CI": "1"} if ci else {})


class SupervisedProcess(Struct, frozen=True):
    """The process of an attempt. The record lets a later driver distinguish it from another process with the same
    pid."""

    supervisor: int
    supervisor_start: int
    agent: int
    agent_start: int
    boot_id: str
    host: str
    marker: str

    @classmethod
    def parse(cls, text: str | bytes) -> SupervisedProcess:
        data = json.loads(text)
        one, two = data["supervisor"], data["agent"]
        ids = (int(one["pid"]), int(one["start"]), int(two["pid"]), int(two["start"]))
        return cls(*ids, str(data["boot_id"]), str(data["host"]), str(data["marker"]))


class ProcessExit(Struct, frozen=True):
    code: int | None
    signal: int | None
    reason: str
    """exited | stopped | wall | output (it wrote too much) | driver-died | missing | full (the disk) | lost (the
    supervisor ended without a report)"""
    seconds: float
    left: int = 0
    error: str = ""


class SupervisorPool:
    """The process that forks supervisors. It starts with the first one, ends with the driver, and restarts if it
    died."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None

    def warm(self) -> socket.socket:
        if self._control is None or self._process is None or self._process.poll() is not None:
            self.close()
            self._control, theirs = socket.socketpair()
            with theirs:
                self._process = subprocess.Popen(
                    program("agents.process.supervisor.serve"),
                    stdin=theirs.fileno(),
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                )
        return self._control

    def start(self, *files: int) -> None:
        """Start a supervisor with these standard files."""
        try:
            socket.send_fds(self.warm(), [b"j"], files)
        except OSError:
            # It died since the last start.
            self.close()
            socket.send_fds(self.warm(), [b"j"], files)

    def close(self) -> None:
        if self._control:
            self._control.close()
        if self._process:
            self._process.wait()
        self._control = self._process = None


SUPERVISORS = SupervisorPool()
atexit.register(SUPERVISORS.close)


class Supervisor(asyncio.Protocol):
    """One supervisor. Commands go in on one pipe, reports come out on another, which closes when the supervisor
    ends."""

    def __init__(self) -> None:
        self.report = b""
        self.begun = asyncio.Event()
        """Set when it has reported its process, or has ended."""
        self.gone = asyncio.Event()
        self._commands: asyncio.WriteTransport
        self._reports: asyncio.BaseTransport

    @classmethod
    async def start(cls, errors: TextIO) -> Supervisor:
        its_input, commands_end = os.pipe()
        reports_end, its_output = os.pipe()
        try:
            SUPERVISORS.start(its_input, its_output, errors.fileno())
        except BaseException:
            os.close(commands_end)
            os.close(reports_end)
            raise
        finally:
            os.close(its_input)
            os.close(its_output)
        loop = asyncio.get_running_loop()
        commands, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, os.fdopen(commands_end, "wb", 0))
        reports, supervisor = await loop.connect_read_pipe(cls, os.fdopen(reports_end, "rb", 0))
        supervisor._commands, supervisor._reports = commands, reports
        return supervisor

    def data_received(self, data: bytes) -> None:
        self.report += data
        if b"\n" in self.report:
            self.begun.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.begun.set()
        self.gone.set()

    def send(self, data: bytes) -> None:
        with suppress(OSError, RuntimeError):
            if not self._commands.is_closing():
                self._commands.write(data)

    def close(self) -> None:
        for pipe in (self._commands, self._reports):
            if not pipe.is_closing():
                pipe.close()


Listener: TypeAlias = Callable[[str], None] | None
#: reads new data; returns whether there was any
Pull: TypeAlias = Callable[[], bool]


async def supervise(
    invocation: Invocation,
    *,
    cwd: Path,
    env: Mapping[str, str],
    folder: Path,
    wall_s: float,
    on_line: Listener,
    stop: asyncio.Event,
    grace_s: float = 5.0,
    on_started: Callable[[SupervisedProcess], None] = lambda proc: None,
    marker: str = "",
    on_error_line: Listener = None,
    side_reader: Pull | None = None,
    most_bytes: int = MOST_OUTPUT,
) -> ProcessExit:
    """Contract: when it returns or raises, cancellation included, no process of the tree is left.

    `side_reader` reads the CLI's usage files; its last read comes after all of the output. `most_bytes`: of stdout and
    of stderr; a process that writes more is killed, and the files are cut there.
    """
    job = _prepare(invocation, cwd, env, folder, wall_s, grace_s, marker) | {"most_bytes": most_bytes}
    begun = time.monotonic()
    with open_private(folder / "stderr") as errors:
        supervisor = await Supervisor.start(errors)
    try:
        supervisor.send(json.dumps(job).encode() + b"\n")
        await _follow(supervisor, folder, (on_line, on_error_line), stop, on_started, side_reader)
    finally:
        await _end(supervisor)
    ended = _read_exit(folder, time.monotonic() - begun)
    if ended is None:
        ended = await asyncio.to_thread(_lost, folder, marker, begun)
    if ended.code != 0 and ended.reason in ("exited", "lost") and (full := full_disk(folder, cwd)):
        # A failure on a full disk counts as caused by it.
        return replace(ended, reason="full", error=full)
    return ended


def full_disk(*folders: Path) -> str:
    """The problem when no space is left below one of these folders; otherwise ''."""
    for folder in folders:
        with suppress(OSError):
            space = os.statvfs(folder)
            if space.f_bavail * space.f_frsize < LEAST_BYTES:
                return f"no space is left on the disk: '{folder}'"
    return ""


def _prepare(
    invocation: Invocation,
    cwd: Path,
    env: Mapping[str, str],
    folder: Path,
    wall_s: float,
    grace_s: float,
    marker: str,
) -> dict[str, object]:
    make_private(folder)
    for old in ("proc.json", "exit.json"):
        (folder / old).unlink(missing_ok=True)
    replace_file(folder / "stdin", invocation.stdin, errors="replace")
    replace_file(folder / "stdout", "")
    return {
        "argv": list(invocation.argv),
        "entry": invocation.entry,
        "cwd": str(cwd),
        "env": {**env, **invocation.env, MARKER: marker, FOLDER: str(folder)},
        "stdin": str(folder / "stdin"),
        "stdout": str(folder / "stdout"),
        "stderr": str(folder / "stderr"),
        "folder": str(folder),
        "wall_s": wall_s,
        "grace_s": grace_s,
        "marker": marker,
    }


async def _follow(
    supervisor: Supervisor,
    folder: Path,
    listeners: tuple[Listener, Listener],
    stop: asyncio.Event,
    on_started: Callable[[SupervisedProcess], None],
    side_reader: Pull | None,
) -> None:
    stopping = asyncio.create_task(stop.wait())
    stopping.add_done_callback(lambda task: None if task.cancelled() else supervisor.send(b"s"))
    try:
        await supervisor.begun.wait()
        if supervisor.report.endswith(b"\n"):
            on_started(SupervisedProcess.parse(supervisor.report))
        ended = asyncio.create_task(supervisor.gone.wait())
        files = ("stdout", "stderr")
        outputs = [(folder / name, on_line) for name, on_line in zip(files, listeners, strict=True) if on_line]
        output = asyncio.gather(ended, *(_tail(path, on_line, ended) for path, on_line in outputs))
        try:
            if side_reader:
                await _drain(side_reader, output, SIDE_POLL_S, SIDE_POLL_S)
            await output
        finally:
            output.cancel()
    finally:
        stopping.cancel()


async def _tail(output: Path, on_line: Callable[[str], None], ended: asyncio.Task[bool]) -> None:
    lines = Lines(on_line)
    with output.open("rb", buffering=0) as file:
        await _drain(lambda: lines.read(file.read(CHUNK)), ended, BUSY_POLL_S, IDLE_POLL_S)
    lines.end()


async def _drain(pull: Pull, ended: asyncio.Future[Any], busy_s: float, idle_s: float) -> None:
    quiet_since = time.monotonic()
    while not ended.done():
        if pull():
            quiet_since = time.monotonic()
            await asyncio.sleep(0)
            continue
        idle = time.monotonic() - quiet_since > BUSY_FOR_S
        await asyncio.wait({ended}, timeout=idle_s if idle else busy_s)
    while pull():
        pass


class Lines:
    """Bytes in, whole lines out; a line may come in many pieces and have any size up to the limit."""

    def __init__(self, on_line: Callable[[str], None], limit: int = MAX_LINE) -> None:
        self.on_line = on_line
        self.limit = limit
        self.pieces: list[bytes] = []
        self.held = 0

    def read(self, data: bytes) -> bool:
        *whole, rest = data.split(b"\n")
        for piece in whole:
            self._hold(piece)
            self._emit()
        self._hold(rest)
        return bool(data)

    def end(self) -> None:
        if self.pieces:
            self._emit()

    def _hold(self, piece: bytes) -> None:
        if piece and self.held < self.limit:
            self.pieces.append(piece)
            self.held += len(piece)

    def _emit(self) -> None:
        text = b"".join(self.pieces).decode("utf-8", "replace").rstrip("\r")
        self.pieces, self.held = [], 0
        self.on_line(text)


async def _end(supervisor: Supervisor) -> None:
    """Stop the supervisor and wait for it, also while this task is being cancelled."""
    supervisor.send(b"s")
    waiting = asyncio.ensure_future(supervisor.gone.wait())
    cancelled = False
    while not waiting.done():
        try:
            await asyncio.shield(waiting)
        except asyncio.CancelledError:
            cancelled = True
    supervisor.close()
    if cancelled:
        raise asyncio.CancelledError


def _read_exit(folder: Path, seconds: float) -> ProcessExit | None:
    try:
        data = json.loads((folder / "exit.json").read_bytes())
    except (OSError, ValueError):
        return None
    return ProcessExit(data["code"], data["signal"], data["reason"], seconds, data["left"], data["error"])


def _lost(folder: Path, marker: str, begun: float) -> ProcessExit:
    # Another driver may have started again in this folder: its process is not ours to end.
    proc = _recorded_process(folder / "proc.json")
    own = folder / ("proc.json" if proc and proc.marker == marker else "none")
    gone = end_leftover(own, host=socket.gethostname(), boot_id=boot_id(), marker=marker)
    error = "the supervisor was killed" + ("" if gone else "; processes of the attempt may be left")
    return ProcessExit(None, None, "lost", time.monotonic() - begun, 0 if gone else 1, error)


def _recorded_process(proc_json: Path) -> SupervisedProcess | None:
    """None: not written yet, or lost."""
    try:
        return SupervisedProcess.parse(proc_json.read_bytes())
    except (OSError, ValueError, KeyError, TypeError):
        return None


def end_leftover(
    proc_json: Path, *, host: str, boot_id: str, marker: str, slot: Path | None = None, grace_s: float = 5.0
) -> bool:
    """End the processes that an attempt left. True: confirmed gone. False: they belong to another host or cannot be
    ended."""
    proc = _recorded_process(proc_json)
    if proc and proc.host != host:
        return False
    if proc and proc.boot_id != boot_id:
        return True
    begun = time.monotonic()
    terminated: set[psutil.Process] = set()
    while left := list(_leftovers(proc, marker, slot)):
        elapsed = time.monotonic() - begun
        if elapsed > grace_s + 30:
            return False
        for process in left:
            with suppress(psutil.Error):
                if elapsed >= grace_s:
                    process.kill()
                elif process not in terminated:
                    terminated.add(process)
                    process.terminate()
        # Not psutil.wait_procs: it would reap a child of this process and steal its exit code.
        time.sleep(0.02)
    return True


def is_at_work(proc_json: Path) -> bool:
    """Whether the supervisor or the program in the file runs on this machine."""
    proc = _recorded_process(proc_json)
    if proc is None or (proc.host, proc.boot_id) != (socket.gethostname(), boot_id()):
        return False
    return bool(_living_processes(proc))


class ProcessActivity(Struct, frozen=True):
    """A process that this user can see."""

    pid: int
    cwd: Path
    marker: str
    """Its attempt or check; '' when it is not one of Windlass's."""


def running_processes() -> list[ProcessActivity]:
    """All processes except this one and its ancestors, which may work in any folder."""
    own = {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            if process.pid not in own and process.status() != psutil.STATUS_ZOMBIE:
                found.append(ProcessActivity(process.pid, Path(process.cwd()), process.environ().get(MARKER, "")))
    return found


def marked_processes(home: Path) -> list[tuple[int, str]]:
    """Every process of an attempt or a check with files in `home`: its pid and its marker."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            environ = process.environ()
            marker, folder = environ.get(MARKER, ""), Path(environ.get(FOLDER, "/"))
            if not marker or process.status() == psutil.STATUS_ZOMBIE or not folder.is_relative_to(home):
                continue
            proc = _recorded_process(folder / "proc.json")
            # Without a record the marker of the process decides.
            if proc and (proc.host, proc.boot_id) != (socket.gethostname(), boot_id()):
                continue
            if proc and proc.supervisor_start and process_start(process.pid) < proc.supervisor_start:
                continue  # another process had this number before
            found.append((process.pid, marker))
    return found


def _leftovers(proc: SupervisedProcess | None, marker: str, slot: Path | None) -> Iterator[psutil.Process]:
    ours = {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}
    roots = _living_processes(proc) if proc else []
    for process in [*roots, *psutil.process_iter()]:
        with suppress(psutil.Error):
            if process.pid in ours or process.status() == psutil.STATUS_ZOMBIE:
                continue
            if (
                process in roots
                or (marker and process.environ().get(MARKER) == marker)
                # A shell on a terminal belongs to a person.
                or (slot and process.terminal() is None and Path(process.cwd()).is_relative_to(slot))
            ):
                yield from process.children(recursive=True)
                yield process


def _living_processes(proc: SupervisedProcess) -> list[psutil.Process]:
    """The supervisor and the agent of the record, if they still run."""
    found = []
    for pid, start in ((proc.supervisor, proc.supervisor_start), (proc.agent, proc.agent_start)):
        with suppress(psutil.Error):
            if start and process_start(pid) == start:
                found.append(psutil.Process(pid))
    return found
