"""Workers: several replicas on one machine, as processes of one server that share its addresses.

A supervisor binds the addresses, applies migrations once, and starts this same program again for each worker. It
serves nothing itself: it restarts a worker that dies, replaces them one by one on SIGHUP, and stops all on SIGTERM.
"""

import asyncio
import math
import os
import signal
import socket
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
from msgspec import Struct

from parley.definitions.watcher import DefinitionProblem
from parley.errors import ConfigurationError, WorkersNeedPostgres
from parley.http.server import Listening, bind, url_of
from parley.settings import Settings, postgres_url
from parley.stores.postgres import open_pool
from parley.telemetry import tell
from parley.telemetry.metrics import Gauge, merged

VARIABLE = "PARLEY_WORKER"
"""Environment variable by which a process learns that it is a worker."""
START_S = 60.0
"""Longest time in which the successor of a worker must be ready."""
HEALTHY_S = 10.0
"""A worker that lived for so long is restarted at once."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 30.0
"""Pauses before the restart of a worker that dies again and again; they double."""
SIBLING_S = 2.0
"""Longest time to wait for the metrics of another worker."""
_LEAVE = b"leave\n"
_CPU_LIMIT = Path("/sys/fs/cgroup/cpu.max")

Announce = Callable[[str, list[str], list[DefinitionProblem]], None]


def count_of(settings: Settings) -> int:
    """Return the number of workers to start; 1 if this process serves alone."""
    if settings.workers == 1:
        return 1
    if settings.store != "postgres":
        raise WorkersNeedPostgres(
            f"The setting workers needs PostgreSQL: with store = {settings.store} only one process can write. "
            "Set store to postgres, or workers to 1.",
            field="workers",
        )
    if sys.platform == "win32":
        raise ConfigurationError("On Windows the setting workers must be 1.", field="workers")
    return cores() if settings.workers == "auto" else settings.workers


def cores(limit: Path = _CPU_LIMIT) -> int:
    """Return the number of cores that this process may use; a container may have less than its machine."""
    affinity = getattr(os, "sched_getaffinity", None)
    found = len(affinity(0)) if affinity else os.cpu_count() or 1
    with suppress(OSError, ValueError):
        quota, period = limit.read_text().split()
        found = min(found, math.ceil(int(quota) / int(period)))  # "max" means no limit
    return max(1, found)


class WorkerPlace(Struct, frozen=True):
    """Data that a supervisor passes to a worker."""

    number: int
    count: int
    listener: int
    """File descriptor of the listening socket. All workers accept from the same one, so that no connection waits for a
    worker that is dead."""
    channel: int
    """File descriptor of the connection to the supervisor."""
    folder: str
    """Directory of the sockets by which workers read each other's metrics."""
    grpc_port: int | None
    """Port that every worker opens for itself, with SO_REUSEPORT: gRPC cannot accept from a given socket."""


class Worker:
    """This process as one of the workers of a server."""

    def __init__(self, place: WorkerPlace, roll_s: float) -> None:
        self.place = place
        self.roll_s = roll_s
        self._report: WorkerReady | None = None
        self._serves = asyncio.Event()
        self._leaving = asyncio.Event()
        """Set when a successor has taken this worker's place."""

    def listener(self) -> socket.socket:
        listener = socket.socket(fileno=self.place.listener)
        listener.set_inheritable(False)
        return listener

    @asynccontextmanager
    async def supervised(self, server: Listening, busy: Callable[[], bool]) -> AsyncGenerator[None, None]:
        """While open, stop or leave as the supervisor says; `busy` returns whether turns run here."""
        task = asyncio.get_running_loop().create_task(self._follow(server, busy))
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def ready(self, agents: list[str], problems: list[DefinitionProblem]) -> None:
        """Report to the supervisor that this worker serves."""
        self._report = WorkerReady(agents, problems)
        self._serves.set()

    async def _follow(self, server: Listening, busy: Callable[[], bool]) -> None:
        channel = socket.socket(fileno=self.place.channel)
        channel.set_inheritable(False)
        reader, writer = await asyncio.open_connection(sock=channel)
        await self._serves.wait()
        writer.write(msgspec.json.encode(self._report) + b"\n")
        while await reader.readline() == _LEAVE:
            self._leaving.set()
            server.leave(busy, self.roll_s)
        # The supervisor is gone: no one would restart or stop this worker.
        server.stop()

    @asynccontextmanager
    async def before_leaving(self, stop: Callable[[float], Awaitable[None]]) -> AsyncGenerator[None, None]:
        """While open, call `stop` once a successor has taken this worker's place, with the seconds that are left."""

        async def wait() -> None:
            await self._leaving.wait()
            await stop(self.roll_s)

        task = asyncio.get_running_loop().create_task(wait())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    # Metrics: any worker may be asked, and answers for all.

    @asynccontextmanager
    async def sharing(self, text: Callable[[], Awaitable[bytes]]) -> AsyncGenerator[None, None]:
        """While open, let the other workers read the metrics of this one. A successor takes the address over."""

        async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with suppress(ConnectionError):
                writer.write(await text())
                await writer.drain()
            writer.close()

        server = await asyncio.start_unix_server(answer, self._address(self.place.number))
        try:
            yield
        finally:
            server.close()

    async def with_siblings(self, own: bytes) -> tuple[bytes, list[Gauge]]:
        """Return the metrics of all workers, each with its number as a label, and how many workers have answered."""
        others = [number for number in range(1, self.place.count + 1) if number != self.place.number]
        found = zip(others, await asyncio.gather(*map(self._read, others)), strict=True)
        texts = {number: text for number, text in found if text} | {self.place.number: own}
        gauges = [
            Gauge("parley_workers", "Workers that this server should have.", {"": self.place.count}),
            Gauge("parley_workers_up", "Workers that answered this request.", {"": len(texts)}),
        ]
        return await asyncio.to_thread(merged, {str(number): texts[number] for number in sorted(texts)}), gauges

    async def _read(self, number: int) -> bytes:
        try:
            async with asyncio.timeout(SIBLING_S):
                reader, writer = await asyncio.open_unix_connection(self._address(number))
                text = await reader.read()
                writer.close()
        except (OSError, TimeoutError):
            return b""
        return text

    def _address(self, number: int) -> str:
        return f"{self.place.folder}/{number}"


class WorkerReady(Struct, frozen=True):
    """Report of a worker that serves: its agents, and the definitions that it cannot use."""

    agents: list[str]
    problems: list[DefinitionProblem]


def this_worker(settings: Settings) -> Worker | None:
    """Return this process as a worker; None if no supervisor has started it. Programs that it starts are no workers."""
    text = os.environ.pop(VARIABLE, None)
    return None if text is None else Worker(msgspec.json.decode(text, type=WorkerPlace), settings.roll_s)


# The supervisor.


class _Process:
    """A worker as its supervisor sees it."""

    def __init__(self, process: asyncio.subprocess.Process, channel: socket.socket) -> None:
        self._process = process
        self._channel = channel
        self._began = time.monotonic()
        self._writer: asyncio.StreamWriter | None = None
        self.ready: asyncio.Task[WorkerReady | None] = asyncio.get_running_loop().create_task(self._readied())

    async def _readied(self) -> WorkerReady | None:
        """Wait until the worker serves; None if it ends before."""
        reader, self._writer = await asyncio.open_connection(sock=self._channel)
        with suppress(ConnectionError):
            if line := await reader.readline():
                return msgspec.json.decode(line, type=WorkerReady)
        return None

    @property
    def lived_s(self) -> float:
        return time.monotonic() - self._began

    async def ended(self) -> int:
        return await self._process.wait()

    def leave(self) -> None:
        """Let it finish what it has, then stop."""
        if self._writer is None:
            return self.signal(signal.SIGTERM)
        with suppress(ConnectionError, RuntimeError):
            self._writer.write(_LEAVE)
        return None

    def signal(self, how: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            self._process.send_signal(how)


class Supervisor:
    def __init__(self, count: int, listener: socket.socket, grpc_port: int | None, folder: str) -> None:
        self._count = count
        self._listener = listener
        self._grpc_port = grpc_port
        self._folder = folder
        self._workers: dict[int, _Process] = {}
        """The worker in each place; others may still be leaving."""
        self._living: dict[_Process, asyncio.Task[int]] = {}
        self._stopping = asyncio.Event()
        self._asked_to_roll = asyncio.Event()

    async def run(self, announce: Callable[[WorkerReady], None]) -> int:
        """Keep the workers running until this process is told to stop. Return its exit code."""
        loop = asyncio.get_running_loop()
        for how in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(how, self._stop)
        loop.add_signal_handler(signal.SIGHUP, self._asked_to_roll.set)
        # One first: what is wrong with the settings or the definitions is then reported once.
        self._workers[1] = first = await self._launch(1)
        ready = await first.ready
        if ready is None:
            return 0 if self._stopping.is_set() else await self._living[first] or 1
        self._workers.update({number: await self._launch(number) for number in range(2, self._count + 1)})
        keeping = [loop.create_task(self._keep(number)) for number in self._workers]
        await asyncio.gather(*(worker.ready for worker in self._workers.values()))
        announce(ready)
        rolling = loop.create_task(self._roll())
        await self._stopping.wait()
        rolling.cancel()
        await asyncio.gather(rolling, *keeping, return_exceptions=True)
        codes = await asyncio.gather(*self._living.values())
        # A worker that was just starting had no handler for the signal yet.
        return max((abs(code) for code in codes if code != -signal.SIGTERM), default=0)

    def _stop(self) -> None:
        """Stop every worker; a second signal is passed on too, and ends their patience."""
        self._stopping.set()
        for worker in self._living:
            worker.signal(signal.SIGTERM)

    async def _launch(self, number: int) -> _Process:
        ours, theirs = socket.socketpair()
        place = WorkerPlace(
            number, self._count, self._listener.fileno(), theirs.fileno(), self._folder, self._grpc_port
        )
        with theirs:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                *sys.orig_argv[1:],
                env={**os.environ, VARIABLE: msgspec.json.encode(place).decode()},
                pass_fds=(place.listener, place.channel),
                # A terminal's Ctrl-C is for the supervisor, which passes it on.
                process_group=0,
            )
        worker = _Process(process, ours)
        self._living[worker] = task = asyncio.get_running_loop().create_task(worker.ended())
        task.add_done_callback(lambda _: self._living.pop(worker) if not self._stopping.is_set() else None)
        if self._stopping.is_set():
            worker.signal(signal.SIGTERM)
        return worker

    async def _keep(self, number: int) -> None:
        """Keep a worker in this place: start another one when it dies, after a pause if it dies soon."""
        pause = 0.0
        while not self._stopping.is_set():
            worker = self._workers[number]
            code = await worker.ended()
            if self._stopping.is_set() or self._workers[number] is not worker:
                continue
            pause = 0.0 if worker.lived_s > HEALTHY_S else min(max(2 * pause, FIRST_PAUSE_S), LONGEST_PAUSE_S)
            tell("worker.died", worker=number, code=code, pause_s=pause)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), pause)
            if not self._stopping.is_set() and self._workers[number] is worker:
                self._take(number, worker, await self._launch(number))

    def _take(self, number: int, before: _Process, fresh: _Process) -> None:
        """Give a place to a fresh worker, unless a roll has filled it meanwhile."""
        if self._workers[number] is before:
            self._workers[number] = fresh
        else:
            fresh.signal(signal.SIGTERM)

    async def _roll(self) -> None:
        """Replace the workers one after another, each time this is asked for."""
        while await self._asked_to_roll.wait():
            self._asked_to_roll.clear()
            tell("workers.rolling", workers=self._count)
            for number in range(1, self._count + 1):
                if not await self._replace(number):
                    break
            else:
                tell("workers.rolled", workers=self._count)

    async def _replace(self, number: int) -> bool:
        """Start a successor; when it is ready, let the worker leave. Return False if the successor did not start: then
        all that still serve go on as they are."""
        fresh = await self._launch(number)
        with suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(fresh.ready), START_S)
        if not fresh.ready.done() or fresh.ready.result() is None:
            fresh.signal(signal.SIGKILL)
            tell("worker.not_replaced", worker=number)
            return False
        before, self._workers[number] = self._workers[number], fresh
        before.leave()
        await before.ended()
        return True


def supervise(settings: Settings, count: int, grpc_port: int | None, announce: Announce) -> None:
    """Serve with this many workers until told to stop. Exit with an error if the first of them cannot start."""
    code = asyncio.run(_supervise(settings, count, grpc_port, announce))
    if code:
        sys.exit(code)


async def _supervise(settings: Settings, count: int, grpc_port: int | None, announce: Announce) -> int:
    await (await open_pool(postgres_url(settings), most=1)).close()  # applies migrations
    with (
        bind(settings.host, settings.port) as listener,
        _reserved(settings.host, grpc_port) as port,
        TemporaryDirectory(prefix="parley-workers-") as folder,
    ):
        base_url = (settings.public_url or url_of(listener)).rstrip("/")
        supervisor = Supervisor(count, listener, port, folder)
        return await supervisor.run(lambda ready: announce(base_url, ready.agents, ready.problems))


@contextmanager
def _reserved(host: str, port: int | None) -> Generator[int | None, None, None]:
    """Find out that a port is free, and keep it for the workers without listening on it."""
    if port is None:
        yield None
        return
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        try:
            holder.bind((host, port))
        except OSError as error:
            raise ConfigurationError(
                f"Cannot listen on {host}:{port} for gRPC: {error.strerror}.", field="grpc_port"
            ) from None
        yield holder.getsockname()[1]
