"""Who lands lets others work: a task on its way to the tip needs no slot until it is sent back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

SOON_S = 1.0
"""So long a slot is kept for those who wait for the task that lands: they may be the better ones to start, and most
landings take a moment."""


class SlotTurns:
    def __init__(self, slots: int, stir: Callable[[], None]) -> None:
        self._slots = slots
        self._stir = stir
        self._leaving: dict[str, asyncio.TimerHandle] = {}
        """About to give their slots away."""
        self.landing: set[str] = set()
        """Others work meanwhile."""
        self.returning: dict[str, asyncio.Future[None]] = {}
        """Of these, who was sent back and waits for a slot."""

    def land(self, id: str, *, awaited: bool) -> None:
        """`awaited`: other tasks begin when this one has landed."""
        loop = asyncio.get_running_loop()
        self._leaving[id] = loop.call_later(SOON_S if awaited else 0, self._give_way, id)

    def _give_way(self, id: str) -> None:
        # What is on its way is bounded too: each of them may be sent back.
        if len(self.landing) < self._slots:
            self.landing.add(id)
            self._stir()

    async def work(self, id: str) -> None:
        """Until there is a slot for it."""
        self._stay(id)
        if id in self.landing:
            self.returning[id] = asyncio.get_running_loop().create_future()
            self._stir()
            await self.returning[id]

    def take_back(self, free: int, place: Mapping[str, int]) -> None:
        """As many as there are free slots, in the plan's order."""
        for id in sorted(self.returning, key=place.__getitem__)[: max(0, free)]:
            self.landing.discard(id)
            self.returning.pop(id).set_result(None)

    def end(self, id: str) -> None:
        self._stay(id)
        self.landing.discard(id)

    def _stay(self, id: str) -> None:
        if id in self._leaving:
            self._leaving.pop(id).cancel()
