"""Starts many `windlass` processes quickly: it loads the program once and forks for each of them.

To load what a driver needs takes half a second of processor time, to fork a few milliseconds. Each process is a real
one: it has a pid, a session and files of its own, can be killed, and ends as the interpreter ends a program.

The client is `popen`: like `subprocess.Popen([sys.executable, *arguments])` for `-m windlass …` and `-c CODE …`.
What differs from a fresh interpreter: modules are loaded already, and /proc shows the zygote's command and environment.
Tests about start-up or about the command line of a process start a fresh interpreter instead.
"""

from __future__ import annotations

import atexit
import fcntl
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import IO, Any, TypeAlias

LOADED = (
    "windlass.app",
    "windlass.interfaces.exit",
    "windlass.interfaces.cli.drive",
    "windlass.interfaces.cli.read",
    "windlass.interfaces.terminal.live",
    "windlass.runs.drive",
    "windlass.runs.start",
    "windlass.runs.land",
    "windlass.agents.cli.scripted",
)
MOST = 1 << 20
"""Bytes of one request."""


# -- the client, in the test's process


class Forked:
    """As much of a `subprocess.Popen` as the tests use."""

    def __init__(self, connection: socket.socket, pid: int, args: Sequence[str]) -> None:
        self.pid = pid
        self.args = args
        self.returncode: int | None = None
        self._connection = connection

    def poll(self) -> int | None:
        if self.returncode is None and select.select([self._connection], [], [], 0)[0]:
            self._end()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if not select.select([self._connection], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(list(self.args), timeout or 0.0)
            self._end()
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):  # it ended in between
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def _end(self) -> None:
        self.returncode = int(self._connection.recv(64))
        self._connection.close()

    def __del__(self) -> None:
        self._connection.close()


Process: TypeAlias = "Forked | subprocess.Popen[bytes]"


def popen(
    arguments: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    stdout: IO[Any] | int,
    stderr: IO[Any] | int,
    own_session: bool,
    terminal: bool = False,
) -> Process:
    """A process of `python ARGUMENTS`. With `terminal` stdout is its controlling terminal and its standard input;
    else it reads nothing."""
    if not hasattr(os, "pidfd_open"):  # not on Linux
        return subprocess.Popen(
            [sys.executable, *arguments],
            cwd=cwd,
            env=env,
            stdin=stdout if terminal else subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            start_new_session=own_session,
            preexec_fn=_take_terminal if terminal else None,  # noqa: PLW1509
        )
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.connect(_address())
    request = {
        "arguments": list(arguments),
        "cwd": str(cwd),
        "env": dict(env),
        "own_session": own_session,
        "terminal": terminal,
    }
    text = json.dumps(request).encode()
    assert len(text) < MOST
    socket.send_fds(connection, [text], [file if isinstance(file, int) else file.fileno() for file in (stdout, stderr)])
    return Forked(connection, int(connection.recv(64)), arguments)


def _take_terminal() -> None:
    """Whoever closes it sends SIGHUP then."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def run(
    arguments: Sequence[str], *, cwd: Path, env: Mapping[str, str], timeout: float = 300.0
) -> subprocess.CompletedProcess[str]:
    """The same to its end, and what it wrote."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = popen(arguments, cwd=cwd, env=env, stdout=out, stderr=err, own_session=False)
        try:
            code = process.wait(timeout)
        finally:
            process.kill()
            process.wait()
        written = [file.seek(0) or file.read().decode("utf-8", "replace") for file in (out, err)]
    return subprocess.CompletedProcess(list(arguments), code, *written)


@cache
def _address() -> bytes:
    """Of this process's zygote, which ends when this process does: its standard input is closed then."""
    program = subprocess.Popen(
        [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    atexit.register(program.__exit__, None, None, None)
    assert program.stdout
    return bytes.fromhex(program.stdout.readline())


# -- the server


def serve() -> dict[str, Any]:
    """Fork for each request. Returns in the forked process alone, with its request."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind("")  # the kernel gives it a name that no file has
    listener.listen(64)
    print(listener.getsockname().hex(), flush=True)
    at_work: dict[int, tuple[int, socket.socket]] = {}
    while True:
        ready, _, _ = select.select([0, listener, *at_work], [], [])
        for pidfd in ready:
            if pidfd in at_work:
                pid, connection = at_work.pop(pidfd)
                os.close(pidfd)
                _tell_end(pid, connection)
        if 0 in ready:
            os._exit(0)
        if listener in ready:
            connection, _ = listener.accept()
            text, fds, _, _ = socket.recv_fds(connection, MOST, 2)
            pid = os.fork()
            if pid == 0:
                listener.close()
                connection.close()
                for pidfd, (_, other) in at_work.items():
                    os.close(pidfd)
                    other.close()
                request: dict[str, Any] = json.loads(text)
                return {**request, "fds": fds}
            for fd in fds:
                os.close(fd)
            at_work[os.pidfd_open(pid)] = (pid, connection)
            connection.send(str(pid).encode())


def _tell_end(pid: int, connection: socket.socket) -> None:
    _, status = os.waitpid(pid, 0)
    with connection, suppress(BrokenPipeError):  # the test may have closed its side
        connection.send(str(os.waitstatus_to_exitcode(status)).encode())


def become(request: dict[str, Any]) -> None:
    """Be the process that was asked for."""
    if request["own_session"]:
        os.setsid()
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    out, err = request["fds"]
    given = os.dup(out) if request["terminal"] else os.open(os.devnull, os.O_RDONLY)
    for number, fd in enumerate((given, out, err)):
        os.dup2(fd, number)
        os.close(fd)
    if request["terminal"]:
        _take_terminal()
    time.tzset()
    encoding = request["env"].get("PYTHONIOENCODING", "utf-8")
    buffering = 1 if os.isatty(1) else -1
    sys.stdin = open(0, encoding=encoding, errors="surrogateescape", closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", buffering, encoding=encoding, errors="surrogateescape", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", 1, encoding=encoding, errors="backslashreplace", closefd=False)  # noqa: SIM115
    option, what, *rest = request["arguments"]
    if option == "-m":
        sys.argv[:] = [what, *rest]
        sys.path[0] = request["cwd"]
        runpy.run_module(what, run_name="__main__", alter_sys=True)
    else:
        sys.argv[:] = ["-c", *rest]
        sys.path[0] = ""
        exec(compile(what, "<string>", "exec"), {"__name__": "__main__"})


if __name__ == "__main__":
    for name in LOADED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    become(serve())
