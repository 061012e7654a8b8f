"""Polls the database every 100 ms for the requests of other processes, and syncs unsynced writes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from msgspec import json

from windlass.engine.journal import Journal
from windlass.engine.services import Detour, StopRequests
from windlass.errors import TakenOverError

POLL_S = 0.1


async def poll_requests(journal: Journal, requests: StopRequests) -> None:
    """Ends when another driver took over; the next write raises the reason."""
    store, version = journal.store, 0  # requests from before the first poll count too
    while True:
        try:
            requests.require_claim()
            now = store.data_version()
            if now != version:
                version = now
                journal.events.catch_up()
            requests.read()
        except TakenOverError:
            requests.taken_over = True
            requests.stop.set()
            return
        await asyncio.sleep(POLL_S)
        if store.pending:
            await asyncio.to_thread(store.sync)


def request_reader(journal: Journal, requests: StopRequests) -> Callable[[], None]:
    """Reads the store only if another process has written to it."""
    store, version = journal.store, 0

    def read() -> None:
        nonlocal version
        now = store.data_version()
        if now != version:
            version = now
            apply_request(requests, store.runs.get(journal.run).wanted)

    return read


def apply_request(requests: StopRequests, word: str) -> None:
    if word.startswith("{"):
        requests.want(json.decode(word, type=Detour))
    elif word == "pause":
        requests.pause = "paused by the user"
    elif word == "abort":
        requests.abort = True
        requests.stop.set()
