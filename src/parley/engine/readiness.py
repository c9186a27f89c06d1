"""Whether work can be accepted: the store reads, and its writer commits."""

import asyncio
import time

from parley.engine.ports import LogStore
from parley.errors import ParleyError

WORKS_FOR_S = 5.0
"""How long a write that was committed proves that the writer works: probes come every second or so."""
FAILS_FOR_S = 1.0
PATIENCE_S = 2.0
"""How long the writer may take. Shorter than a container's health check waits for its answer."""


class Readiness:
    def __init__(self, store: LogStore, patience_s: float = PATIENCE_S) -> None:
        self._store = store
        self._patience_s = patience_s
        self._check: asyncio.Task[ParleyError | None] | None = None
        self._checked_until = 0.0

    async def error(self) -> ParleyError | None:
        """Return why the store cannot be used now; None if it can be."""
        try:
            await self._store.run_ids("", 1)
        except ParleyError as error:
            return error
        if self._check is None or (self._check.done() and time.monotonic() >= self._checked_until):
            self._check = asyncio.get_running_loop().create_task(self._check_writing())
        return await asyncio.shield(self._check)

    async def _check_writing(self) -> ParleyError | None:
        """One write for all who ask meanwhile."""
        error: ParleyError | None = None
        try:
            await self._store.check_writing(self._patience_s)
        except ParleyError as failure:
            error = failure
        self._checked_until = time.monotonic() + (FAILS_FOR_S if error else WORKS_FOR_S)
        return error
