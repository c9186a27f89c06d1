"""Waiting for one who is gone for the moment."""

import asyncio
import random
import time

from parley.drivers.remote.words import Lost

_PAUSES_S = (0.05, 0.1, 0.25, 0.5, 1.0, 2.0)


class Patience:
    """Waits a little longer each time, and gives up after a while without a sign of life."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.renew()

    def renew(self) -> None:
        self._tries = 0
        self._since = time.monotonic()

    async def wait(self, lost: Lost) -> None:
        pause = _PAUSES_S[min(self._tries, len(_PAUSES_S) - 1)] * random.uniform(0.5, 1.0)
        if time.monotonic() + pause - self._since > self._seconds:
            raise lost
        self._tries += 1
        await asyncio.sleep(pause)
