"""Receiver of push notifications on a real port; tests choose how it misbehaves."""

import asyncio
import json
import time
from collections import defaultdict, deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, Literal

from msgspec import Struct

__all__ = ["Post", "Receiver", "receiving"]

Mood = int | Literal["reset", "hang"]
"""Status to answer with; or reset the connection, or never answer."""


class Post(Struct, frozen=True):
    """One notification, as it was received."""

    path: str
    headers: dict[str, str]
    body: bytes
    at: float

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)

    @property
    def seq(self) -> int:
        """Number of the event that it reports."""
        return int(self.headers["x-a2a-event-id"])


class Receiver:
    """Receives notifications, and answers each path as `moods` and `always` say."""

    def __init__(self) -> None:
        self.port = 0
        self.posts: list[Post] = []
        self.taken: list[Post] = []
        """Notifications that were answered with a success."""
        self.moods: dict[str, deque[Mood]] = defaultdict(deque)
        """Next behaviours on a path; 200 when none is left."""
        self.always: dict[str, Mood] = {}
        self.delay_s: dict[str, float] = {}
        self.extra: dict[str, str] = {}
        """Additional headers of the answers on a path, as one line."""

    def url(self, path: str = "/hook") -> str:
        """Return the URL of a path."""
        return f"http://127.0.0.1:{self.port}{path}"

    def on(self, path: str = "/hook") -> list[Post]:
        """Return the notifications that a path has received."""
        return [post for post in self.posts if post.path.partition("?")[0] == path]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self._answer(reader, writer):
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = dict(_pair(line) for line in head[1:] if line)
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        post = Post(head[0].split()[1], headers, body, time.monotonic())
        self.posts.append(post)
        path = post.path.partition("?")[0]
        await asyncio.sleep(self.delay_s.get(path, 0))
        mood = self.moods[path].popleft() if self.moods[path] else self.always.get(path, 200)
        if mood == "hang":
            await asyncio.Event().wait()
        if mood == "reset":
            writer.transport.abort()
            return False
        extra = f"{self.extra[path]}\r\n" if path in self.extra else ""
        writer.write(f"HTTP/1.1 {mood} X\r\n{extra}content-length: 0\r\n\r\n".encode())
        if mood != "hang" and 200 <= mood < 300:
            self.taken.append(post)
        return True


def _pair(line: str) -> tuple[str, str]:
    name, _, value = line.partition(":")
    return name.lower(), value.strip()


@asynccontextmanager
async def receiving() -> AsyncGenerator[Receiver, None]:
    """Serve a receiver on a free port until the block ends."""
    receiver = Receiver()
    tasks: set[asyncio.Task[None]] = set()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(receiver.serve(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    receiver.port = server.sockets[0].getsockname()[1]
    try:
        yield receiver
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
