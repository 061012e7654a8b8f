"""Ctrl-C while there is nothing to save: the program ends without a traceback, also in the middle of an import."""

from __future__ import annotations

import os
import signal
from types import FrameType


class Quit:
    """A handler that ends the process at once, with what the shell is to be told."""

    def __init__(self, code: int, message: bytes) -> None:
        self._code = code
        self._message = message

    def __call__(self, number: int, frame: FrameType | None) -> None:
        # Not through an exception: raised inside an import lock or at exit, Python prints it whoever would catch it.
        if self._message:
            os.write(2, self._message)
        os._exit(self._code)


def quit_on_interrupt(code: int = 130, message: bytes = b"interrupted\n") -> None:
    """Until `raise_on_interrupt`. A signal that the parent process had ignored stays ignored."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, Quit(code, message))


def raise_on_interrupt() -> None:
    """A command begins that may have something to save: Ctrl-C is a KeyboardInterrupt again."""
    if isinstance(signal.getsignal(signal.SIGINT), Quit):
        signal.signal(signal.SIGINT, signal.default_int_handler)
