"""Threads in which the console renders what others wrote, so that no page holds the event loop."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")

_workers = ThreadPoolExecutor(2, "parley-console")
"""Few: each of them takes time from the event loop."""


async def off_loop(work: Callable[[], T]) -> T:
    """Run something that takes a while in one of a few threads."""
    return await asyncio.get_running_loop().run_in_executor(_workers, work)
