"""Thousands of clients that read one stream each, and how long it takes until the last of them has an event.

Standard library only: sockets and epoll, a search for one word in what arrives and nothing else, so that the clients
stay cheaper than any server that has to write to them.
"""

import argparse
import gc
import json
import os
import resource
import select
import signal
import socket
import statistics
import struct
import sys
import time
from pathlib import Path
from time import perf_counter
from urllib.parse import urlsplit

AT_ONCE = 50
SETTLE_S = 4.0
"""Longer than the silence after which a server sends a comment: every stream has been through all it does."""

PAUSE_S = 0.3
WAIT_S = 30.0
LOOK_S = 0.001
WORD = b"data: "
READ = 65536


class Subscribers:
    def __init__(self, url: str, body: str) -> None:
        parts = urlsplit(url)
        self._address = (parts.hostname or "127.0.0.1", parts.port or 80)
        self._request = (
            f"POST {parts.path or '/'} HTTP/1.1\r\nHost: {self._address[0]}:{self._address[1]}\r\n"
            "Content-Type: application/json\r\nAccept: text/event-stream\r\nA2A-Version: 1.0\r\n"
            f"Content-Length: {len(body)}\r\n\r\n{body}"
        ).encode()
        self._poll = select.epoll()
        self._sockets: dict[int, socket.socket] = {}
        self._seen = 0
        self.latest = b""

    def open(self, count: int) -> None:
        """A few at a time; each is open when it has its first event."""
        for _ in range(0, count, AT_ONCE):
            for _ in range(AT_ONCE):
                one = socket.create_connection(self._address)
                one.setblocking(False)
                self._sockets[one.fileno()] = one
                self._poll.register(one.fileno(), select.EPOLLIN)
                one.send(self._request)
            self._until(AT_ONCE)

    def reach(self, pid: int) -> float:
        """Seconds from the signal until every client has read what followed from it."""
        started = perf_counter()
        os.kill(pid, signal.SIGUSR1)
        self._until(len(self._sockets))
        return perf_counter() - started

    def rest(self, seconds: float) -> None:
        """Read what comes, comments for instance, but nothing that counts."""
        deadline = perf_counter() + seconds
        while perf_counter() < deadline:
            self._read()
        if self._seen:
            raise RuntimeError(f"{self._seen} events came unasked")

    def close(self) -> None:
        """Cut off, not closed: thousands of ports would stay taken for a minute."""
        for one in self._sockets.values():
            one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            one.close()

    def _until(self, events: int) -> None:
        deadline = perf_counter() + WAIT_S
        while self._seen < events:
            if perf_counter() > deadline:
                raise RuntimeError(f"{events - self._seen} of {events} clients got nothing; one got {self.latest!r}")
            self._read()
        self._seen -= events

    def _read(self) -> None:
        """Look now and then instead of waiting: being woken for each write would cost the server more than writing."""
        time.sleep(LOOK_S)
        for fd, _ in self._poll.poll(0, READ):
            data = os.read(fd, READ)
            if not data:
                raise RuntimeError(f"the server closed a stream; its last words were {self.latest!r}")
            if WORD in data:
                self._seen += 1
                self.latest = data


def resident(pid: int) -> int:
    """Bytes of memory that the process occupies; what the kernel keeps for its sockets is not among them."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def worked(pid: int) -> float:
    """Seconds that the process's main thread has been on a processor."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


def measure(url: str, pid: int, body: str, count: int, events: int) -> dict[str, object]:
    warm = Subscribers(url, body)
    warm.open(AT_ONCE)
    warm.close()
    time.sleep(1.0)
    before = resident(pid)
    clients = Subscribers(url, body)
    started = perf_counter()
    clients.open(count)
    opened = perf_counter() - started
    clients.rest(SETTLE_S)
    after = resident(pid)
    times: list[float] = []
    work: list[float] = []
    for _ in range(events):
        busy = worked(pid)
        times.append(clients.reach(pid))
        work.append(worked(pid) - busy)
        clients.rest(PAUSE_S)
    clients.close()
    return {
        "open_s": round(opened, 3),
        "kb_each": (after - before) / count / 1000,
        "reach_ms": statistics.median(times[1:]) * 1000 if events > 1 else None,
        "work_ms": statistics.median(work[1:]) * 1000 if events > 1 else None,
        "times_ms": [round(one * 1000, 1) for one in times],
        "bytes": len(clients.latest),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", required=True)
    parser.add_argument("--pid", type=int, required=True, help="the server's process, to be told and weighed")
    parser.add_argument("--body", required=True, help="the request that opens a stream")
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--events", type=int, default=8, help="the first of them is not counted")
    given = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    gc.disable()
    json.dump(measure(given.url, given.pid, given.body, given.count, given.events), sys.stdout)


if __name__ == "__main__":
    main()
