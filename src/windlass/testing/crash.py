"""Crash points, for tests that kill a driver at a chosen point."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from itertools import count


def crash_point(wish: str) -> Callable[[str], None]:
    """Kill this process with SIGKILL. `N`: at the Nth crash point. `TEXT`: at the first crash point named TEXT.

    There is a crash point before and after each transaction of the journal.
    """
    numbers = count(1)

    def reached(point: str) -> None:
        if str(next(numbers)) == wish or point == wish:
            os.kill(os.getpid(), signal.SIGKILL)

    return reached
