"""Heartbeats of many nodes at their cadence, with a burst in between, and discoveries against the clock meanwhile.

Open loop: requests are sent when they are due, whether the server keeps up or not. Standard library only, as `load.py`.
"""

import argparse
import asyncio
import gc
import json
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import cycle
from pathlib import Path
from time import perf_counter
from typing import Any, cast
from urllib.parse import urlsplit

from load import Reply, percentile

CADENCE_S = 30.0
BURST = 3
BURST_SHARE = 0.05
"""Share of the time."""
DISCOVERIES = 50
"""Discoveries per second."""
CONNECTIONS = 64
TICK_S = 0.005

Done = Callable[[float, Reply], None]


class Connection(asyncio.Protocol):
    def __init__(self, pool: "Pool") -> None:
        self._pool = pool
        self._reply = Reply()
        self._asked = 0.0
        self._done: Done | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def send(self, asked: float, request: bytes, done: Done) -> None:
        self._reply, self._asked, self._done = Reply(), asked, done
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        self._reply.feed(data)
        if self._reply.done and self._done is not None:
            self._done(perf_counter() - self._asked, self._reply)
            self._pool.free(self)


class Pool:
    """Connections that stay open; what finds none free waits in order, and its time runs."""

    def __init__(self) -> None:
        self._idle: list[Connection] = []
        self._waiting: deque[tuple[float, bytes, Done]] = deque()

    async def open(self, host: str, port: int, size: int) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(size):
            _, protocol = await loop.create_connection(lambda: Connection(self), host, port)
            self._idle.append(protocol)

    def send(self, request: bytes, done: Done) -> None:
        if self._idle:
            self._idle.pop().send(perf_counter(), request, done)
        else:
            self._waiting.append((perf_counter(), request, done))

    def free(self, connection: Connection) -> None:
        if self._waiting:
            connection.send(*self._waiting.popleft())
        else:
            self._idle.append(connection)


class Load:
    def __init__(self, host: str, port: int, nodes: list[dict[str, str]]) -> None:
        self._host, self._port = host, port
        self._nodes = nodes
        self._beats, self._finds = Pool(), Pool()
        self.beaten: list[float] = []
        self.found: list[float] = []
        self.errors = 0
        self.first_error: str | None = None

    async def run(self, seconds: float) -> dict[str, Any]:
        await self._beats.open(self._host, self._port, CONNECTIONS)
        await self._finds.open(self._host, self._port, 4)
        beats, finds = cycle(map(self._beat, self._nodes)), cycle(map(self._find, self._nodes))
        rate = len(self._nodes) / CADENCE_S
        await asyncio.gather(
            self._paced(beats, seconds, rate, self._beats, self.beaten, BURST),
            self._paced(finds, seconds, DISCOVERIES, self._finds, self.found, 1),
        )
        await asyncio.sleep(1.0)
        return {
            "beats": len(self.beaten), "beat_p99_ms": percentile(sorted(self.beaten), 0.99),
            "count": len(self.found), "p50_ms": percentile(sorted(self.found), 0.5),
            "p99_ms": percentile(sorted(self.found), 0.99), "errors": self.errors, "first_error": self.first_error,
        }  # fmt: skip

    async def _paced(
        self, requests: Iterator[bytes], seconds: float, rate: float, pool: Pool, times: list[float], most: float
    ) -> None:
        """At a rate, and `most` times as fast for a while in the middle."""
        begin = due = perf_counter()
        bursts, calm = begin + seconds / 2, begin + seconds * (0.5 + BURST_SHARE)
        while due < begin + seconds:
            while due <= perf_counter():
                pool.send(next(requests), self._noting(times))
                due += 1 / (rate * most if bursts <= due < calm else rate)
            await asyncio.sleep(TICK_S)

    def _noting(self, times: list[float]) -> Done:
        def done(seconds: float, reply: Reply) -> None:
            if reply.status == b"200":
                times.append(seconds)
            else:
                self.errors += 1
                self.first_error = self.first_error or f"{reply.status.decode()}: {reply.body.decode()[:500]}"

        return done

    def _beat(self, node: dict[str, str]) -> bytes:
        body = json.dumps({"workspace_id": node["id"], "error_rate": 0.0, "active_tasks": 1, "uptime_seconds": 12})
        head = (
            f"POST /registry/heartbeat HTTP/1.1\r\nHost: {self._host}:{self._port}\r\n"
            f"Authorization: Bearer {node['token']}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n{body}"
        )
        return head.encode()

    def _find(self, node: dict[str, str]) -> bytes:
        head = (
            f"GET /registry/discover/{node['peer']} HTTP/1.1\r\nHost: {self._host}:{self._port}\r\n"
            f"X-Workspace-ID: {node['id']}\r\nAuthorization: Bearer {node['token']}\r\n\r\n"
        )
        return head.encode()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", required=True)
    parser.add_argument("--nodes", type=Path, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    given = parser.parse_args()
    gc.disable()
    parts = urlsplit(given.url)
    load = Load(parts.hostname or "127.0.0.1", parts.port or 80, json.loads(given.nodes.read_text()))
    print(json.dumps(asyncio.run(load.run(given.seconds))))


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        main()
