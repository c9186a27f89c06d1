"""A thousand long polls of one task (A2A 1.1): their cost while nothing happens, and how soon the last has a change.

The clients are sockets in this process, as those of `subscribers`, for streams and long polls alike.
"""

import os
import select
import signal
import socket
import time
from collections.abc import Callable
from time import perf_counter
from urllib.parse import urlsplit

from dev.bench import peers
from dev.bench.data import scratch
from dev.bench.rows import Case
from dev.bench.servers import HERE, PARLEY
from dev.bench.subscribers import worked
from dev.bench.subscriptions import asked

COUNT = 1000
EVENTS = 8
IDLE_S = 10.0
SETTLE_S = 3.0
"""Time in which the server has accepted all long polls, also on a busy machine."""
WAIT_S = 30.0
READ = 65536
ALLOWED_IDLE = 1.0


def cases() -> list[Case]:
    return [
        Case("polls.idle", "%", lambda: measure(idle), "allowed", lambda: ALLOWED_IDLE, "max", 1.0,
             note=lambda _: f"of a core, for {COUNT:,} long polls over HTTP+JSON"),
        Case("polls.wake", "ms", lambda: measure(woken), "streams", lambda: measure(streamed), "max", 2.0,
             note=lambda _: f"p99 of {COUNT:,} clients, {EVENTS - 1} changes"),
    ]  # fmt: skip


def measure(how: Callable[["Clients", int], float]) -> float:
    agent = str(HERE / "pulse_agent.py")
    options = {"PARLEY_LONG_POLL_S": "600"}
    with (
        scratch() as directory,
        peers.running(PARLEY, "serve", agent, "--data-dir", str(directory), env=options) as (url, pid),
    ):
        address = f"{url}agents/pulse"
        message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "go"}]}
        begun = asked(address, "SendMessage", message=message, configuration={"returnImmediately": True})
        clients = Clients(address, begun["task"]["id"])
        try:
            return how(clients, pid)
        finally:
            clients.close()


def idle(clients: "Clients", pid: int) -> float:
    """Percent of a core that the server takes while nothing happens."""
    clients.poll(clients.settled(pid))
    time.sleep(2.0)
    before = worked(pid)
    time.sleep(IDLE_S)
    return 100 * (worked(pid) - before) / IDLE_S


def woken(clients: "Clients", pid: int) -> float:
    times: list[float] = []
    generation = clients.settled(pid)
    for number in range(EVENTS):
        clients.poll(generation)
        time.sleep(SETTLE_S)
        took = clients.reached(pid)
        times += took if number else []
        generation += 1
    return _p99_ms(times)


def streamed(clients: "Clients", pid: int) -> float:
    clients.settled(pid)
    clients.subscribe()
    times: list[float] = []
    for number in range(EVENTS):
        time.sleep(0.5)
        took = clients.reached(pid)
        times += took if number else []
    return _p99_ms(times)


class Clients:
    """Sockets that each wait for one task, by a long poll or a stream."""

    def __init__(self, address: str, task: str) -> None:
        parts = urlsplit(address)
        self._host = (parts.hostname or "127.0.0.1", parts.port or 80)
        self._path = f"{parts.path}/tasks/{task}"
        self._poll = select.epoll()
        self._sockets: dict[int, socket.socket] = {}

    def settled(self, pid: int) -> int:
        """Let the agent begin; return the generation of the task, which then changes only with a signal."""
        time.sleep(1.0)
        one = socket.create_connection(self._host)
        one.sendall(self._request("GET", self._path))
        text = b""
        while b"generation" not in text:
            text += one.recv(READ)
        one.close()
        return int(text.partition(b'"generation":')[2].split(b"}")[0].split(b",")[0])

    def poll(self, generation: int) -> None:
        """Ask each client's long poll, on its connection of before."""
        self._open()
        request = self._request("GET", f"{self._path}?currentGeneration={generation}")
        for one in self._sockets.values():
            one.send(request)

    def subscribe(self) -> None:
        """Open each client's stream, and wait for its first event."""
        self._open()
        for one in self._sockets.values():
            one.send(self._request("POST", f"{self._path}:subscribe"))
        self._read(b"data: ")

    def reached(self, pid: int) -> list[float]:
        """Return the seconds from a change until each client has it."""
        began = perf_counter()
        os.kill(pid, signal.SIGUSR1)
        return [at - began for at in self._read(b"TASK_STATE_")]

    def close(self) -> None:
        for one in self._sockets.values():
            one.close()

    def _open(self) -> None:
        while len(self._sockets) < COUNT:
            one = socket.create_connection(self._host)
            one.setblocking(False)
            self._sockets[one.fileno()] = one
            self._poll.register(one.fileno(), select.EPOLLIN)

    def _read(self, word: bytes) -> list[float]:
        """Wait until each client has read this word. Return the times."""
        times: dict[int, float] = {}
        deadline = perf_counter() + WAIT_S
        while len(times) < COUNT:
            if perf_counter() > deadline:
                raise RuntimeError(f"{COUNT - len(times)} of {COUNT} clients got nothing")
            time.sleep(0.001)
            for fd, _ in self._poll.poll(0, READ):
                if word in os.read(fd, READ):
                    times.setdefault(fd, perf_counter())
        return list(times.values())

    def _request(self, method: str, path: str) -> bytes:
        host = f"{self._host[0]}:{self._host[1]}"
        length = "" if method == "GET" else "Content-Length: 0\r\n"
        return f"{method} {path} HTTP/1.1\r\nHost: {host}\r\nA2A-Version: 1.1\r\n{length}\r\n".encode()


def _p99_ms(times: list[float]) -> float:
    return 1000 * sorted(times)[int(len(times) * 0.99)]
