"""MCP as bytes: what the official client would never send, and what it never shows."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2

from parley.runs.rules.state import Run, State
from parley.runs.store import Listing
from parley.testing.processes import until
from parley.testing.servers import Server

BOTH = {"Accept": "application/json, text/event-stream"}
OLD = {**BOTH, "MCP-Protocol-Version": "2025-11-25"}
NEW = {**BOTH, "MCP-Protocol-Version": "2026-07-28"}
ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}


def request(method: str, id_: Any = 1, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id_, "method": method, "params": params}


def call(name: str, message: str, id_: Any = 1, meta: dict[str, Any] | None = None, **more: str) -> dict[str, Any]:
    return request("tools/call", id_, name=name, arguments={"message": message, **more}, _meta=meta or {})


def modern(body: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """The same request as one of 2026-07-28, and its headers."""
    params = {**body["params"], "_meta": {**ENVELOPE, **body["params"].get("_meta", {})}}
    headers = {**NEW, "Mcp-Method": body["method"]}
    if named := params.get("name") or params.get("uri"):
        headers["Mcp-Name"] = named
    return {**body, "params": params}, headers


class Events:
    """A stream of events: each as its id and what it says."""

    def __init__(self, response: httpx2.Response) -> None:
        self.response = response
        self._lines = response.aiter_lines()

    async def next(self) -> tuple[str, dict[str, Any]]:
        id_, data = "", ""
        async with asyncio.timeout(10):
            async for line in self._lines:
                name, _, value = line.partition(": ")
                if name == "id":
                    id_ = value
                elif name in ("data", "data:"):
                    data = value
                elif not line and (id_ or data):
                    return id_, json.loads(data) if data else {}
        raise EOFError

    async def last(self) -> dict[str, Any]:
        while True:
            _, said = await self.next()
            if "id" in said:
                return said


@asynccontextmanager
async def streaming(
    http: httpx2.AsyncClient, body: dict[str, Any] | None, headers: dict[str, str]
) -> AsyncIterator[Events]:
    """Stream of a POST with a body, else of a GET."""
    method = "GET" if body is None else "POST"
    async with http.stream(method, "/mcp", json=body, headers=headers) as response:
        assert response.status_code == 200, (await response.aread()).decode()
        assert response.headers["content-type"].startswith("text/event-stream")
        yield Events(response)


async def run_in(server: Server, state: State) -> Run:
    """The only run in a state, as soon as there is one."""
    found: list[Run] = []

    async def some() -> bool:
        found[:] = (await server.exchange.store.list_runs(Listing(state=state)))[0]
        return bool(found)

    await until(some)
    return found[0]
