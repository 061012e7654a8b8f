"""Handles Ctrl-C while there is nothing to save: the program ends without a traceback, also during an import."""

from __future__ import annotations

import os
import signal
from types import FrameType


class Quit:
    """A signal handler that ends the process at once, with a message and an exit code."""

    def __init__(self, code: int, message: bytes) -> None:
        self._code = code
        self._message = message

    def __call__(self, number: int, frame: FrameType | None) -> None:
        # No exception: Python prints one that is raised inside an import lock or at exit, even if it is caught.
        if self._message:
            os.write(2, self._message)
        os._exit(self._code)


def quit_on_interrupt(code: int = 130, message: bytes = b"interrupted\n") -> None:
    """End at once on Ctrl-C, until `raise_on_interrupt` is called. If the parent ignored the signal, so do we."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, Quit(code, message))


def raise_on_interrupt() -> None:
    """Make Ctrl-C a KeyboardInterrupt again, for a command that may have something to save."""
    if isinstance(signal.getsignal(signal.SIGINT), Quit):
        signal.signal(signal.SIGINT, signal.default_int_handler)
