"""Which refs this process moved itself, so that an agent's can be told from them while several are at work."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Moves:
    """Refs that this process set, in order. Noted before it is done: others compare refs meanwhile."""

    def __init__(self) -> None:
        self._all: list[tuple[str, str]] = []
        self._under_way: set[int] = set()
        self._lock = threading.Lock()

    @contextmanager
    def noted(self, *moves: tuple[str, str]) -> Iterator[None]:
        with self._lock:
            places = range(len(self._all), len(self._all) + len(moves))
            self._all += moves
            self._under_way |= set(places)
        try:
            yield
        finally:
            with self._lock:
                self._under_way -= set(places)

    def mark(self) -> int:
        """Everything from here on may show in refs that are read after this."""
        with self._lock:
            return min(self._under_way, default=len(self._all))

    def since(self, mark: int) -> set[tuple[str, str]]:
        with self._lock:
            return set(self._all[mark:])
