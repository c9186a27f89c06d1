"""Tracebacks of agents' exceptions, for operators: stored beside the run, without secrets, as long as its events."""

import asyncio
import traceback

from parley.clock import Clock, now_ms
from parley.errors import ParleyError
from parley.ids import RunId
from parley.records import Record, Records
from parley.runs.rules.access import Principal
from parley.runs.rules.state import Run
from parley.telemetry import tell
from parley.tools.rules.redaction import sanitised_error

KIND = "traceback"
MAX_CHARACTERS = 16_000
MOST_FRAMES = 30
_READ_CHARACTERS = 4 * MAX_CHARACTERS
"""Characters that are searched for secrets: more than are kept, so that no secret is kept because it was cut."""
PATIENCE_S = 2.0


def written(error: BaseException) -> str:
    """Return the end of an exception's traceback as text, without secrets."""
    lines = traceback.TracebackException.from_exception(error, limit=-MOST_FRAMES, compact=True).format()
    text = "".join(lines)[-_READ_CHARACTERS:]
    return sanitised_error(text)[-MAX_CHARACTERS:]


# Why: docs/decisions/runs.md#store-tracebacks-beside-the-log
class Tracebacks:
    def __init__(self, records: Records, clock: Clock = now_ms) -> None:
        self._records = records
        self._clock = clock

    async def raised(self, run: Run, error: BaseException) -> None:
        """Store the traceback of the exception that ended a turn. The run fails all the same if that is impossible."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                body = written(error).encode(errors="replace")
                await self._records.put(Record(KIND, run.id, "last", body, self._clock()))
        except Exception as trouble:  # noqa: BLE001 - an exception of an agent may even fail to be printed
            tell("traceback.not_stored", run=run.id, agent=run.agent, error=trouble)

    async def forget(self, run: RunId) -> None:
        await self._records.delete(KIND, run, "last")

    async def read(self, run: Run, principal: Principal) -> str:
        """Return the traceback of a failed run; empty if there is none, or if the principal is no administrator."""
        if run.code != "agent_error" or not principal.may("operate"):
            return ""
        try:
            found = await self._records.get(KIND, run.id, "last")
        except ParleyError:
            return ""
        return found.body.decode(errors="replace") if found else ""
