"""A server that needs credentials, and one of everybody who has any, each with real ones."""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2

from parley import ArtifactChunk, Done, NeedInput, Status, Turn, agent
from parley.clock import now_ms
from parley.execution.driver import Driver
from parley.faces.actions.table import ACTIONS
from parley.paired.driver import EdgeDriver
from parley.runs.rules.agents import Agent
from parley.security.signatures import claims_for, sign
from parley.testing.servers import Server, serving
from tests.faces.registry.fleet import Fleet, Node
from tests.security.issuer import AUDIENCE, Issuer, issuing

Headers = dict[str, str]
Json = dict[str, Any]

SECRET = "the-secret-of-the-review"
EVERY = tuple(action.capability for action in ACTIONS)


@agent("echo", input_modes=("*/*",), capabilities=EVERY)
async def echo(turn: Turn):
    """Makes a file and asks, so that its task has everything and stays open to everything."""
    yield Status("thinking")
    yield ArtifactChunk({"said": turn.text}, id="made")
    if turn.text == "finish":
        yield Done("finished")
    else:
        yield NeedInput("And now?")


def far(slug: str) -> EdgeDriver:
    return EdgeDriver(Agent(slug, slug.capitalize(), f"The agent {slug}."))


class House:
    """`who` is somebody's headers, made anew for each request where a credential is good for one only."""

    def __init__(self, server: Server, http: httpx2.AsyncClient, issuer: Issuer) -> None:
        self.server = server
        self.http = http
        self.issuer = issuer
        self.who: dict[str, Callable[[], Headers]] = {"nobody": dict}
        self.nodes: dict[str, Node] = {}

    def headers(self, name: str) -> Headers:
        return self.who[name]()

    async def ask(
        self, who: str, method: str, path: str, body: Any = None, headers: Headers | None = None,
        form: Headers | None = None,
    ) -> httpx2.Response:  # fmt: skip
        """The answer; of a stream at most how it begins, which is all that is read of an agent's."""
        given = {**self.headers(who), **(headers or {})}
        async with self.http.stream(method, path, json=body, data=form, headers=given) as reply:
            if "text/event-stream" not in reply.headers.get("content-type", ""):
                await reply.aread()
            elif path == "/" or path.startswith("/agents/") or path.endswith("/a2a"):
                # How many events come at once is a matter of time: the first one is compared.
                reply.extensions["first"] = (await anext(reply.aiter_text())).partition("\n\n")[0]
            return reply

    async def task(self, who: str, text: str = "hello", slug: str = "echo") -> str:
        message = {"messageId": f"m-{now_ms()}", "role": "ROLE_USER", "parts": [{"text": text}]}
        body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage"}
        body["params"] = {"message": message, "configuration": {"returnImmediately": slug != "echo"}}
        reply = await self.ask(who, "POST", f"/agents/{slug}", body, {"A2A-Version": "1.0"})
        assert reply.status_code == 200, reply.text
        return reply.json()["result"]["task"]["id"]

    async def renew(self, name: str = "node") -> None:
        """A new token for a node that may have lost its own."""
        node = self.nodes[name]
        made = await self.ask("admin", "POST", f"/workspaces/{node.id}/tokens")
        node.token = made.json()["auth_token"]

    async def pair(self, slug: str) -> str:
        code = await self.ask("admin", "POST", f"/admin/agents/{slug}/pairing", {})
        body = {"pairing_token": code.json()["pairing_token"]}
        reply = await self.ask("nobody", "POST", "/agent-runtimes/runtime/attach-via-pairing", body)
        return reply.json()["runtime_token"]


def bearer(token: str) -> Headers:
    return {"Authorization": f"Bearer {token}"}


def signed(**claimed: Any) -> Headers:
    headers = {"X-OA-RUNTIME-SIGNATURE": sign(SECRET, claims_for(now_ms(), **claimed))}
    if user := claimed.get("user_id"):
        headers["X-OA-User-Id"] = str(user)
    if guest := claimed.get("guest_scope"):
        headers["X-OA-Guest-Scope"] = guest
    return headers


async def _keys(directory: Path, store: dict[str, Any]) -> dict[str, str]:
    wanted: dict[str, dict[str, Any]] = {
        "user": {}, "bob": {}, "reader": {"scopes": ["read"]}, "operator": {"role": "operator"},
        "admin": {"scopes": ["admin"]},
    }  # fmt: skip
    made: dict[str, str] = {}
    async with serving(directory, [echo], **store) as server, httpx2.AsyncClient(base_url=server.url) as http:
        for name, rights in wanted.items():
            reply = await http.post("/admin/keys", json={"name": name, **rights})
            made[name] = reply.json()["token"]
    return made


@asynccontextmanager
async def open_house(directory: Path, *more: Driver, **settings: Any) -> AsyncIterator[House]:
    store = {name: settings[name] for name in ("store", "postgres_url") if name in settings}
    keys = await _keys(directory, store)
    async with AsyncExitStack() as stack:
        issuer = await stack.enter_async_context(issuing())
        given = {
            "auth": "required", "grpc_port": 0, "runtime_keys": {"v1": SECRET}, "allow_hosts": ["127.0.0.1"],
            "oidc_issuer": issuer.url, "oidc_audience": AUDIENCE, **settings,
        }  # fmt: skip
        server = await stack.enter_async_context(serving(directory, [echo, far("far"), far("away"), *more], **given))
        # A request id of its own would be told to each answer, and answers are compared to the letter.
        http = await stack.enter_async_context(
            httpx2.AsyncClient(base_url=server.url, timeout=20, headers={"x-request-id": "always-this"})
        )
        house = House(server, http, issuer)
        for name, token in keys.items():
            house.who[name] = lambda token=token: bearer(token)
        await _furnish(house)
        yield house


async def _furnish(house: House) -> None:
    token = house.issuer.token()
    house.who["oidc"] = lambda: bearer(token)
    house.who["signed"] = lambda: signed(user_id=42)
    house.who["guest"] = lambda: signed(guest_scope="visitor")
    runtime, other = await house.pair("far"), await house.pair("away")
    house.who["runtime"] = lambda: {**bearer(runtime), "X-Runtime-Token": runtime}
    house.who["runtime2"] = lambda: {**bearer(other), "X-Runtime-Token": other}
    fleet = Fleet(house.http, "", house.headers("admin")["Authorization"].removeprefix("Bearer "))
    top = await fleet.online("top")
    low = await fleet.online("low", top)
    stranger = await fleet.online("deep", low)
    house.nodes = {"node": top, "child": low, "stranger": stranger}
    for name, node in house.nodes.items():
        house.who[name] = lambda node=node: node.headers
    found = (await low.discover(top)).json()
    house.who["pair"] = lambda: bearer(found["token"])
