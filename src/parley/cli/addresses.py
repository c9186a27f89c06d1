"""Resolve the address a command is given: an agent at --url, that server itself, or any A2A address."""

from typing import cast
from urllib.parse import urlsplit

from msgspec import Struct

from parley.cli.logins import login_token
from parley.client import Client, Json, OnRetry
from parley.client.cards import NoCard, fetch
from parley.client.http import HttpAnswer, ask, reaching, token_headers
from parley.errors import ParleyError
from parley.security.outbound import open_client

# Read JSON of other servers: a member that is missing or has another type reads as empty.


def member(value: object) -> Json:
    return cast(Json, value) if isinstance(value, dict) else {}


def members(value: object) -> list[Json]:
    found = cast(list[object], value) if isinstance(value, list) else []
    return [cast(Json, one) for one in found if isinstance(one, dict)]


def messages_of(task: Json) -> list[Json]:
    """All messages of a task; the message of its status is last."""
    message = member(member(task.get("status")).get("message"))
    return [*members(task.get("history")), *([message] if message else [])]


def state_of(task: Json) -> str:
    return str(member(task.get("status")).get("state", "")).removeprefix("TASK_STATE_").lower()


TIMEOUT_S = 24 * 3600.0
"""Long, because a task may take hours; the user can interrupt the command."""
OURS = "urn:parley:extension:"
_ADMIN_S = 30.0


class NoCommonProtocol(ParleyError):
    """The agent offers no binding and version that this program speaks."""

    code = "no_common_protocol"


class AgentAddress(Struct, frozen=True):
    """`agent` is a slug at `url`, an address, or nothing for the server itself."""

    agent: str | None
    url: str
    token: str | None

    @property
    def address(self) -> str:
        base = self.url.rstrip("/")
        if self.agent is None:
            return base + "/"
        return self.agent if "://" in self.agent else f"{base}/agents/{self.agent}"

    def token_for(self, address: str) -> str | None:
        """The token, if the address is on its own server: other servers never receive it. Without one, that of
        `parley login` at the address's server."""
        own = self.token if address.startswith(self.url.rstrip("/") + "/") else None
        return own or login_token(address)

    def options(self, default_url: str) -> str:
        """The options with which another command reaches the same server."""
        agent = f" --agent {self.agent}" if self.agent and "://" in self.agent else ""
        return agent + (f" --url {self.url}" if self.url != default_url else "")


class ResolvedAddress(Struct, frozen=True):
    address: str
    token: str | None
    ours: bool
    """True if the server is Parley, which numbers events and supports idempotency keys."""

    def client(self, on_retry: OnRetry | None = None) -> Client:
        return Client(self.address, token=self.token, timeout_s=TIMEOUT_S, repeats=self.ours, on_retry=on_retry)


async def resolve(place: AgentAddress) -> ResolvedAddress:
    """Read the card at the address to find the URL for requests. An agent named by slug is ours and needs no card."""
    address = place.address
    token = place.token_for(address)
    if place.agent is not None and "://" not in place.agent:
        return ResolvedAddress(address, token, ours=True)
    try:
        card = await fetch(address, token=token)
    except NoCard:
        return ResolvedAddress(address, token, ours=False)
    if is_ours(card):
        return ResolvedAddress(address, token, ours=True)
    found = _jsonrpc(card, address)
    same = urlsplit(found)[:2] == urlsplit(address)[:2]
    return ResolvedAddress(found, token if same else None, ours=False)


async def ask_server(
    method: str,
    url: str,
    token: str | None,
    *,
    name: str,
    query: dict[str, str | int] | None = None,
    body: object = None,
) -> HttpAnswer:
    """Call an operation of a Parley server; errors name the server as `name`."""
    async with open_client(timeout=_ADMIN_S, headers=token_headers(token or login_token(url))) as http:
        with reaching(name):
            return await ask(http, method, url, params=query, json=body)


def is_ours(card: Json) -> bool:
    extensions = members(member(card.get("capabilities")).get("extensions"))
    return any(str(one.get("uri", "")).startswith(OURS) for one in extensions)


def _jsonrpc(card: Json, address: str) -> str:
    offered = [
        (str(one.get("protocolBinding")), str(one.get("protocolVersion")), str(one.get("url")))
        for one in members(card.get("supportedInterfaces"))
    ]
    for binding, version, url in offered:
        if binding == "JSONRPC" and version.startswith("1."):
            return url
    said = ", ".join(f"{binding} {version}" for binding, version, _ in offered)
    older = str(card.get("protocolVersion") or "")
    said = said or (f"A2A {older}" if older else "no protocol that its card names")
    raise NoCommonProtocol(f"{address} speaks {said}; this program speaks A2A 1.0 over JSON-RPC.")
