"""Looked at every moment, whatever else goes on: what others ask of the run, and what is not yet on the disk."""

from __future__ import annotations

import asyncio

from windlass.engine.services import RunServices, StopRequests
from windlass.errors import TakenOverError

POLL_S = 0.1


async def heed(parts: RunServices) -> None:
    """Ends when another driver took over; whoever writes next is told why."""
    version = 0  # what was asked before this driver began to look counts as well
    while True:
        try:
            parts.wanted.require_claim()
            now = parts.store.data_version()
            if now != version:
                version = now
                parts.journal.catch_up()
                obey(parts.wanted, parts.store.run(parts.world.facts.id).wanted)
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
