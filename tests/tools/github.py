"""A local server that speaks GitHub's REST for three operations, and misbehaves on request."""

import asyncio
import json
import re
from collections import defaultdict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from msgspec import Struct

TOKEN = "ghp_neverToBeSeen0123456789abcdef"
JSON = "application/json; charset=utf-8"
_ROUTE = re.compile(r"/(?:repos/([^/]+/[^/]+)|repositories/(\d+))/(issues|pulls)/(\d+)(/comments)?")


class Reply(Struct, frozen=True):
    """A reply that replaces the usual answer. `cut`: break the connection; `hold`: wait until released."""

    status: int = 200
    body: Any = None
    headers: tuple[tuple[str, str], ...] = ()
    cut: bool = False
    hold: bool = False
    done: bool = False
    """Do what was asked for all the same, before anything goes wrong."""


class Asked(Struct, frozen=True):
    method: str
    path: str
    headers: dict[str, str]
    body: Any

    @property
    def token(self) -> str:
        return self.headers.get("authorization", "").removeprefix("Bearer ")


class GitHubServer:
    """Repositories by name; a moved one has an id, at which it is found."""

    def __init__(self) -> None:
        self.url = ""
        self.asked: list[Asked] = []
        self.comments: dict[str, list[str]] = defaultdict(list)
        self.moved: dict[str, str] = {}
        self.replies: deque[Reply] = deque()
        """Next replies; the usual answer when the list is empty."""
        self.always: Reply | None = None
        self.writers: set[asyncio.StreamWriter] = set()
        self.began = asyncio.Event()
        self.release = asyncio.Event()
        self.hung_up = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.add(writer)
        try:
            while await self._answered(reader, writer):
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            self.hung_up.set()
        finally:
            self.writers.discard(writer)
            writer.close()

    async def _answered(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        method, path, _ = head[0].split(" ")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:] if line)}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        asked = Asked(method, path, headers, json.loads(body) if body else None)
        self.asked.append(asked)
        reply = self.replies.popleft() if self.replies else self.always
        usual = self._usual(asked) if reply is None or reply.done else None
        self.began.set()
        if reply is not None and reply.hold and not await self._held(reader):
            return False
        if reply is not None and reply.cut:
            writer.transport.abort()
            return False
        _write(writer, (reply if reply and not reply.done else None) or usual or Reply())
        return True

    async def _held(self, reader: asyncio.StreamReader) -> bool:
        """Until it is released; False when the client hangs up before."""
        gone, released = asyncio.ensure_future(reader.read(1)), asyncio.ensure_future(self.release.wait())
        await asyncio.wait((gone, released), return_when=asyncio.FIRST_COMPLETED)
        hung_up = gone.done()
        for one in (gone, released):
            one.cancel()
        await asyncio.gather(gone, released, return_exceptions=True)
        if hung_up:
            self.hung_up.set()
        return not hung_up

    def _usual(self, asked: Asked) -> Reply:
        found = _ROUTE.fullmatch(asked.path)
        if found is None:
            return Reply(404, {"message": "Not Found", "documentation_url": "https://docs.github.com/rest"})
        name, id_, kind, number, comments = found.groups()
        if name in self.moved:
            status = 301 if asked.method == "GET" else 307
            target = f"{self.url}/repositories/{self.moved[name]}/{kind}/{number}{comments or ''}"
            return Reply(status, {"message": "Moved Permanently", "url": target}, (("Location", target),))
        repository = name or next(old for old, new in self.moved.items() if new == id_)
        if comments:
            return self._comment(repository, int(number), asked.body["body"])
        return Reply(200, _thing(repository, kind, int(number)))

    def _comment(self, repository: str, number: int, body: str) -> Reply:
        self.comments[f"{repository}#{number}"].append(body)
        id_ = sum(len(all_) for all_ in self.comments.values())
        url = f"https://github.com/{repository}/issues/{number}#issuecomment-{id_}"
        return Reply(201, {"id": id_, "html_url": url, "body": body, "user": {"login": "someone", "id": 1}})


def _thing(repository: str, kind: str, number: int) -> dict[str, Any]:
    return {
        "id": 2_000_000_000 + number,
        "number": number,
        "title": f"{kind} {number} of {repository}",
        "state": "open",
        "user": {"login": "someone", "id": 1, "email": "someone@example.org"},
        "body": "See ghp_abcdefghijkl and +1 555 123 4567.",
        "created_at": "2026-02-19T18:00:00Z",
    }


def _write(writer: asyncio.StreamWriter, reply: Reply) -> None:
    body = reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body).encode()
    lines = [f"HTTP/1.1 {reply.status} Words", f"content-type: {JSON}", f"content-length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in reply.headers]
    writer.write("\r\n".join([*lines, "", ""]).encode() + body)


@asynccontextmanager
async def github() -> AsyncIterator[GitHubServer]:
    made = GitHubServer()
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield made
    finally:
        made.release.set()
        server.close()
        for writer in list(made.writers):
            writer.transport.abort()
        await server.wait_closed()
