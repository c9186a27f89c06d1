"""Ten times what an agent may be asked: `python -m dev.bench.overload [SECONDS]`.

One server on SQLite, whose agent is capped at 50 runs a second. Requests come at their times, whether or not earlier
ones were answered: first a little less than the cap, which is the normal, then ten times the cap. The exit code is 1
when the server does not stay up, answers anything but 200 and 429, lets in more than the cap, when the p99 of what it
lets in is over three times the normal, or when its memory has grown by more than a fifth.
"""

import asyncio
import json
import sys
from collections import defaultdict
from time import perf_counter
from urllib.parse import urlsplit

import uvloop
from msgspec import Struct

from dev.bench import peers
from dev.bench.data import scratch
from dev.bench.runtime import resident_mb
from dev.bench.servers import HERE, PARLEY
from parley.ids import new_id

CAP = 50
NORMAL, OFFERED = 45, 500
WARM_S, SECONDS = 10.0, 120.0
SLOWER, GROWTH = 3.0, 1.2


class Seen(Struct):
    took: dict[int, list[float]]
    """By status, in milliseconds."""
    seconds: float

    def p99(self, status: int) -> float:
        times = sorted(self.took[status])
        return times[int(len(times) * 0.99)]

    def count(self, status: int) -> int:
        return len(self.took[status])

    def rate(self, status: int | None = None) -> float:
        return sum(len(times) for known, times in self.took.items() if status in (None, known)) / self.seconds


class Connections:
    """Open ones, taken in turn. Plain bytes, because the client must be much cheaper than the server."""

    def __init__(self, url: str) -> None:
        self._place = urlsplit(url)
        self._free: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def ask(self) -> int:
        """The status of one send."""
        host, port = self._place.hostname or "", self._place.port
        # The server closes connections that were idle for a while.
        while self._free and self._free[-1][0].at_eof():
            self._free.pop()[1].close()
        reader, writer = self._free.pop() if self._free else await asyncio.open_connection(host, port)
        writer.write(_request(f"{host}:{port}"))
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length:")[2].partition(b"\r")[0])
        await reader.readexactly(length)
        self._free.append((reader, writer))
        return int(head.split(b" ", 2)[1])

    def close(self) -> None:
        for _, writer in self._free:
            writer.close()


def _request(host: str) -> bytes:
    message = {"messageId": new_id(), "role": "ROLE_USER", "parts": [{"text": "hello"}]}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}).encode()
    return (
        b"POST /agents/echo HTTP/1.1\r\nhost: %b\r\na2a-version: 1.0\r\ncontent-type: application/json\r\n"
        b"content-length: %d\r\n\r\n%b"
    ) % (host.encode(), len(body), body)


async def offer(url: str, per_second: float, seconds: float) -> Seen:
    """An open loop: what is slow does not slow down what comes after it."""
    took: dict[int, list[float]] = defaultdict(list)
    connections = Connections(url)

    async def one() -> None:
        asked = perf_counter()
        status = await connections.ask()
        took[status].append((perf_counter() - asked) * 1000)

    begun, tasks = perf_counter(), list[asyncio.Task[None]]()
    for number in range(int(per_second * seconds)):
        await asyncio.sleep(max(0.0, begun + number / per_second - perf_counter()))
        tasks.append(asyncio.get_running_loop().create_task(one()))
    await asyncio.gather(*tasks)
    connections.close()
    return Seen(took, perf_counter() - begun)


async def measure(url: str, pid: int, seconds: float) -> bool:
    await offer(url, NORMAL, WARM_S / 2)
    normal = await offer(url, NORMAL, WARM_S)
    before = resident_mb(pid)
    flood = await offer(url, OFFERED, seconds)
    after = resident_mb(pid)
    slower, grown = flood.p99(200) / normal.p99(200), after / before
    print(f"normal: {normal.rate(200):.1f}/s answered, p99 {normal.p99(200):.1f} ms, {before:.1f} MB")
    print(
        f"flood: {flood.rate():.0f}/s for {flood.seconds:.0f} s: {flood.rate(200):.1f}/s answered, p99 "
        f"{flood.p99(200):.1f} ms (x {slower:.2f}, at most {SLOWER}); {flood.count(429)} refused, p99 "
        f"{flood.p99(429):.1f} ms; {after:.1f} MB (x {grown:.3f}, at most {GROWTH})"
    )
    held = set(flood.took) == {200, 429} and flood.count(200) <= CAP * (flood.seconds + 1)
    return held and slower <= SLOWER and grown <= GROWTH


def main(seconds: float = SECONDS) -> int:
    options = ("serve", str(HERE / "capped_agent.py"), "--data-dir")
    with scratch() as directory, peers.running(PARLEY, *options, str(directory)) as (url, pid):
        return 0 if uvloop.run(measure(url, pid, seconds)) else 1


if __name__ == "__main__":
    sys.exit(main(*map(float, sys.argv[1:2])))
