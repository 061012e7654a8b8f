"""The driver's side of its supervisors: a process that forks them, and the pipes to each of them."""

from __future__ import annotations

import asyncio
import atexit
import os
import socket
import subprocess
from contextlib import suppress
from typing import TextIO

from windlass.agents.process.launch import program


class SupervisorPool:
    """The process that forks supervisors. It starts with the first one, ends with the driver, and is restarted if it
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
        """Start a supervisor with these as its standard files."""
        try:
            socket.send_fds(self.warm(), [b"j"], files)
        except OSError:
            # It died since the last look.
            self.close()
            socket.send_fds(self.warm(), [b"j"], files)

    def close(self) -> None:
        if self._control:
            self._control.close()
        if self._process:
            self._process.wait()
        self._control = self._process = None


FORKER = SupervisorPool()
atexit.register(FORKER.close)


class Supervisor(asyncio.Protocol):
    """One supervisor: commands go in on one pipe, reports come out on another. That one closes when it ends."""

    def __init__(self) -> None:
        self.said = b""
        self.begun = asyncio.Event()
        """Set when it has reported the process that it supervises, or has ended."""
        self.gone = asyncio.Event()
        self._commands: asyncio.WriteTransport
        self._reports: asyncio.BaseTransport

    @classmethod
    async def start(cls, errors: TextIO) -> Supervisor:
        job, commands_end = os.pipe()
        reports_end, said = os.pipe()
        try:
            FORKER.start(job, said, errors.fileno())
        except BaseException:
            os.close(commands_end)
            os.close(reports_end)
            raise
        finally:
            os.close(job)
            os.close(said)
        loop = asyncio.get_running_loop()
        commands, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, os.fdopen(commands_end, "wb", 0))
        reports, supervisor = await loop.connect_read_pipe(cls, os.fdopen(reports_end, "rb", 0))
        supervisor._commands, supervisor._reports = commands, reports
        return supervisor

    def data_received(self, data: bytes) -> None:
        self.said += data
        if b"\n" in self.said:
            self.begun.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.begun.set()
        self.gone.set()

    def tell(self, data: bytes) -> None:
        with suppress(OSError, RuntimeError):
            if not self._commands.is_closing():
                self._commands.write(data)

    def close(self) -> None:
        for pipe in (self._commands, self._reports):
            if not pipe.is_closing():
                pipe.close()
