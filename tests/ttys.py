"""A person at a terminal: a real pseudo-terminal, the program in it, and the screen as text."""

from __future__ import annotations

import fcntl
import os
import re
import select
import signal
import struct
import termios
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pyte

import zygote

ESCAPE, ENTER, CTRL_C, CTRL_D, CTRL_J, CTRL_O = "\x1b", "\r", "\x03", "\x04", "\n", "\x0f"
UP, DOWN, PAGE_UP, PAGE_DOWN = "\x1b[A", "\x1b[B", "\x1b[5~", "\x1b[6~"
BACKSPACE = "\x7f"
RUN = "3f2a9c51d07e"
#: the clock stands still and the run's name is known, so that a screen can be compared letter by letter
STILL = f"""
import sys, time
time.time = lambda: 1770472320.0
import windlass.app
windlass.app.new_id = lambda: "{RUN}"
from windlass.interfaces.exit import run
sys.exit(run(sys.argv[1:], windlass.app.compose()))
"""


class Tty:
    def __init__(
        self, arguments: Sequence[str], cwd: Path, env: Mapping[str, str], columns: int = 80, rows: int = 24
    ) -> None:
        self.screen = pyte.HistoryScreen(columns, rows, history=5000, ratio=0.5)
        self.raw = b""
        self._stream = pyte.ByteStream(self.screen)
        self._lock = threading.Lock()
        self._master, slave = os.openpty()
        self._set_size(columns, rows)
        self.process = zygote.popen(
            arguments,
            cwd=cwd,
            env={"TERM": "xterm-256color", "LANG": "C.UTF-8", **env},
            stdout=slave,
            stderr=slave,
            own_session=True,
            terminal=True,
        )
        os.close(slave)
        self._closing = threading.Event()
        self.deaf = threading.Event()
        """Set: nothing is read, as by a terminal that hangs."""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    # -- doing

    def send(self, *keys: str) -> None:
        for key in keys:
            os.write(self._master, key.encode())

    def resize(self, columns: int, rows: int) -> None:
        with self._lock:
            self.screen.resize(rows, columns)
        self._set_size(columns, rows)
        os.kill(self.process.pid, signal.SIGWINCH)

    def hang_up(self) -> None:
        """As when the window is closed."""
        self._closing.set()
        # Else it would read on from whoever gets this number next, and the next terminal would lack those bytes.
        self._reader.join()
        master, self._master = self._master, -1
        os.close(master)

    def end(self, seconds: float = 300.0) -> int:
        code = self.process.wait(seconds)
        self._reader.join(5)
        return code

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        if self._master >= 0:
            self.hang_up()

    # -- seeing

    @property
    def lines(self) -> list[str]:
        with self._lock:
            return [line.rstrip() for line in self.screen.display]

    @property
    def text(self) -> str:
        return "\n".join(self.lines).rstrip() + "\n"

    @property
    def scrollback(self) -> str:
        """Everything that was ever on the screen and stayed."""
        with self._lock:
            above = [
                "".join(row[x].data for x in range(self.screen.columns)).rstrip() for row in self.screen.history.top
            ]
        return "\n".join([*above, *self.lines]).rstrip() + "\n"

    def wait(self, words: str, seconds: float = 300.0) -> str:
        return self.wait_for(lambda text: words in text, words, seconds)

    def wait_gone(self, words: str, seconds: float = 300.0) -> str:
        return self.wait_for(lambda text: words not in text, f"no {words}", seconds)

    def wait_for(self, holds, what: str, seconds: float = 300.0) -> str:  # type: ignore[no-untyped-def]
        end = time.monotonic() + seconds
        while not holds(self.text):
            assert time.monotonic() < end, f"'{what}' did not come:\n{self.scrollback}"
            time.sleep(0.02)
        return self.text

    def settled(self, words: str) -> str:
        """The screen with these words on it, once it stands still: for a picture to look at, not for a test."""
        self.wait(words)
        before = ""
        while before != self.text:
            before = self.text
            time.sleep(1.5)
        return before

    # -- inside

    def _set_size(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def _next(self, fd: int) -> bytes:
        """Never stuck in a read: a terminal is only gone when nobody holds it any more."""
        while not self._closing.is_set():
            ready = [] if self.deaf.is_set() else select.select([fd], [], [], 0.05)[0]
            if ready:
                return os.read(fd, 65536)
        return b""

    def _read(self) -> None:
        fd = self._master
        with suppress(OSError):
            while data := self._next(fd):
                with self._lock:
                    self.raw += data
                    self._stream.feed(data)


@contextmanager
def windlass_in(
    cwd: Path, env: Mapping[str, str], *argv: str, columns: int = 80, rows: int = 24, still: bool = False
) -> Iterator[Tty]:
    start = ["-c", STILL] if still else ["-m", "windlass"]
    tty = Tty([*start, *argv], cwd, env, columns, rows)
    try:
        yield tty
    finally:
        tty.kill()


def steady(text: str) -> str:
    """Without what differs from run to run: commits, how long a program took, and a line that may come a bit later."""
    text = re.sub(r"\b(?!" + RUN + r")[0-9a-f]{12}\b", "0123456789ab", text)
    text = re.sub(r"\(\d+s(?=\)|, \$)", "(0s", text)
    return re.sub(r"  branch\s+\S+\s+is\s+at\s+0123456789ab\n", "", text)
