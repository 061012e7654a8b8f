"""Writes to the terminal in a separate thread, so that a blocked terminal does not block the run."""

from __future__ import annotations

import os
import time
from queue import SimpleQueue
from threading import Thread

DRAIN_S = 2.0


class OutputThread:
    """A stream for prompt_toolkit. Contract: `write` and `flush` neither block nor raise."""

    def __init__(self, fd: int, encoding: str = "utf-8") -> None:
        self.encoding = encoding
        self.gone = False
        """The terminal was closed. The run continues without output."""
        self._fd = fd
        self._held: list[str] = []
        self._queue: SimpleQueue[bytes | None] = SimpleQueue()
        self._sent = 0
        self._taken = 0
        self._thread = Thread(target=self._write_all, name="windlass-terminal", daemon=True)
        self._thread.start()

    def fileno(self) -> int:
        return self._fd

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self._held.append(text)
        return len(text)

    def flush(self) -> None:
        if self._held:
            data = "".join(self._held).encode(self.encoding, "replace")
            self._held.clear()
            self._sent += 1
            self._queue.put(data)

    @property
    def busy(self) -> bool:
        """Whether the terminal still reads earlier output. A new drawing would only queue behind it."""
        return self._taken < self._sent and not self.gone

    def close(self) -> None:
        """Write the remaining output, but give up after a moment if the terminal does not read it."""
        self.flush()
        if self._thread.is_alive():
            self._queue.put(None)
            self._thread.join(DRAIN_S)

    def drain(self) -> None:
        """Block for a moment until the output is written, before another program uses the terminal."""
        end = time.monotonic() + DRAIN_S
        while self.busy and time.monotonic() < end:
            time.sleep(0.005)

    def _write_all(self) -> None:
        while (data := self._queue.get()) is not None:
            # os.write, not a stream: a thread that blocks in it at exit holds no interpreter lock.
            while data and not self.gone:
                try:
                    data = data[os.write(self._fd, data) :]
                except BlockingIOError:
                    time.sleep(0.01)
                except OSError:
                    self.gone = True
            self._taken += 1
