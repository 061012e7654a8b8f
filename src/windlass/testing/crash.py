"""Crash points: for tests that kill a driver where it hurts."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from itertools import count


def crash_point(wish: str) -> Callable[[str], None]:
    """`N`: kill this process with SIGKILL at the Nth crash point it passes; `TEXT`: at the first whose name is TEXT.

    A crash point lies before and after each transaction of the journal.
    """
    numbers = count(1)

    def reached(point: str) -> None:
        if str(next(numbers)) == wish or point == wish:
            os.kill(os.getpid(), signal.SIGKILL)

    return reached
