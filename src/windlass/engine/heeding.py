"""Looked at every moment, whatever else goes on: what others ask of the run, and what is not yet on the disk."""

from __future__ import annotations

import asyncio

from windlass.engine.parts import Parts, Wanted

POLL_S = 0.1


async def heed(parts: Parts) -> None:
    version = parts.store.data_version()
    while True:
        await asyncio.sleep(POLL_S)
        if parts.store.pending:
            await asyncio.to_thread(parts.store.sync)
        now = parts.store.data_version()
        if now != version:
            version = now
            parts.journal.catch_up()
            _obey(parts.wanted, parts.store.run(parts.world.facts.id).wanted)


def _obey(wanted: Wanted, word: str) -> None:
    if word == "pause":
        wanted.pause = "paused by the user"
    elif word == "abort":
        wanted.abort = True
        wanted.stop.set()
