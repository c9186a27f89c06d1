"""Frames of the runtime contract, each signed on its own: as many as are accepted, or one at a time against the clock.

Standard library only, as `load.py`, so that the client stays much cheaper than what it measures.
"""

import argparse
import asyncio
import gc
import hmac
import http.client
import json
import statistics
import time
import uuid
from base64 import urlsafe_b64encode
from contextlib import suppress
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any
from urllib.parse import urlsplit

from load import Reply, load, percentile

SECRET = b"dev-runtime-signature-secret"
USER = 42
THREAD = "thread-bench"
PREFIX = "/internal/v1"
TTL_S = 300
FASTEST = 15_000
"""Requests per second prepared in advance, so that signing does not slow down the measurement."""
BEGUN, DONE = b"id: ", b"run.input_required"


def signed(nonce: str, run: str | None) -> bytes:
    """A token for one request."""
    now = int(time.time())
    claims: dict[str, object] = {"iat": now, "exp": now + TTL_S, "nonce": nonce, "thread_id": THREAD, "user_id": USER}
    if run is not None:
        claims["run_id"] = run
    segment = _base64url(json.dumps(claims, separators=(",", ":")).encode())
    return b"v1.%b.%b" % (segment, _base64url(hmac.digest(SECRET, segment, "sha256")))


def _base64url(content: bytes) -> bytes:
    return urlsafe_b64encode(content).rstrip(b"=")


@dataclass(frozen=True)
class Frames:
    """The frames of one run; those that were made before need not be signed against the clock."""

    host: str
    port: int
    run: str
    made: list[bytes] = field(default_factory=list)

    def prepare(self, count: int) -> None:
        self.made.extend(self._request(f"{self.run}-{number}") for number in range(count))

    def request(self, prefix: bytes, number: int) -> bytes:
        return self.made.pop() if self.made else self._request(f"{prefix.decode()}-{number}")

    def _request(self, name: str) -> bytes:
        body = (
            f'{{"thread_id":"{THREAD}","frame_id":"{name}","type":"user_message","payload":{{"text":"hello"}}}}'
        ).encode()
        return (
            b"POST %b/runs/%b/frames HTTP/1.1\r\nHost: %b:%d\r\nContent-Type: application/json\r\n"
            b"x-oa-user-id: %d\r\nX-OA-RUNTIME-SIGNATURE: %b\r\nContent-Length: %d\r\n\r\n%b"
        ) % (
            PREFIX.encode(), self.run.encode(), self.host.encode(), self.port, USER, signed(name, self.run), len(body),
            body,
        )  # fmt: skip

    def accepts(self, reply: Reply) -> bool:
        return reply.status == b"202"


def created(host: str, port: int) -> Frames:
    """A run of its own."""
    run = uuid.uuid4().hex
    connection = http.client.HTTPConnection(host, port, timeout=10)
    body = json.dumps({"run_id": run, "thread_id": THREAD, "agent": "echo"})
    headers = {"x-oa-user-id": str(USER), "X-OA-RUNTIME-SIGNATURE": signed(f"new-{run}", run).decode()}
    connection.request("POST", f"{PREFIX}/runs", body, headers)
    reply = connection.getresponse()
    if reply.status != 202:
        raise RuntimeError(f"HTTP {reply.status}: {reply.read()[:500]!r}")
    connection.close()
    return Frames(host, port, run)


class Stream:
    """A run's events as they come in."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, frames: Frames) -> "Stream":
        reader, writer = await asyncio.open_connection(frames.host, frames.port)
        token = signed(uuid.uuid4().hex, frames.run)
        values = (PREFIX, frames.run, THREAD, frames.host)
        writer.write(
            b"GET %b/runs/%b/stream?thread_id=%b&tail_ms=60000 HTTP/1.1\r\nHost: %b:%d\r\nx-oa-user-id: %d\r\n"
            b"X-OA-RUNTIME-SIGNATURE: %b\r\n\r\n" % (*map(str.encode, values), frames.port, USER, token)
        )
        head = await reader.readuntil(b"\r\n\r\n")
        if b" 200 " not in head:
            raise RuntimeError(head.decode(errors="replace"))
        return cls(reader, writer)

    async def until(self, words: bytes) -> None:
        while words not in await self._reader.readline():
            pass

    def close(self) -> None:
        self._writer.close()


async def firsts(frames: Frames, seconds: float, warmup: float) -> dict[str, Any]:
    """From posting a frame to the first event after it, and to the answer of the post; one frame at a time."""
    stream = await Stream.open(frames)
    reader, writer = await asyncio.open_connection(frames.host, frames.port)
    opens = perf_counter() + warmup
    events: list[float] = []
    answers: list[float] = []
    number = 0
    while perf_counter() < opens + seconds:
        number += 1
        request = frames.request(b"f", number)
        begin = perf_counter()
        writer.write(request)
        answered = asyncio.ensure_future(_answered(reader, begin))
        await stream.until(BEGUN)
        event = perf_counter() - begin
        await stream.until(DONE)
        answer = await answered
        if begin >= opens:
            events.append(event)
            answers.append(answer)
    stream.close()
    writer.close()
    return {
        "count": len(events), "p50_ms": percentile(sorted(events), 0.5), "p99_ms": percentile(sorted(events), 0.99),
        "answer_p50_ms": statistics.median(answers) * 1000,
    }  # fmt: skip


async def _answered(reader: asyncio.StreamReader, begin: float) -> float:
    reply = Reply()
    while not reply.done:
        data = await reader.read(65536)
        if not data:
            raise RuntimeError("the server closed the connection")
        reply.feed(data)
    if reply.status != b"202":
        raise RuntimeError(f"HTTP {reply.status.decode()}: {reply.body.decode(errors='replace')}")
    return perf_counter() - begin


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", required=True)
    parser.add_argument("--mode", choices=["accepted", "first"], default="accepted")
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--warmup", type=float, default=1)
    return parser.parse_args()


def main() -> None:
    given = arguments()
    gc.disable()
    parts = urlsplit(given.url)
    host, port = parts.hostname or "127.0.0.1", parts.port or 80
    if given.mode == "first":
        result = asyncio.run(firsts(created(host, port), given.seconds, given.warmup))
    else:
        targets = [created(host, port) for _ in range(given.clients)]
        for target in targets:
            target.prepare(int(FASTEST * (given.warmup + given.seconds) / given.clients))
        result = asyncio.run(load(targets, given.seconds, given.warmup))
    print(json.dumps(result))


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        main()
