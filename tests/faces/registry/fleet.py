"""Nodes and their operator in a few lines of plain HTTP: what any program may send, no more."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2

Json = dict[str, Any]
CARD: Json = {"name": "Card", "skills": [], "version": "1.0", "exact": 42}


class Node:
    """Speaks for one node to one replica or another: `at` may be changed at any time."""

    def __init__(self, http: httpx2.AsyncClient, at: str, id_: str, token: str = "") -> None:
        self.http = http
        self.at = at
        self.id = id_
        self.token = token

    @property
    def headers(self) -> dict[str, str]:
        return {"X-Workspace-ID": self.id, **({"Authorization": f"Bearer {self.token}"} if self.token else {})}

    async def register(self, url: str = "http://127.0.0.1:9001", **more: Any) -> httpx2.Response:
        body = {"id": self.id, "url": url, "agent_card": CARD, **more}
        reply = await self.http.post(f"{self.at}/registry/register", json=body, headers=self.headers)
        if reply.status_code == 200:
            self.token = reply.json().get("auth_token", self.token)
        return reply

    async def beat(self, **said: Any) -> httpx2.Response:
        body = {"workspace_id": self.id, **said}
        return await self.http.post(f"{self.at}/registry/heartbeat", json=body, headers=self.headers)

    async def discover(self, target: "Node | str") -> httpx2.Response:
        id_ = target if isinstance(target, str) else target.id
        return await self.http.get(f"{self.at}/registry/discover/{id_}", headers=self.headers)

    async def get(self, path: str) -> httpx2.Response:
        return await self.http.get(self.at + path, headers=self.headers)

    async def post(self, path: str, body: Json) -> httpx2.Response:
        return await self.http.post(self.at + path, json=body, headers=self.headers)


class Fleet:
    """The operator of one server, and the nodes of it."""

    def __init__(self, http: httpx2.AsyncClient, at: str, key: str = "") -> None:
        self.http = http
        self.at = at
        self.headers = {"Authorization": f"Bearer {key}"} if key else {}

    async def ask(self, method: str, path: str, body: Json | None = None) -> httpx2.Response:
        return await self.http.request(method, self.at + path, json=body, headers=self.headers)

    async def create(self, name: str, parent: Node | None = None, **more: Any) -> Node:
        body = {"name": name, "parent_id": parent.id if parent else None, **more}
        reply = await self.ask("POST", "/workspaces", body)
        assert reply.status_code == 201, reply.text
        return Node(self.http, self.at, reply.json()["id"], reply.json()["registration_token"] if self.headers else "")

    async def online(self, name: str, parent: Node | None = None, **more: Any) -> Node:
        node = await self.create(name, parent, **more)
        reply = await node.register()
        assert reply.status_code == 200, reply.text
        return node

    async def show(self, node: Node) -> Json:
        reply = await self.ask("GET", f"/workspaces/{node.id}")
        assert reply.status_code == 200, reply.text
        return reply.json()


class Stream:
    """Server-sent events, one message at a time, with their ids."""

    def __init__(self, reply: httpx2.Response) -> None:
        self._lines = reply.aiter_lines()
        self.last: int | None = None

    async def next(self) -> Json:
        id_: int | None = None
        async for line in self._lines:
            if line.startswith("id: "):
                id_ = int(line[4:])
            elif line.startswith("data: "):
                self.last = id_ or self.last
                return {**json.loads(line[6:]), "id": id_}
        raise EOFError

    async def until(self, name: str) -> list[Json]:
        """All messages up to one of this name."""
        seen = [await self.next()]
        while seen[-1]["event"] != name:
            seen.append(await self.next())
        return seen


@asynccontextmanager
async def following(
    http: httpx2.AsyncClient, url: str, headers: dict[str, str], after: int | None = None
) -> AsyncIterator[Stream]:
    resume = {} if after is None else {"Last-Event-ID": str(after)}
    async with http.stream("GET", url, headers={**headers, **resume}) as reply:
        assert reply.status_code == 200, await reply.aread()
        yield Stream(reply)
