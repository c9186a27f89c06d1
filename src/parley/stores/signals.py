"""Tell the other replicas what was just committed: PostgreSQL's NOTIFY, after the commit, many runs in one.

A signal only wakes: what it says is read from the store. One that is lost costs a moment, not an event.
"""

import asyncio
from collections.abc import Callable

from parley.engine.ports import Heard
from parley.errors import ParleyError
from parley.ids import RunId, new_id
from parley.stores.pool import TROUBLE, Connection, Pool, connect
from parley.telemetry import tell

CHANNEL = "parley"
MAX_PAYLOAD = 7900
RECONNECT_S = 0.5
LOOK_S = 1.0


class NoSignals:
    """There is nobody else to tell."""

    def tell(self, run: RunId, version: int) -> None:
        return

    def wake(self, agent: str) -> None:
        return

    async def listen(self, heard: Heard, of_interest: Callable[[], list[RunId]]) -> None:
        return

    async def close(self) -> None:
        return


class PostgresSignals:
    def __init__(self, url: str, pool: Pool) -> None:
        self._url = url
        self._pool = pool
        self._sender = new_id()
        self._runs: dict[RunId, int] = {}
        self._agents: set[str] = set()
        self._pending = asyncio.Event()
        self._connection: Connection = None
        self._tasks: list[asyncio.Task[None]] = []
        self._heard: Heard | None = None

    def tell(self, run: RunId, version: int) -> None:
        self._runs[run] = version
        self._pending.set()

    def wake(self, agent: str) -> None:
        self._agents.add(agent)
        self._pending.set()

    async def listen(self, heard: Heard, of_interest: Callable[[], list[RunId]]) -> None:
        self._heard = heard
        await self._connect()
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._send()), loop.create_task(self._look(heard, of_interest))]

    async def close(self) -> None:
        """What is pending is still told: somebody may wait for it."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._connection is not None and not self._connection.is_closed():
            for payload in self._taken():
                await self._connection.execute("SELECT pg_notify($1, $2)", CHANNEL, payload)
            await self._connection.close()

    async def _connect(self) -> None:
        self._connection = await connect(self._url, synchronous_commit="off")
        await self._connection.add_listener(CHANNEL, self._receive)

    async def _send(self) -> None:
        """One notification at a time; what comes meanwhile goes into the next."""
        while True:
            await self._pending.wait()
            await self._flush()

    def _taken(self) -> list[str]:
        """What is pending, as payloads."""
        self._pending.clear()
        words = [f"{run} {version}" for run, version in self._runs.items()] + [f"@{agent}" for agent in self._agents]
        self._runs, self._agents = {}, set()
        return _packed(self._sender, words)

    async def _look(self, heard: Heard, of_interest: Callable[[], list[RunId]]) -> None:
        """One read per second for everything of interest: a lost notification only delays."""
        while True:
            await asyncio.sleep(LOOK_S)
            if runs := of_interest():
                try:
                    rows = await self._pool.fetch("SELECT run_id, version FROM runs WHERE run_id = ANY($1)", runs)
                except ParleyError as error:
                    tell("signals.lost", error=error)
                    continue
                heard([(RunId(row[0]), row[1]) for row in rows], [])

    async def _flush(self) -> None:
        try:
            for payload in self._taken():
                await self._connection.execute("SELECT pg_notify($1, $2)", CHANNEL, payload)
        except TROUBLE as error:
            tell("signals.lost", error=error)
            await self._reconnect()

    async def _reconnect(self) -> None:
        while True:
            await asyncio.sleep(RECONNECT_S)
            try:
                return await self._connect()
            except TROUBLE:
                continue

    def _receive(self, _connection: object, _pid: int, _channel: str, payload: object) -> None:
        sender, *words = str(payload).split("\n")
        if sender == self._sender or self._heard is None:
            return
        runs: list[tuple[RunId, int]] = []
        agents: list[str] = []
        for word in words:
            if word.startswith("@"):
                agents.append(word[1:])
            else:
                run, _, version = word.rpartition(" ")
                runs.append((RunId(run), int(version)))
        self._heard(runs, agents)


def _packed(sender: str, words: list[str]) -> list[str]:
    """As few payloads as the limit of NOTIFY allows."""
    payloads: list[str] = []
    current = sender
    for word in words:
        if len(current) + len(word) + 1 > MAX_PAYLOAD:
            payloads.append(current)
            current = sender
        current += "\n" + word
    return [*payloads, current] if words else []
