"""Waits for conditions that give no signal."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable

__all__ = ["until"]


async def until(condition: Callable[[], bool | Awaitable[bool]], timeout_s: float = 10.0) -> None:
    """Wait until a condition holds, checking every 10 ms; raise TimeoutError after `timeout_s`."""
    async with asyncio.timeout(timeout_s):
        while True:
            answer = condition()
            if await answer if inspect.isawaitable(answer) else answer:
                return
            await asyncio.sleep(0.01)
