"""Reading on from a cursor: what it costs must not depend on how much lies before or beside it."""

import random
import statistics
from collections.abc import Sequence
from functools import partial
from time import perf_counter

import uvloop

from dev.bench.appends import MARKED_LENGTH, MILLION
from dev.bench.data import Log, filled
from dev.bench.rows import Case
from parley.stores.sqlite import SqliteStore

READS = 1000
PAGE = 100
LONG = 1_000_000


def cases() -> list[Case]:
    short = partial(read_cost, "short-run", [MARKED_LENGTH], MARKED_LENGTH)
    beside = f"run of {MARKED_LENGTH:,} alone"
    return [
        Case("read.long-run", "µs", partial(read_cost, "long-run", [LONG], LONG), beside, short, "max", 1.3),
        Case("read.long-log", "µs", partial(read_cost, "million", MILLION, MARKED_LENGTH), beside, short),
    ]


def read_cost(name: str, lengths: Sequence[int], length: int) -> float:
    """Median microseconds for a page after a cursor in the middle half of the log's longest run."""
    return uvloop.run(_read_cost(filled(name, lengths), length))


async def _read_cost(log: Log, length: int) -> float:
    store = SqliteStore(log.directory)
    chance = random.Random(length)
    times: list[float] = []
    for _ in range(READS):
        # A new place each time: one and the same page would come from SQLite's cache.
        cursor = chance.randrange(length // 4, length * 3 // 4)
        started = perf_counter()
        events = await store.read(log.run, cursor, PAGE)
        times.append(perf_counter() - started)
        assert [events[0].seq, len(events)] == [cursor + 1, PAGE]
    await store.close()
    return statistics.median(times) * 1e6
