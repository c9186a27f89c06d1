"""Closed-loop load for any A2A server: each client sends its next message when the last one ended.

Standard library only and written straight on asyncio.Protocol, so that the client stays
much cheaper than every server it measures.
"""

import argparse
import asyncio
import gc
import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, Protocol, cast
from urllib.parse import urlsplit

METHODS = {
    ("1.0", "send"): "SendMessage",
    ("1.0", "stream"): "SendStreamingMessage",
    ("0.3", "send"): "message/send",
    ("0.3", "stream"): "message/stream",
}
RECONNECT_PAUSE = 0.02
KEPT_BODY = 2000
MESSAGE_ID_LENGTH = 43


class Asked(Protocol):
    """A client's request, and the check of its reply."""

    @property
    def host(self) -> str: ...
    @property
    def port(self) -> int: ...
    def request(self, prefix: bytes, number: int) -> bytes: ...
    def accepts(self, reply: "Reply") -> bool: ...


@dataclass(frozen=True)
class Target:
    """Where to send, the bytes around each fresh messageId, and how to know a good reply."""

    host: str
    port: int
    before_id: bytes
    after_id: bytes
    wanted: tuple[bytes, ...]
    unwanted: bytes

    def request(self, prefix: bytes, number: int) -> bytes:
        return self.before_id + message_id(prefix, number) + self.after_id

    def accepts(self, reply: "Reply") -> bool:
        """A search for words: parsing each reply would cost more than sending the request."""
        body = reply.body
        found = all(word in body for word in self.wanted)
        return reply.status == b"200" and found and self.unwanted not in body


def message(wire: str) -> dict[str, Any]:
    if wire == "1.0":
        return {"messageId": "%", "role": "ROLE_USER", "parts": [{"text": "hello"}]}
    parts = [{"kind": "text", "text": "hello"}]
    return {"kind": "message", "messageId": "%", "role": "user", "parts": parts}


def request_params(wire: str, mode: str) -> dict[str, Any]:
    if wire == "0.3" and mode == "send":
        # A 0.3 server may answer early unless it is asked to block; 1.0 blocks by default.
        configuration = {"acceptedOutputModes": ["text/plain"], "blocking": True}
        return {"message": message(wire), "configuration": configuration}
    return {"message": message(wire)}


def make_target(url: str, mode: str, wire: str, expect: str) -> Target:
    parts = urlsplit(url)
    host, port = parts.hostname or "127.0.0.1", parts.port or 80
    call = {"jsonrpc": "2.0", "id": 1, "method": METHODS[wire, mode]}
    body = json.dumps(call | {"params": request_params(wire, mode)}, separators=(",", ":"))
    head, tail = body.split("%")
    headers = [
        f"POST {parts.path or '/'} HTTP/1.1",
        f"Host: {host}:{port}",
        "Content-Type: application/json",
        f"Accept: {'text/event-stream' if mode == 'stream' else 'application/json'}",
        f"Content-Length: {len(head) + MESSAGE_ID_LENGTH + len(tail)}",
    ]
    if wire == "1.0":
        headers.append("A2A-Version: 1.0")
    completed = b"TASK_STATE_COMPLETED" if wire == "1.0" else b'"completed"'
    return Target(
        host,
        port,
        ("\r\n".join(headers) + "\r\n\r\n" + head).encode(),
        tail.encode(),
        (b'"result"', b'"state"' if expect == "any-task" else completed),
        b"TASK_STATE_FAILED" if wire == "1.0" else b'"failed"',
    )


def message_id(prefix: bytes, number: int) -> bytes:
    """Message id of constant length, so that the request's Content-Length is constant too."""
    return b"%s-%010d" % (prefix, number)


@dataclass
class Tally:
    """Counts within the measured window."""

    opens: float
    closes: float
    latencies: list[float] = field(default_factory=list)
    firsts: list[float] = field(default_factory=list)
    """Until the first event of each stream."""
    errors: int = 0
    first_error: str | None = None

    def good(self, started: float, first: float) -> None:
        now = perf_counter()
        if self.opens <= now <= self.closes:
            self.latencies.append(now - started)
            self.firsts.append(first - started)

    def bad(self, why: str) -> None:
        if self.opens <= perf_counter() <= self.closes:
            self.errors += 1
            self.first_error = self.first_error or why[:KEPT_BODY]

    def abandoned(self, started: float) -> None:
        # Requests cut off by the end of the window are not errors, unless the server
        # had the whole window to answer.
        if started <= self.opens:
            self.errors += 1
            self.first_error = self.first_error or "no answer during the whole measurement"

    def report(self) -> dict[str, Any]:
        seconds = self.closes - self.opens
        ordered = sorted(self.latencies)
        return {
            "rate": round(len(ordered) / seconds, 1),
            "count": len(ordered),
            "errors": self.errors,
            "p50_ms": percentile(ordered, 0.50),
            "p99_ms": percentile(ordered, 0.99),
            "first_p50_ms": percentile(sorted(self.firsts), 0.50),
            "seconds": round(seconds, 3),
            "first_error": self.first_error,
        }


def percentile(ordered: list[float], share: float) -> float | None:
    if not ordered:
        return None
    return round(ordered[min(len(ordered) - 1, int(len(ordered) * share))] * 1000, 3)


class Reply:
    """One HTTP/1.1 response, fed with bytes until `done`."""

    def __init__(self) -> None:
        self.buffer = bytearray()
        self.body = bytearray()
        self.status = b""
        self.head_read = self.chunked = self.closing = self.done = False
        self.length: int | None = None

    def feed(self, data: bytes) -> None:
        self.buffer += data
        if not self.head_read and not self._read_head():
            return
        if self.chunked:
            self._read_chunks()
        elif self.length is None:
            self._take(len(self.buffer))
        elif len(self.buffer) >= self.length:
            self._take(self.length)
            self.done = True

    def end_of_stream(self) -> None:
        """A body without a length ends with its connection."""
        self.done = self.head_read and not self.chunked and self.length is None

    def _read_head(self) -> bool:
        end = self.buffer.find(b"\r\n\r\n")
        if end < 0:
            return False
        lines = bytes(self.buffer[:end]).lower().split(b"\r\n")
        del self.buffer[: end + 4]
        self.status = lines[0].split(b" ", 2)[1]
        for line in lines[1:]:
            self._read_header(*line.split(b":", 1))
        self.head_read = True
        return True

    def _read_header(self, name: bytes, value: bytes = b"") -> None:
        if name == b"content-length":
            self.length = int(value)
        elif name == b"transfer-encoding":
            self.chunked = b"chunked" in value
        elif name == b"connection":
            self.closing = b"close" in value

    def _read_chunks(self) -> None:
        while not self.done:
            end = self.buffer.find(b"\r\n")
            if end < 0:
                return
            size = int(self.buffer[:end].split(b";")[0], 16)
            if len(self.buffer) < end + size + 4:
                return
            del self.buffer[: end + 2]
            self._take(size)
            del self.buffer[:2]
            self.done = size == 0

    def _take(self, size: int) -> None:
        self.body += self.buffer[:size]
        del self.buffer[:size]


class Client(asyncio.Protocol):
    """One client: a connection that is opened again when the server closes it."""

    def __init__(self, target: Asked, tally: Tally) -> None:
        self.target = target
        self.tally = tally
        self.prefix = uuid.uuid4().hex.encode()
        self.sent = 0
        self.started = 0.0
        self.first = 0.0
        self.waiting = False
        self.stopped = False
        self.reply = Reply()
        self.transport: asyncio.Transport | None = None
        self.lost = asyncio.Event()

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        while not self.stopped:
            self.lost.clear()
            try:
                await loop.create_connection(lambda: self, self.target.host, self.target.port)
                await self.lost.wait()
            except OSError as error:
                self.tally.bad(f"connecting: {error}")
                await asyncio.sleep(RECONNECT_PAUSE)

    def stop(self) -> None:
        self.stopped = True
        if self.waiting:
            self.waiting = False
            self.tally.abandoned(self.started)
        if self.transport is not None:
            self.transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self._send()

    def data_received(self, data: bytes) -> None:
        self.reply.feed(data)
        if not self.first and self.reply.body:
            self.first = perf_counter()
        if self.reply.done:
            self._judge()
            self._continue()

    def connection_lost(self, exc: Exception | None) -> None:
        if self.waiting:
            self.reply.end_of_stream()
            self._judge()
        self.lost.set()

    def _send(self) -> None:
        assert self.transport is not None
        self.reply = Reply()
        self.sent += 1
        self.waiting = True
        self.first = 0.0
        self.started = perf_counter()
        self.transport.write(self.target.request(self.prefix, self.sent))

    def _judge(self) -> None:
        self.waiting = False
        reply = self.reply
        if not reply.done:
            self.tally.bad(f"connection lost after: {reply.body.decode(errors='replace')}")
        elif self.target.accepts(reply):
            self.tally.good(self.started, self.first)
        else:
            text = reply.body.decode(errors="replace")
            self.tally.bad(f"HTTP {reply.status.decode()}: {text}")

    def _continue(self) -> None:
        assert self.transport is not None
        if self.reply.closing:
            self.transport.close()
        elif not self.stopped:
            self._send()


async def load(targets: Sequence[Asked], seconds: float, warmup: float) -> dict[str, Any]:
    """One client for each target."""
    opens = perf_counter() + warmup
    tally = Tally(opens, opens + seconds)
    group = [Client(target, tally) for target in targets]
    tasks = [asyncio.create_task(client.run()) for client in group]
    await asyncio.sleep(warmup + seconds)
    for client in group:
        client.stop()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return tally.report()


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", required=True)
    parser.add_argument("--mode", choices=["send", "stream"], default="send")
    parser.add_argument("--wire", choices=["1.0", "0.3"], default="1.0")
    parser.add_argument("--expect", choices=["completed", "any-task"], default="completed")
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--warmup", type=float, default=1)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a sentence")
    return parser.parse_args()


def main() -> None:
    given = arguments()
    # Nothing here makes cycles, and a collection would show up as latency of the server.
    gc.disable()
    target = make_target(given.url, given.mode, given.wire, given.expect)
    result = asyncio.run(load([target] * given.clients, given.seconds, given.warmup))
    if given.json:
        print(json.dumps(result))
    else:
        print("{rate}/s, p50 {p50_ms} ms, p99 {p99_ms} ms, {errors} errors".format(**result))


if __name__ == "__main__":
    main()
