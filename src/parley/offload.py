"""Keep the event loop responsive: short work runs at once, long work in a thread."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from typing import TypeVar

T = TypeVar("T")

LARGE = 500
"""Number of items (events, messages, chunks) above which work takes some milliseconds and counts as long."""
LARGE_BYTES = 256 * 1024


async def off_loop(size: int, work: Callable[[], T]) -> T:
    """Return the result of `work` on `size` items. With many items it runs in a thread, so it must not share anything
    that changes meanwhile."""
    return work() if size <= LARGE else await asyncio.to_thread(work)


async def off_loop_bytes(size: int, work: Callable[[], T]) -> T:
    """Return the result of `work`; like `off_loop`, decided by the number of bytes that `work` reads or writes."""
    return work() if size <= LARGE_BYTES else await asyncio.to_thread(work)


async def paced(items: Sequence[T]) -> AsyncGenerator[Iterable[T], None]:
    """Yield the items in batches, and let the event loop run between two batches."""
    for first in range(0, len(items), LARGE):
        if first:
            await asyncio.sleep(0)
        yield items[first : first + LARGE]
