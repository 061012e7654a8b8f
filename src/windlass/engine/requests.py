"""Polls the store for pause and abort requests from other processes, and syncs unsynced writes."""

from __future__ import annotations

import asyncio

from windlass.engine.services import RunServices, StopRequests
from windlass.errors import TakenOverError

POLL_S = 0.1


async def heed(parts: RunServices) -> None:
    """Ends when another driver took over; the next write raises the reason."""
    version = 0  # a request from before this driver began to poll counts as well
    while True:
        try:
            parts.wanted.require_claim()
            now = parts.store.data_version()
            if now != version:
                version = now
                parts.journal.events.catch_up()
                obey(parts.wanted, parts.store.runs.get(parts.world.facts.id).wanted)
        except TakenOverError:
            parts.wanted.taken_over = True
            parts.wanted.stop.set()
            return
        await asyncio.sleep(POLL_S)
        if parts.store.pending:
            await asyncio.to_thread(parts.store.sync)


def obey(wanted: StopRequests, word: str) -> None:
    if word == "pause":
        wanted.pause = "paused by the user"
    elif word == "abort":
        wanted.abort = True
        wanted.stop.set()
