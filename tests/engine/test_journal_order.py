"""Keys, not call order, decide whose result a step gets: whatever finishes first, whenever the driver dies."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given
from hypothesis import strategies as st

from windlass.engine.journal import Journal
from windlass.model import Json, Key
from windlass.store.epoch import EpochClaim
from windlass.store.port import Store
from windlass.store.sqlite.store import SqliteStore


class DiedError(Exception):
    """The driver is gone."""


@contextmanager
def a_store() -> Iterator[Store]:
    with TemporaryDirectory() as folder:
        store = SqliteStore.open(Path(folder) / "w.db", lambda: 1.0, create=True)
        yield store
        store.close()


async def one(
    journal: Journal, branch: int, length: int, chance: random.Random, paid: list[str], die_at: int
) -> list[Json]:
    """A branch of dependent steps; each takes a random number of turns of the loop before it has its result."""
    results: list[Json] = []
    for n in range(length):
        key = Key().child("execute").child(f"t{branch}").child(f"s{n}")

        async def work(previous: Json, key: Key = key, before: tuple[Json, ...] = tuple(results)) -> Json:
            for _ in range(chance.randrange(5)):
                await asyncio.sleep(0)
            if len(paid) >= die_at:
                raise DiedError
            paid.append(key.text)
            return {"key": key.text, "before": len(before)}

        results.append(await journal.step(key, {"branch": branch, "before": list(results)}, work))
    return results


def drive(store: Store, lengths: list[int], seed: int, paid: list[str], die_at: int = 10**9) -> list[list[Json]] | None:
    journal, chance = Journal(store, EpochClaim("r1", 0)), random.Random(seed)
    numbers = list(range(len(lengths)))
    chance.shuffle(numbers)

    async def run() -> list[list[Json]]:
        tasks = {n: asyncio.create_task(one(journal, n, lengths[n], chance, paid, die_at)) for n in numbers}
        done = await asyncio.gather(*tasks.values(), return_exceptions=True)
        found = dict(zip(tasks, done, strict=True))
        for result in found.values():
            if isinstance(result, BaseException):
                raise result
        return [found[n] for n in range(len(lengths))]  # type: ignore[misc]

    try:
        return asyncio.run(run())
    except DiedError:
        return None


@given(
    lengths=st.lists(st.integers(1, 4), min_size=1, max_size=6),
    seeds=st.lists(st.integers(0, 10**6), min_size=2, max_size=5),
    deaths=st.lists(st.integers(0, 12), max_size=4),
)
def test_random_orders_and_deaths_give_the_same_results_and_nothing_is_paid_twice(
    lengths: list[int], seeds: list[int], deaths: list[int]
) -> None:
    with a_store() as store:
        expected = drive(store, lengths, seeds[0], [])
    with a_store() as store:
        paid: list[str] = []
        for death, seed in zip(deaths, seeds * 2, strict=False):
            drive(store, lengths, seed, paid, die_at=len(paid) + death)
        assert drive(store, lengths, seeds[-1], paid) == expected
    assert sorted(paid) == sorted(set(paid))
    assert len(paid) == sum(lengths)
