"""A server whose answers are small on the wire and large once they are unpacked."""

import asyncio
import gzip
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

SIZE = 64 * 1024 * 1024 + 1
"""Size of the decompressed answer: more than any caller accepts."""


def padded(value: Any) -> bytes:
    """JSON that means `value`, and is as large as a bomb."""
    text = json.dumps(value).encode()
    return text + b" " * (SIZE - len(text))


class Bomber:
    """Answers each path as told; by default with a bomb that means an empty object."""

    def __init__(self, default: bytes) -> None:
        self._default = gzip.compress(default)
        self.url = ""
        self.plain: dict[str, Any] = {}
        """Paths that are answered honestly, with JSON."""
        self.kind = "application/json"
        self.encodings: list[str] = []
        """The Accept-Encoding of each request."""

    @property
    def size(self) -> int:
        """Size of a bomb on the wire."""
        return len(self._default)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:] if line)}
            await reader.readexactly(int(headers.get("content-length", "0")))
            self.encodings.append(headers.get("accept-encoding", ""))
            path = head[0].split(" ")[1].partition("?")[0]
            body = json.dumps(self.plain[path]).encode() if path in self.plain else self._default
            kind = "application/json" if path in self.plain else self.kind
            packed = b"" if path in self.plain else b"content-encoding: gzip\r\n"
            writer.write(b"HTTP/1.1 200 OK\r\nconnection: close\r\n" + packed)
            writer.write(f"content-type: {kind}\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def bomber(default: bytes | None = None) -> AsyncGenerator[Bomber, None]:
    made = Bomber(default if default is not None else padded({}))
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        yield made
