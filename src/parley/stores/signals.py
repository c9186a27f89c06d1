"""Signals over NATS, for many replicas: each hears only of what it follows, serves, or works on.

A run's growth is published under the run's own subject. A replica subscribes at once to runs that are followed here and
worked on elsewhere; within a second to those that work here, whose own growth it sees without NATS. As with every
adapter, a lost message only delays: all that is of interest is also read from the store once a second.
"""

import asyncio
import importlib
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Literal
from urllib.parse import quote, urlsplit

from parley import extras
from parley.errors import ConfigurationError
from parley.execution.cluster import Heard, Interest
from parley.ids import RunId
from parley.stores.cluster import LOOK_S, RECONNECT_S, Fetch, look
from parley.telemetry import tell

PREFIX = "parley"
EVERY_RUN = f"{PREFIX}.run.*"
MOST_PENDING = 10_000
"""Runs whose growth waits to be published; more are left to the look into the store."""
MOST_SUBJECTS = 10_000
"""Subjects that a replica subscribes to; what it follows beyond them is left to the look."""
PENDING_BYTES = 1 << 20
CLOSE_S = 1.0


def run_subject(run: str) -> str:
    return f"{PREFIX}.run.{run}"


def name_subject(name: str) -> str:
    """Return the subject of an agent, or of another name that is woken. Dots and wildcards mean something in one."""
    return f"{PREFIX}.name.{quote(name, safe='').replace('.', '%2E')}"


class NatsSignals:
    def __init__(self, url: str, fetch: Fetch) -> None:
        extras.check("nats", "The setting nats_url", field="nats_url")
        if urlsplit(url).scheme not in ("nats", "tls") or not urlsplit(url).hostname:
            raise ConfigurationError("The setting nats_url must be a URL nats://HOST or tls://HOST.", field="nats_url")
        self._url = url
        self._fetch = fetch
        self._nats: Any = None
        self._heard: Heard | None = None
        self._runs: dict[RunId, int] = {}
        self._names: set[str] = set()
        self._pending = asyncio.Event()
        self._subscribed: dict[str, Any] = {}
        """Subscriptions by subject."""
        self._wanted = asyncio.Event()
        """Set when something new is followed."""
        self._fresh: set[str] = set()
        self._lost = False
        self._tasks: list[asyncio.Task[None]] = []

    def tell(self, run: RunId, version: int) -> None:
        if len(self._runs) < MOST_PENDING:
            self._runs[run] = version
            self._pending.set()

    def wake(self, agent: str) -> None:
        self._names.add(agent)
        self._pending.set()

    async def listen(self, heard: Heard, of_interest: Interest) -> None:
        """Begin to listen. Returns without waiting for NATS, which may be down."""
        self._heard = heard
        of_interest.added.add(self._follow)
        loop = asyncio.get_running_loop()
        self._tasks = [
            loop.create_task(look(self._fetch, heard, of_interest)),
            loop.create_task(self._run(of_interest)),
        ]

    async def close(self) -> None:
        """Publish what is pending before closing: a replica may wait for it."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._nats is not None:
            with suppress(Exception):
                async with asyncio.timeout(CLOSE_S):
                    await self._publish()
                    await self._nats.flush()
            with suppress(Exception):
                async with asyncio.timeout(CLOSE_S):
                    await self._nats.close()

    async def _run(self, interest: Interest) -> None:
        self._nats = await self._connected()
        await asyncio.gather(self._send(), self._follow_new(), self._keep_subscribed(interest))

    async def _connected(self) -> Any:
        """Connect, however long it takes. The client connects again by itself later, and subscribes again."""
        nats: Any = importlib.import_module("nats")
        while True:
            try:
                client = await nats.connect(
                    self._url,
                    name="parley",
                    no_echo=True,
                    max_reconnect_attempts=-1,
                    reconnect_time_wait=RECONNECT_S,
                    connect_timeout=2,
                    ping_interval=5,
                    max_outstanding_pings=2,
                    pending_size=PENDING_BYTES,
                    error_cb=self._failed,
                    disconnected_cb=self._disconnected,
                    reconnected_cb=self._reconnected,
                )
            except Exception as error:  # noqa: BLE001 - the client raises errors of many kinds
                self._report(error)
                await asyncio.sleep(RECONNECT_S)
                continue
            self._lost = False
            return client

    async def _failed(self, error: Exception) -> None:
        """Report that the first connection fails. Later ones do so again and again after they were lost."""
        if self._nats is None:
            self._report(error)

    async def _disconnected(self) -> None:
        self._report(None)

    async def _reconnected(self) -> None:
        self._lost = False

    def _report(self, error: BaseException | None) -> None:
        """Report once that the connection is lost, until it is there again."""
        if not self._lost:
            self._lost = True
            tell("signals.lost", error=error)

    async def _send(self) -> None:
        """Publish what is pending; what is added meanwhile waits for the next round."""
        while True:
            await self._pending.wait()
            await self._attempt(self._publish)

    async def _publish(self) -> None:
        self._pending.clear()
        runs, names = self._runs, self._names
        self._runs, self._names = {}, set()
        if not self._nats.is_connected:
            return
        for run, version in runs.items():
            await self._nats.publish(run_subject(run), b"%d" % version)
        for name in names:
            await self._nats.publish(name_subject(name), name.encode())

    async def _attempt(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except Exception as error:  # noqa: BLE001 - the client raises errors of many kinds; a signal may be lost
            self._report(error)

    def _follow(self, kind: Literal["run", "name"], name: str) -> None:
        self._fresh.add(run_subject(name) if kind == "run" else name_subject(name))
        self._wanted.set()

    async def _follow_new(self) -> None:
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            fresh, self._fresh = self._fresh, set()
            await self._attempt(lambda fresh=fresh: self._subscribe(fresh))

    async def _keep_subscribed(self, interest: Interest) -> None:
        """Once a second, subscribe to what is followed now, and to nothing else."""
        while True:
            await self._attempt(lambda: self._settle(_subjects(interest)))
            await asyncio.sleep(LOOK_S)

    async def _settle(self, wanted: set[str]) -> None:
        for subject in self._subscribed.keys() - wanted:
            await self._subscribed.pop(subject).unsubscribe()
        await self._subscribe(wanted)

    async def _subscribe(self, subjects: set[str]) -> None:
        for subject in subjects - self._subscribed.keys():
            if len(self._subscribed) >= MOST_SUBJECTS:
                return
            self._subscribed[subject] = await self._nats.subscribe(subject, cb=self._receive)

    async def _receive(self, message: Any) -> None:
        if self._heard is None:
            return
        _, kind, name = message.subject.split(".")
        if kind == "run":
            self._heard([(RunId(name), int(message.data))], [])
        else:
            self._heard([], [message.data.decode()])


def _subjects(interest: Interest) -> set[str]:
    runs = {EVERY_RUN} if interest.everything() else {run_subject(run) for run in interest()}
    return runs | {name_subject(name) for name in interest.names()}
