"""Every place that takes an address from somebody, over the wire: a server is given addresses there, and does with them
whatever it does.

A new place is one function and one line in PLACES.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2
import msgspec
from msgspec import Struct
from msgspec.structs import replace

from parley import Text, Turn, agent
from parley.drivers.function import FunctionDriver
from parley.drivers.remote import RemoteDriver, RemoteOptions, blank_remote
from parley.errors import ConfigurationError
from parley.execution.driver import Driver
from parley.runs.rules.access import ALL_SCOPES
from parley.runs.rules.agents import Agent
from parley.security.keys import ApiKeys
from parley.security.netguard import Guard, Outbound
from parley.stores.records import SqliteRecords
from parley.stores.sqlite import FILE
from parley.telemetry import attach
from parley.testing.processes import until
from parley.testing.servers import Server, serving
from parley.tools.github import GitHub, GitHubRequest, Unanswered, fixed_token
from parley.tools.rules.mcp import McpServer

Json = dict[str, Any]
Outcomes = list[str]
"""Outcome for each address: `taken`, or the error code."""
TOGETHER = 8


class Given(Struct, frozen=True):
    folder: Path
    urls: Sequence[str]
    allow: Sequence[str] = ()


class Place(Struct, frozen=True):
    give: Callable[[Given], Awaitable[Outcomes]]
    calls: bool = True
    """True if an allowed address is called; else it is stored for other callers."""
    strict: bool = False
    """True if a name is refused when any of its addresses is forbidden."""


@asynccontextmanager
async def opened(given: Given, drivers: Sequence[Driver] = ()) -> AsyncIterator[tuple[Server, httpx2.AsyncClient]]:
    """A server and its operator. With `auth = "local"` its own machine's addresses would be no secret."""
    keys = ApiKeys(records := SqliteRecords(given.folder / FILE))
    _, key = await keys.create(f"operator-{uuid4()}", ALL_SCOPES)
    await records.close()
    async with (
        serving(given.folder, drivers, auth="required", allow_hosts=list(given.allow)) as server,
        httpx2.AsyncClient(base_url=server.url, headers={"X-API-Key": key}, timeout=30) as http,
    ):
        yield server, http


async def each(urls: Sequence[str], ask: Callable[[int, str], Awaitable[str]]) -> Outcomes:
    """A few at a time."""
    places = asyncio.Semaphore(TOGETHER)

    async def one(number: int, url: str) -> str:
        async with places:
            return await ask(number, url)

    return await asyncio.gather(*(one(number, url) for number, url in enumerate(urls)))


def outcome(reply: httpx2.Response) -> str:
    if reply.is_success:
        return "taken"
    body = reply.json()
    error: Any = body.get("error", body)
    return str(body.get("code") or (error.get("code") if isinstance(error, dict) else error))


async def register(given: Given) -> Outcomes:
    async with opened(given) as (_, http):

        async def ask(number: int, url: str) -> str:
            made = (await http.post("/workspaces", json={"name": f"n{number}"})).json()
            body = {"id": made["id"], "url": url, "agent_card": {"name": "n", "url": url}}
            token = {"Authorization": f"Bearer {made['registration_token']}", "X-Workspace-ID": made["id"]}
            return outcome(await http.post("/registry/register", json=body, headers=token))

        return await each(given.urls, ask)


async def create_node(given: Given) -> Outcomes:
    async with opened(given) as (_, http):

        async def ask(number: int, url: str) -> str:
            return outcome(await http.post("/workspaces", json={"name": f"n{number}", "url": url or "x"}))

        return await each(given.urls, ask)


async def patch_node(given: Given) -> Outcomes:
    async with opened(given) as (_, http):
        node = (await http.post("/workspaces", json={"name": "n"})).json()["id"]

        async def ask(number: int, url: str) -> str:
            return outcome(await http.patch(f"/workspaces/{node}", json={"url": url or "x"}))

        return await each(given.urls, ask)


EVERYWHERE = ("0.0.0.0/0", "::/0")


async def proxy(given: Given) -> Outcomes:
    """A node that was registered while its address was allowed, or whose name leads elsewhere by now."""
    ids: dict[int, str] = {}
    async with opened(replace(given, allow=EVERYWHERE)) as (_, http):

        async def begin(number: int, url: str) -> str:
            made = (await http.post("/workspaces", json={"name": f"n{number}"})).json()
            body = {"id": made["id"], "url": url, "agent_card": {"name": "n"}}
            token = {"Authorization": f"Bearer {made['registration_token']}", "X-Workspace-ID": made["id"]}
            registered = await http.post("/registry/register", json=body, headers=token)
            ids.update({number: made["id"]} if registered.is_success else {})
            return outcome(registered)

        outcomes = await each(given.urls, begin)
    async with opened(given) as (_, http):

        async def ask(number: int, url: str) -> str:
            if number not in ids:
                return outcomes[number]
            said = {
                "kind": "message",
                "messageId": str(number),
                "role": "user",
                "parts": [{"kind": "text", "text": "x"}],
            }
            body = {"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": {"message": said}}
            reply = await http.post(f"/workspaces/{ids[number]}/a2a", json=body)
            return reply.text[:300]

        return await each(given.urls, ask)


@agent("echo")
async def echo(turn: Turn):
    yield Text(turn.text)


async def push(given: Given) -> Outcomes:
    """Addresses not refused at once are refused at the first delivery."""
    told: set[str] = set()
    detach = attach(lambda name, fields: told.add(str(fields["run"])) if name.startswith("push.") else None)
    async with opened(given, [echo]) as (server, http):

        async def ask(number: int, url: str) -> str:
            config = {"returnImmediately": True, "taskPushNotificationConfig": {"url": url}}
            said = {"messageId": str(number), "role": "ROLE_USER", "parts": [{"text": "x"}]}
            asked = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage"}
            body = {**asked, "params": {"message": said, "configuration": config}}
            reply = (await http.post(server.agent("echo"), json=body, headers={"A2A-Version": "1.0"})).json()
            if "error" in reply:
                return str(reply["error"]["code"])
            await until(lambda: reply["result"]["task"]["id"] in told)
            return "taken"

        outcomes = await each(given.urls, ask)
    detach()
    return outcomes


class Cards:
    """A server that is trusted, whose agents' cards lead wherever they like."""

    def __init__(self, urls: Sequence[str]) -> None:
        self._urls = urls
        self.at = ""

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                found = re.match(rb"GET /(\d+)/\.well-known", head)
                body = msgspec.json.encode(self._card(int(found[1])) if found else {})
                status = b"200 OK" if found else b"404 Not Found"
                kind = b"content-type: application/json\r\n"
                writer.write(b"HTTP/1.1 %b\r\n%bcontent-length: %d\r\n\r\n%b" % (status, kind, len(body), body))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    def _card(self, number: int) -> Json:
        bindings = ("JSONRPC", "HTTP+JSON", "GRPC")
        url = self._urls[number]
        offers = [{"url": url, "protocolBinding": one, "protocolVersion": "1.0"} for one in bindings]
        return {
            "name": "far", "description": "d", "version": "1", "capabilities": {}, "skills": [], "url": url,
            "defaultInputModes": ["text/plain"], "defaultOutputModes": ["text/plain"], "supportedInterfaces": offers,
        }  # fmt: skip


async def card(given: Given) -> Outcomes:
    """An agent elsewhere whose card says where it is asked."""
    cards = Cards(given.urls)
    listening = await asyncio.start_server(cards.answer, "127.0.0.1", 0)
    at = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    drivers = [
        RemoteDriver(blank_remote(f"far-{number}"), RemoteOptions(f"{at}/{number}", patience_s=0.01))
        for number in range(len(given.urls))
    ]
    async with opened(given, drivers) as (server, http):

        async def ask(number: int, url: str) -> str:
            said = {"messageId": str(number), "role": "ROLE_USER", "parts": [{"text": "x"}]}
            body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": said}}
            reply = await http.post(server.agent(f"far-{number}"), json=body, headers={"A2A-Version": "1.0"})
            return str(reply.json()["result"]["task"]["status"]["state"])

        outcomes = await each(given.urls, ask)
    listening.close()
    return outcomes


async def idle(turn: Turn) -> Any:
    yield Text("x")


async def mcp(given: Given) -> Outcomes:
    """A server of tools that is an address."""
    drivers = [
        FunctionDriver(Agent(f"a-{number}", "A", "d", mcp=(McpServer("s", url=url, start_timeout_s=5.0),)), idle)
        for number, url in enumerate(given.urls)
    ]
    async with opened(given, drivers) as (_, http):

        async def ask(number: int, url: str) -> str:
            prefix, slug = "/api/agent2agent/conversations", f"a-{number}"
            conversation = (await http.post(prefix, json={"agentSlug": slug})).json()["conversationId"]
            body = {"mode": "tool", "action": "execute", "agentSlug": slug, "toolName": "s/x", "input": {}}
            return outcome(await http.post(f"{prefix}/{conversation}/tasks", json=body))

        return await each(given.urls, ask)


async def coding(given: Given) -> Outcomes:
    """The provider of a tool pack. Its address is a setting, and guarded all the same."""
    outbound = Outbound(Guard(given.allow))

    async def ask(number: int, url: str) -> str:
        try:
            github = GitHub(outbound, fixed_token("t"), url)
            return str((await github.send(GitHubRequest("GET", ("repos", "a", "b")))).status)
        except ConfigurationError as error:
            return error.code
        except Unanswered as error:
            return str(error.reason_code)

    outcomes = await each(given.urls, ask)
    await outbound.close()
    return outcomes


PLACES: dict[str, Place] = {
    "POST /registry/register": Place(register, calls=False),
    "POST /workspaces": Place(create_node, calls=False),
    "PATCH /workspaces/{id}": Place(patch_node, calls=False),
    "POST /workspaces/{id}/a2a": Place(proxy, strict=True),
    "push notifications": Place(push),
    "a remote agent's card": Place(card),
    "MCP over HTTP": Place(mcp),
    "coding.v1": Place(coding),
}
