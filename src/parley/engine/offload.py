"""Keep the event loop free: short work is done at once, long work in a thread."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from typing import TypeVar

T = TypeVar("T")

LARGE = 500
"""Items (events, messages, chunks) above which work is long: some milliseconds."""
LARGE_BYTES = 256 * 1024


async def off_loop(size: int, work: Callable[[], T]) -> T:
    """The result of `work` on so many items. It runs in a thread where they are many, so it must not share anything
    that changes meanwhile."""
    return work() if size <= LARGE else await asyncio.to_thread(work)


async def off_loop_bytes(size: int, work: Callable[[], T]) -> T:
    """The same by the number of bytes that `work` reads or writes."""
    return work() if size <= LARGE_BYTES else await asyncio.to_thread(work)


async def paced(items: Sequence[T]) -> AsyncGenerator[Iterable[T], None]:
    """The items in batches, with a round of the loop between two of them."""
    for first in range(0, len(items), LARGE):
        if first:
            await asyncio.sleep(0)
        yield items[first : first + LARGE]
